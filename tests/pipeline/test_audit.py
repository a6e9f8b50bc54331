"""Audits: a clean log is clean whatever its history, and whatever is planted is found."""

from __future__ import annotations

import msgspec
import pytest

from catena.errors import StoreUnavailable
from catena.pipeline.audit import Orphans, audit, pieces_of
from catena.pipeline.audit_views import read_view
from catena.pipeline.settings import AuditSettings
from catena.pipeline.tier_pass import Progress
from catena.testing.faults import Fail
from tests.pipeline.auditing import (
    TINY,
    audited,
    driver,
    fill_with_history,
    manifest_of,
    place_of,
    tier,
)
from tests.pipeline.drivers import SMALL, Steps, append_numbers
from tests.virtual_log.cluster import Cluster


class TestClean:
    async def test_a_log_with_every_kind_of_history(self, cluster: Cluster) -> None:
        await fill_with_history(cluster)
        report = await audited(cluster, 0, 1, 2, 3, 4)
        assert (report.defects, report.unchecked, report.unlisted) == ((), (), 0)
        assert report.ok
        assert (report.partitions, report.orphans) == (5, None)
        in_memory = 2
        assert report.offsets == 10 + 11 + 20 - in_memory + 4
        assert report.batches == 6 + 6 + 18 + 2
        assert report.bytes > 0

    async def test_pieces_and_windows_of_any_size_find_the_same(
        self, cluster: Cluster, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr("catena.pipeline.audit.MIN_WINDOW", 1)
        await fill_with_history(cluster)
        reports = [
            await audited(cluster, 0, 1, 2, 3, settings=AuditSettings(task_bytes=size, max_runs=runs))
            for size in (1, 3000, 1 << 30)
            for runs in (1, 4, 1000)
        ]
        assert all(report.ok for report in reports)
        assert len({(report.offsets, report.batches, report.bytes) for report in reports}) == 1

    async def test_progress_and_orphans_are_told(self, cluster: Cluster) -> None:
        await append_numbers(cluster, 10)
        told: list[Progress] = []
        auditor = await driver(cluster)
        places = await auditor.places(0, 1)

        async def count() -> Orphans:
            return Orphans(3, 1000)

        report = await audit(auditor.site, auditor.work, places, TINY, told.append, lambda: False, count)
        assert report.orphans == Orphans(3, 1000)
        assert told[-1] == Progress(2, 2, report.bytes, report.bytes)
        assert sum(usage.tasks for usage in report.executors.values()) == 2

    async def test_what_others_have_done_on_the_same_executors_is_not_counted(self, cluster: Cluster) -> None:
        await append_numbers(cluster, 10)
        auditor = await driver(cluster)
        places = await auditor.places(0)
        first, second = [await audit(auditor.site, auditor.work, places, TINY) for _ in range(2)]
        assert first.executors == second.executors
        (usage,) = first.executors.values()
        assert usage.bytes_read > first.bytes

    async def test_defects_are_listed_up_to_a_limit(self, cluster: Cluster, monkeypatch: pytest.MonkeyPatch) -> None:
        for limit in ("LISTED_OF_PARTITION", "LISTED"):
            monkeypatch.setattr("catena.pipeline.audit.LISTED_OF_PARTITION", 1000)
            monkeypatch.setattr(f"catena.pipeline.audit.{limit}", 3)
            await append_numbers(cluster, 10)
            blobs = [info.key async for info in cluster.stores.objects.list("llog/wal-shared/")]
            await cluster.stores.objects.delete(blobs)
            report = await audited(cluster)
            lost = 10 if limit == "LISTED_OF_PARTITION" else 20
            assert (len(report.defects), report.unlisted, report.ok) == (3, lost - 3, False)

    async def test_one_that_was_stopped_does_not_say_that_all_is_well(self, cluster: Cluster) -> None:
        await append_numbers(cluster, 1)
        auditor = await driver(cluster)
        report = await audit(auditor.site, auditor.work, await auditor.places(0), TINY, should_stop=lambda: True)
        assert (report.ok, report.is_complete, report.partitions) == (False, False, 0)

    async def test_what_could_not_be_read_is_not_damage_and_not_well(self, cluster: Cluster) -> None:
        await append_numbers(cluster, 2)
        for step in ("blob get_ranges", "get control", "scan index"):
            steps = Steps()
            auditor = await driver(cluster, steps)
            places = await auditor.places(0, 1)
            steps.at(step, Fail(StoreUnavailable("down")))
            report = await audit(auditor.site, auditor.work, places, TINY)
            assert (report.defects, report.ok) == ((), False)
            (unchecked,) = report.unchecked
            assert (unchecked.topic, unchecked.partition) == ("topic", 0)
            assert "StoreUnavailable: down" in unchecked.error

    async def test_a_deleted_topic_is_left_alone(self, cluster: Cluster) -> None:
        await append_numbers(cluster, 3)
        auditor = await driver(cluster)
        places = await auditor.places(0)
        await (await cluster.node()).node.topics.delete("topic")
        report = await audit(auditor.site, auditor.work, places, TINY)
        assert (report.ok, report.partitions) == (True, 0)


class TestPieces:
    async def test_they_are_cut_by_bytes_and_hold_each_offset_once(self, cluster: Cluster) -> None:
        await append_numbers(cluster, 20)
        await tier(cluster, settings=msgspec.structs.replace(SMALL, min_age_ms=1_000_000), force_up_to=10)
        await append_numbers(cluster, 5, 20)
        auditor = await driver(cluster)
        view = await read_view(auditor.site, await place_of(cluster), 0, 1000)
        pieces = list(pieces_of(view, 2000))
        assert len(pieces) > 4
        assert [piece.base for piece in pieces] == [0, *(piece.end for piece in pieces[:-1])]
        assert pieces[-1].end == 25
        assert all(piece.size <= 2000 or len(piece.runs + piece.segments) == 1 for piece in pieces)
        assert [bool(piece.segments) for piece in pieces] == sorted((bool(p.segments) for p in pieces), reverse=True)
        assert [len(list(pieces_of(view, size))) for size in (1, 1 << 30)] == [
            len((await manifest_of(cluster))[1].segments) + 15,
            2,
        ]
