"""The batching writer: when blobs are sent, in which order they commit, what it bounds, and what appenders are told."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence

import pytest

from catena.errors import BackPressure, BatchTooLarge, CatenaError, OutcomeUnknown, StoreFull, StoreUnavailable
from catena.formats import wal_blob
from catena.loglets.base import Tail
from catena.loglets.diskless import company
from catena.loglets.diskless.loglet import DisklessSettings
from catena.loglets.diskless.writer import UPLOAD_ATTEMPTS, WriterSettings
from catena.meta import keys
from catena.testing.contracts.loglet import Links, Stamp, make_entry, read_values
from catena.testing.faults import Fail, Faults, Stall
from catena.types import Offset
from tests.loglets.stores import DisklessNode, Stores

AN_HOUR_MS = 3_600_000


def settings(
    batch_max_bytes: int = 8 << 20, batch_max_delay_ms: int = AN_HOUR_MS, buffer_max_bytes: int = 128 << 20
) -> DisklessSettings:
    return DisklessSettings(
        writer=WriterSettings(
            batch_max_bytes=batch_max_bytes, batch_max_delay_ms=batch_max_delay_ms, buffer_max_bytes=buffer_max_bytes
        )
    )


def append(node: DisklessNode, value: str, links: Links, stamp: Stamp | None = None) -> asyncio.Task[Offset]:
    return asyncio.ensure_future(node.open(links.spec()).append(make_entry(value, stamp=stamp)))


async def turns(count: int = 20) -> None:
    """Let everything that can go on go on."""
    for _ in range(count):
        await asyncio.sleep(0)


async def blobs(stores: Stores) -> list[wal_blob.WalHeader]:
    infos = [info async for info in stores.objects.list(keys.WAL_BLOBS)]
    return [wal_blob.decode_header((await stores.objects.get(info.key)).data) for info in infos]


def stall_uploads(faults: Faults, count: int) -> Sequence[Stall]:
    return [faults.at("blob put", Stall(), nth) for nth in range(1, count + 1)]


class TestBatching:
    async def test_a_lone_append_is_sent_at_once(self, stores: Stores, links: Links) -> None:
        node = await stores.node(settings())
        for number in range(3):
            assert await append(node, "a", links) == number
            assert node.faults.taken["blob put"] == number + 1

    async def test_what_is_appended_together_shares_a_blob(self, stores: Stores) -> None:
        node = await stores.node(settings())
        partitions = [Links(number) for number in range(10)]
        offsets = await asyncio.gather(*(append(node, "a", links) for links in partitions * 3))
        assert offsets == [0] * 10 + [1] * 10 + [2] * 10
        (blob,) = await blobs(stores)
        assert [section.partition for section in blob.partitions] == list(range(10))
        assert {section.msg_count for section in blob.partitions} == {3}
        for links in partitions:
            (entry,) = await stores.index(links.partition)
            assert (entry.start_offset, entry.end_offset) == (0, 2)

    async def test_what_comes_while_a_blob_is_in_flight_gathers(self, stores: Stores, links: Links) -> None:
        node = await stores.node(settings())
        (first,) = stall_uploads(node.faults, 1)
        appends = [append(node, "first", links)]
        await first.reached.wait()
        for number in range(5):
            appends.append(append(node, f"{number}", links))
            await turns()
        assert node.faults.taken["blob put"] == 1
        first.let_go()
        assert await asyncio.gather(*appends) == list(range(6))
        assert node.faults.taken["blob put"] == 2

    async def test_a_commit_in_flight_counts_as_well(self, stores: Stores, links: Links) -> None:
        node = await stores.node(settings())
        commit = node.faults.at(stores.commit_step, Stall())
        appends = [append(node, "first", links)]
        await commit.reached.wait()
        appends += [append(node, "second", links), append(node, "third", links)]
        await turns()
        assert node.faults.taken["blob put"] == 1
        commit.let_go()
        assert await asyncio.gather(*appends) == [0, 1, 2]

    async def test_who_was_answered_together_comes_back_together(
        self, stores: Stores, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr(company, "SHARE", 1e-9)
        monkeypatch.setattr(company, "WAIT_MAX_S", 3600.0)
        node = await stores.node(settings())
        partitions = [Links(number) for number in range(4)]
        await asyncio.gather(*(append(node, "a", links) for links in partitions))
        for round_ in range(2, 4):
            appends = []
            for links in partitions:
                assert node.faults.taken["blob put"] == round_ - 1
                appends.append(append(node, "b", links))
                await turns()
            await asyncio.gather(*appends)
            assert node.faults.taken["blob put"] == round_

    async def test_who_does_not_come_back_is_not_waited_for_long(
        self, stores: Stores, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr(company, "SHARE", 1e-9)
        node = await stores.node(settings())
        await asyncio.gather(*(append(node, "a", Links(number)) for number in range(4)))
        await append(node, "b", Links(0))
        assert node.faults.taken["blob put"] == 2

    async def test_a_full_blob_waits_for_nobody(self, stores: Stores, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(company, "SHARE", 1e-9)
        monkeypatch.setattr(company, "WAIT_MAX_S", 3600.0)
        node = await stores.node(settings(batch_max_bytes=1000))
        await asyncio.gather(*(append(node, "a", Links(number)) for number in range(4)))
        await append(node, "x" * 1000, Links(0))
        assert node.faults.taken["blob put"] == 2

    async def test_a_full_blob_is_sent_while_others_are_in_flight(self, stores: Stores, links: Links) -> None:
        node = await stores.node(settings(batch_max_bytes=1000))
        first, second, third = stall_uploads(node.faults, 3)
        appends = [append(node, "first", links)]
        await first.reached.wait()
        appends.append(append(node, "x" * 500, links))
        await turns()
        assert not second.reached.is_set()
        appends.append(append(node, "y" * 500, links))
        await second.reached.wait()
        appends.append(append(node, "z" * 1000, links))
        await third.reached.wait()
        for stall in (third, second, first):
            stall.let_go()
        assert await asyncio.gather(*appends) == [0, 1, 2, 3]

    async def test_nothing_gathers_for_longer_than_the_delay(self, stores: Stores, links: Links) -> None:
        node = await stores.node(settings(batch_max_delay_ms=10))
        first, second = stall_uploads(node.faults, 2)
        appends = [append(node, "first", links)]
        await first.reached.wait()
        appends.append(append(node, "second", links))
        await second.reached.wait()
        assert not appends[0].done()
        second.let_go()
        first.let_go()
        assert await asyncio.gather(*appends) == [0, 1]

    async def test_no_more_uploads_run_at_once_than_allowed(self, stores: Stores, links: Links) -> None:
        node = await stores.node(settings(batch_max_bytes=1))
        stalls = stall_uploads(node.faults, 6)
        appends = []
        for number in range(6):
            appends.append(append(node, f"{number}", links))
            await turns()
        assert [stall.reached.is_set() for stall in stalls] == [True] * 4 + [False] * 2
        stalls[2].let_go()
        await stalls[4].reached.wait()
        assert not stalls[5].reached.is_set()
        for stall in stalls:
            stall.let_go()
        assert await asyncio.gather(*appends) == list(range(6))


class TestOrder:
    async def test_a_slow_upload_holds_up_its_own_partitions_only(self, stores: Stores) -> None:
        node = await stores.node(settings(batch_max_bytes=1))
        slow, other = Links(0), Links(1)
        (stall,) = stall_uploads(node.faults, 1)
        first = append(node, "slow", slow)
        await stall.reached.wait()
        second, *others = append(node, "behind", slow), append(node, "a", other), append(node, "b", other)
        assert await asyncio.gather(*others) == [0, 1]
        assert not first.done()
        assert not second.done()
        stall.let_go()
        assert (await first, await second) == (0, 1)
        assert await read_values(node.open(slow.spec()), 0, 2) == ["slow", "behind"]

    async def test_a_slow_commit_of_one_partition_holds_up_no_other(self, stores: Stores) -> None:
        node = await stores.node(settings(batch_max_bytes=1))
        stall = node.faults.at(stores.commit_step, Stall())
        slow = append(node, "slow", Links(0))
        await stall.reached.wait()
        assert await append(node, "a", Links(1)) == 0
        assert not slow.done()
        stall.let_go()
        assert await slow == 0

    async def test_runs_that_pile_up_behind_a_slow_one_are_committed_together(
        self, stores: Stores, links: Links
    ) -> None:
        node = await stores.node(settings(batch_max_bytes=1))
        (stall,) = stall_uploads(node.faults, 1)
        appends = [append(node, f"{number}", links) for number in range(4)]
        await stall.reached.wait()
        while node.faults.taken["blob put"] < 4:
            await turns()
        commits = node.faults.taken[stores.commit_step]
        stall.let_go()
        assert await asyncio.gather(*appends) == [0, 1, 2, 3]
        assert node.faults.taken[stores.commit_step] == commits + 1

    async def test_batches_of_a_producer_in_flight_keep_their_order(self, stores: Stores, links: Links) -> None:
        node = await stores.node(settings(batch_max_bytes=1))
        stalls = stall_uploads(node.faults, 4)
        appends = [append(node, f"{number}", links, Stamp(7, 0, number)) for number in range(4)]
        for stall in reversed(stalls):
            await stall.reached.wait()
            stall.let_go()
        assert await asyncio.gather(*appends) == [0, 1, 2, 3]

    async def test_what_was_in_flight_behind_a_failed_first_batch_is_refused(
        self, stores: Stores, links: Links
    ) -> None:
        """Taken, it would make the failed batch, sent again, look like one from the past."""
        node = await stores.node(settings(batch_max_bytes=1))
        node.faults.at("blob put", Fail(StoreFull("full")))
        entries = [make_entry(f"{number}", stamp=Stamp(7, 0, number)) for number in range(3)]
        loglet = node.open(links.spec())
        results = await asyncio.gather(*(loglet.append(entry) for entry in entries), return_exceptions=True)
        assert [type(result).__name__ for result in results] == [
            "StoreFull",
            "OutOfOrderSequence",
            "OutOfOrderSequence",
        ]
        assert [await loglet.append(entry) for entry in entries] == [0, 1, 2]

    async def test_a_producer_whose_batch_failed_may_begin_a_new_epoch(self, stores: Stores, links: Links) -> None:
        node = await stores.node(settings())
        node.faults.at("blob put", Fail(StoreFull("full")))
        with pytest.raises(StoreFull):
            await append(node, "expired since, so the log does not know it", links, Stamp(7, 0, 100))
        assert await append(node, "a", links, Stamp(7, 1, 0)) == 0


class TestBounds:
    async def test_past_the_buffer_appends_are_refused_until_there_is_room(self, stores: Stores, links: Links) -> None:
        size = len(make_entry("x" * 500).data)
        node = await stores.node(settings(buffer_max_bytes=3 * size))
        (stall,) = stall_uploads(node.faults, 1)
        appends = [append(node, "x" * 500, links) for _ in range(3)]
        await stall.reached.wait()
        with pytest.raises(BackPressure):
            await append(node, "x" * 500, links)
        stall.let_go()
        assert await asyncio.gather(*appends) == [0, 1, 2]
        assert await append(node, "x" * 500, links) == 3

    @pytest.mark.parametrize("error", [StoreFull("full"), OutcomeUnknown("no answer")])
    async def test_appends_that_failed_leave_room(self, stores: Stores, links: Links, error: CatenaError) -> None:
        size = len(make_entry("x" * 500).data)
        node = await stores.node(settings(buffer_max_bytes=size))
        for _ in range(3):
            for nth in range(1, UPLOAD_ATTEMPTS + 1 if isinstance(error, OutcomeUnknown) else 2):
                node.faults.at("blob put", Fail(error), nth)
            with pytest.raises((StoreFull, StoreUnavailable)):
                await append(node, "x" * 500, links)
        assert await append(node, "x" * 500, links) == 0

    async def test_a_batch_that_can_never_fit_is_refused_for_good(self, stores: Stores, links: Links) -> None:
        node = await stores.node(settings(buffer_max_bytes=1000))
        with pytest.raises(BatchTooLarge):
            await append(node, "x" * 1000, links)
        assert await append(node, "x", links) == 0

    async def test_more_entries_of_a_partition_than_a_commit_takes_are_committed_in_order(
        self, stores: Stores, links: Links
    ) -> None:
        node = await stores.node()
        entry = make_entry("x")
        loglet = node.open(links.spec())
        assert await asyncio.gather(*(loglet.append(entry) for _ in range(5000))) == list(range(5000))

    async def test_more_producers_in_a_commit_than_are_cached_are_no_trouble(
        self, stores: Stores, links: Links
    ) -> None:
        first, second = await stores.node(), await stores.node()
        for sequence, node in enumerate((first, second, first)):
            loglet = node.open(links.spec())
            entries = [make_entry("x", stamp=Stamp(producer, 0, sequence)) for producer in range(1500)]
            offsets = await asyncio.gather(*(loglet.append(entry) for entry in entries))
            assert offsets == list(range(1500 * sequence, 1500 * (sequence + 1)))


class TestUploadFailures:
    async def test_an_upload_without_an_answer_is_done_again_under_another_name(
        self, stores: Stores, links: Links
    ) -> None:
        node = await stores.node()
        node.faults.at("blob put", Fail(OutcomeUnknown("no answer"), applied=True))
        assert await append(node, "a", links) == 0
        assert len(await blobs(stores)) == 2
        assert await read_values((await stores.node()).open(links.spec()), 0, 1) == ["a"]

    @pytest.mark.parametrize("error", [OutcomeUnknown("no answer"), StoreUnavailable("down")])
    async def test_an_upload_that_fails_all_the_time_says_that_nothing_was_appended(
        self, stores: Stores, links: Links, error: CatenaError
    ) -> None:
        node = await stores.node()
        for nth in range(1, UPLOAD_ATTEMPTS + 1):
            node.faults.at("blob put", Fail(error, applied=isinstance(error, OutcomeUnknown)), nth)
        with pytest.raises(StoreUnavailable):
            await append(node, "a", links)
        assert await node.open(links.spec()).tail() == Tail(0, sealed=False)
        assert await append(node, "b", links) == 0

    async def test_a_full_store_fails_all_who_shared_the_blob_and_nobody_else(self, stores: Stores) -> None:
        node = await stores.node(settings(batch_max_bytes=1000))
        one, other = Links(0), Links(1)
        node.faults.at("blob put", Fail(StoreFull("full")))
        appends = [append(node, "x" * 500, one), append(node, "x" * 500, other), append(node, "later", one)]
        results = await asyncio.gather(*appends, return_exceptions=True)
        assert [type(result) for result in results] == [StoreFull, StoreFull, int]
        assert await read_values(node.open(one.spec()), 0, 1) == ["later"]
        assert await node.open(other.spec()).tail() == Tail(0, sealed=False)

    async def test_an_appender_that_left_is_no_trouble_for_those_who_share_its_fate(
        self, stores: Stores, links: Links
    ) -> None:
        node = await stores.node()
        (stall,) = stall_uploads(node.faults, 1)
        left, stayed = append(node, "left", links), append(node, "stayed", links)
        await stall.reached.wait()
        left.cancel()
        stall.let_go()
        assert await stayed == 1
        assert await read_values(node.open(links.spec()), 0, 2) == ["left", "stayed"]


class TestClose:
    async def test_what_was_taken_is_answered_and_nothing_more_is_taken(self, stores: Stores, links: Links) -> None:
        node = await stores.node(settings())
        (stall,) = stall_uploads(node.faults, 1)
        appends = [append(node, "in flight", links)]
        await stall.reached.wait()
        appends.append(append(node, "gathering", links))
        await turns()
        closing = asyncio.ensure_future(node.diskless.close())
        await turns()
        with pytest.raises(StoreUnavailable):
            await append(node, "late", links)
        assert not closing.done()
        stall.let_go()
        await closing
        assert await asyncio.gather(*appends) == [0, 1]
        with pytest.raises(StoreUnavailable):
            await append(node, "late", links)

    async def test_a_node_that_did_nothing_closes(self, stores: Stores) -> None:
        node = await stores.node()
        await node.diskless.close()


class TestRoundTrips:
    PARTITIONS = 100

    async def flush(self, node: DisklessNode) -> dict[str, int]:
        """Append to many partitions at once; returns how often each step was taken for it."""
        before = node.faults.taken.copy()
        offsets = await asyncio.gather(*(append(node, "a", Links(number)) for number in range(self.PARTITIONS)))
        assert len(set(offsets)) == 1
        await node.diskless.writer.drain()
        return dict(node.faults.taken - before)

    async def test_of_a_flush_of_many_partitions(self, stores: Stores) -> None:
        node, other = await stores.node(), await stores.node()
        for flusher, is_first in ((node, True), (node, False), (other, True), (other, False)):
            taken = await self.flush(flusher)
            assert taken.pop("blob put") == 1
            if stores.can_transact:
                assert taken == {"transact": 2 if flusher is other and is_first else 1}
            elif not is_first:
                # The third operation is the look at the boundary, which in these tests costs nothing.
                assert taken == {"put control": self.PARTITIONS, "put index": self.PARTITIONS}
