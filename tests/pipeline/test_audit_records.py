"""Whatever is wrong with what the meta store says of a log is found: kind, key and offsets."""

from __future__ import annotations

from contextlib import suppress

import msgspec
import pytest

from catena.errors import StoreUnavailable
from catena.loglets.diskless.records import Pending
from catena.meta import keys
from catena.pipeline.records import CompactionRecord, State
from catena.testing.contracts.loglet import make_entry
from tests.pipeline.auditing import (
    audited,
    change_chain,
    change_control,
    driver,
    found,
    in_segments,
    in_wal,
    index_of,
    log_of,
    place_of,
    put_entry,
    tier,
)
from tests.pipeline.drivers import Steps, append_numbers
from tests.virtual_log.cluster import Cluster


class TestIndex:
    async def test_a_missing_key(self, cluster: Cluster) -> None:
        tp = await in_wal(cluster)
        await cluster.stores.meta.delete(keys.index(tp, 4))
        assert await found(cluster) == [("gap", keys.index(tp, 4), (4, 4))]

    async def test_the_last_key_is_missing(self, cluster: Cluster) -> None:
        tp = await in_wal(cluster)
        await change_control(cluster, tp, lambda control: msgspec.structs.replace(control, pending=None))
        await cluster.stores.meta.delete(keys.index(tp, 9))
        assert await found(cluster) == [("gap", keys.index(tp, 9), (9, 9))]

    async def test_the_first_key_is_missing(self, cluster: Cluster) -> None:
        tp = await in_wal(cluster)
        await cluster.stores.meta.delete(keys.index(tp, 0))
        assert await found(cluster) == [("gap", keys.index(tp, 0), (0, 0))]

    async def test_offsets_that_were_never_written(self, cluster: Cluster) -> None:
        tp = await in_wal(cluster)
        await change_control(
            cluster, tp, lambda control: msgspec.structs.replace(control, next=control.next + 5, pending=None)
        )
        assert await found(cluster) == [("gap", keys.index(tp, 14), (10, 14))]

    async def test_an_overlapping_entry(self, cluster: Cluster) -> None:
        log = await log_of(cluster)
        for values in ("ab", "cd", "ef"):
            await log.append(make_entry(*values))
        first, _, _ = await index_of(cluster, log.tp)
        await cluster.stores.objects.put(
            "llog/wal-shared/copy", [(await cluster.stores.objects.get(first.data_key)).data]
        )
        key = await put_entry(cluster, log.tp, first, end_offset=2, data_key="llog/wal-shared/copy")
        assert await found(cluster) == [
            ("overlap", key, (1, 1)),
            ("overlap", keys.index(log.tp, 3), (2, 2)),
        ]

    async def test_a_record_that_cannot_be_read(self, cluster: Cluster) -> None:
        tp = await in_wal(cluster)
        await cluster.stores.meta.put(keys.index(tp, 4), b"{}")
        assert await found(cluster) == [
            ("corrupt_record", keys.index(tp, 4), (4, 4)),
            ("gap", keys.index(tp, 4), (4, 4)),
        ]
        await cluster.stores.meta.put(keys.chain(tp), b"no chain")
        assert await found(cluster) == [("corrupt_record", keys.chain(tp), (0, 0))]

    async def test_an_append_that_was_committed_twice(self, cluster: Cluster) -> None:
        tp = await in_wal(cluster)
        entry = (await index_of(cluster, tp))[4]
        await change_control(
            cluster, tp, lambda control: msgspec.structs.replace(control, next=control.next + 1, pending=None)
        )
        key = await put_entry(cluster, tp, entry, end_offset=10)
        assert await found(cluster) == [("duplicate_batch", key, (10, 10))]

    async def test_a_stale_entry_below_the_boundary(self, cluster: Cluster) -> None:
        tp = await in_wal(cluster)
        entry = (await index_of(cluster, tp))[4]
        await tier(cluster)
        key = await put_entry(cluster, tp, entry)
        report = await audited(cluster)
        assert [(each.kind, each.severity, each.key, each.offsets) for each in report.defects] == [
            ("stale_entry", "leftover", key, (4, 4))
        ]
        assert report.ok


class TestChain:
    async def test_links_that_do_not_meet(self, cluster: Cluster) -> None:
        tp, _ = await in_segments(cluster)
        await append_numbers(cluster, 3, 20)
        chain = (await cluster.chains.load(*await place_of(cluster))).chain
        tiered, last = chain.links
        await change_chain(cluster, links=(tiered, msgspec.structs.replace(last, base=22)))
        assert ("links_do_not_meet", keys.chain(tp), (20, 21)) in await found(cluster)
        await change_chain(cluster, links=(tiered, msgspec.structs.replace(last, base=18)))
        assert ("links_do_not_meet", keys.chain(tp), (18, 19)) in await found(cluster)

    async def test_a_sealed_link_that_is_not_as_the_control_record_says(self, cluster: Cluster) -> None:
        tp = await in_wal(cluster)
        await (await log_of(cluster)).seal()
        assert await found(cluster) == []
        await change_control(cluster, tp, lambda control: msgspec.structs.replace(control, state="OPEN"))
        assert ("control_mismatch", keys.control(tp), (10, 10)) in await found(cluster)


STATES: list[State] = ["WRITING_COMPACTED_INDEX", "UPDATING_CURSOR", "DELETING_OLD"]


class TestLeftovers:
    async def test_a_pending_that_was_never_materialized(self, cluster: Cluster) -> None:
        tp = await in_wal(cluster)
        entry = (await index_of(cluster, tp))[-1]
        pending = Pending(entry.append_id, (entry,), {})
        await change_control(cluster, tp, lambda control: msgspec.structs.replace(control, pending=pending))
        assert await found(cluster) == []
        await cluster.stores.meta.delete(keys.index(tp, 9))
        report = await audited(cluster)
        assert [(each.kind, each.severity, each.key, each.offsets) for each in report.defects] == [
            ("pending_left", "leftover", keys.control(tp), (9, 9))
        ]
        assert (report.ok, report.offsets) == (True, 10)

    async def test_what_is_pending_is_read_too(self, cluster: Cluster) -> None:
        tp = await in_wal(cluster)
        entry = (await index_of(cluster, tp))[-1]
        pending = Pending(entry.append_id, (entry,), {})
        await change_control(cluster, tp, lambda control: msgspec.structs.replace(control, pending=pending))
        await cluster.stores.meta.delete(keys.index(tp, 9))
        await cluster.stores.objects.delete([entry.data_key])
        assert ("missing_object", entry.data_key, (9, 9)) in await found(cluster)

    async def test_a_compaction_left_in_each_step(self, cluster: Cluster) -> None:
        """A driver dies at each of its steps: what it leaves is named, and none of it is damage."""
        log = await log_of(cluster, 99)
        for number in range(8):
            await log.append(make_entry(f"{number} {'x' * 300}"))
        counting = await driver(cluster)
        await counting.tier(99)
        kinds: list[str] = []
        for at in range(1, len(counting.steps.names) + 1):
            partition = at % 98
            log = await log_of(cluster, partition)
            for number in range(8):
                await log.append(make_entry(f"{number} {'x' * 300}"))
            dying = await driver(cluster, Steps(at))
            with suppress(StoreUnavailable):
                await dying.tier(partition)
            await cluster.stores.meta.delete(keys.compactor_claim(log.tp))  # its session is over
            report = await audited(cluster, partition)
            assert report.ok, (at, dying.steps.names, report.defects)
            kinds += [each.kind for each in report.defects]
            await tier(cluster, partition)
            assert (await audited(cluster, partition)).defects == ()
        assert set(kinds) >= {"compaction_writing", "compaction_updating", "compaction_deleting", "stale_entry"}
        assert "tiering_left" in kinds

    @pytest.mark.parametrize("state", STATES)
    async def test_a_record_of_a_job_that_is_gone(self, cluster: Cluster, state: State) -> None:
        tp = await in_wal(cluster)
        record = CompactionRecord("job", state, 2, 7, 6, keys.manifest(tp, "job"), 0, 0, 8)
        await cluster.stores.meta.put(keys.compaction(tp), msgspec.json.encode(record))
        kind = "compaction_" + state.partition("_")[0].lower()
        assert await found(cluster) == [(kind, keys.compaction(tp), (2, 7))]
        await cluster.stores.meta.put(keys.compactor_claim(tp), b"{}")
        assert await found(cluster) == [], "somebody works on it"
