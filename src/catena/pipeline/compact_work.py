"""The tasks of several compactions, stage by stage, and what each partition has become; see `tasks.compacting`.

A partition of which a task has failed takes no part in the stages that follow. There are as many parts as groups times
buckets, and of each the driver holds what one stage has told and what the next one is told, about 100 bytes in all;
`compact_plan` and `compact_pass` bound how many there are. Scratch objects are known here alone, by
what tasks tell of them; those of a task that was done twice, or of a driver that has died, are left for vacuum.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from typing import Any, NamedTuple

import msgspec

from catena.errors import CatenaError
from catena.formats.segment import SegmentInfo
from catena.pipeline.compact import CompactJob
from catena.pipeline.site import Site
from catena.pipeline.tasks.compact_plans import (
    KeysFound,
    KeysPlan,
    OfJob,
    RewritePlan,
    Rewritten,
    SurvivorsFound,
    SurvivorsPlan,
    with_bytes,
)
from catena.pipeline.work import TaskFailed, Work
from catena.types import Offset

DELETED_AT_ONCE = 1000


class Compacted(NamedTuple):
    """What a partition has become."""

    written: tuple[SegmentInfo | None, ...]
    """Of each group; None: nothing was removed."""
    records: int
    bytes: int
    keys: int
    tombstones: int
    opaque_batches: int
    """That can't be decoded, and stay as they are."""
    first_opaque: Offset
    """-1: there is none."""


class _Run:
    """One partition, and how far it has come."""

    def __init__(self, job: CompactJob) -> None:
        self.job = job
        self.groups = job.plan.choice.groups
        self.sizes = [sum(segment.size for segment in group) for group in self.groups]
        self.error: str | None = None
        self.keys: list[KeysFound] = []
        self.survivors: list[SurvivorsFound] = []
        self.rewritten: list[Rewritten] = []

    def keys_plans(self) -> Iterator[KeysPlan]:
        buckets = self.job.plan.choice.buckets
        for group in self.groups:
            yield KeysPlan(**self._names, buckets=buckets, segments=group)

    def survivors_plans(self) -> Iterator[SurvivorsPlan]:
        below = self.job.plan.choice.tombstones_below
        ends = tuple(group[-1].end for group in self.groups)
        for parts in zip(*(found.buckets for found in self.keys), strict=True):
            yield SurvivorsPlan(**self._names, parts=with_bytes(parts), ends=ends, tombstones_below=below)

    def rewrite_plans(self, cluster_id: str) -> Iterator[RewritePlan]:
        told = zip(*(found.groups for found in self.survivors), strict=True)
        for group, parts, found in zip(self.groups, told, self.keys, strict=True):
            yield RewritePlan(
                **self._names,
                cluster_id=cluster_id,
                segments=group,
                survivors=with_bytes(parts),
                opaque=found.opaque,
            )

    def result(self) -> Compacted | str:
        if self.error is not None:
            return self.error
        written = tuple(each.info for each in self.rewritten)
        sizes = (size if info is None else info.size for size, info in zip(self.sizes, written, strict=True))
        return Compacted(
            written,
            sum(each.records for each in self.rewritten),
            sum(sizes),
            sum(each.keys for each in self.survivors),
            sum(each.tombstones for each in self.survivors),
            sum(each.opaque.batches for each in self.keys),
            next((each.opaque.first for each in self.keys if each.opaque.batches), -1),
        )

    def scratch(self) -> set[str]:
        written = [found.buckets for found in self.keys] + [found.groups for found in self.survivors]
        job = OfJob(**self._names)
        return {job.scratch(parts.name) for parts in written if not parts.is_empty}

    @property
    def _names(self) -> dict[str, Any]:
        tp = self.job.plan.place.tp
        return {"topic": tp.topic, "topic_id": tp.topic_id, "partition": tp.partition, "job": self.job.job}


class Compacting:
    def __init__(
        self, site: Site, work: Work, jobs: Sequence[CompactJob], done: Callable[[int], None] = lambda _: None
    ) -> None:
        """`done` is told how many more bytes were read; all are read twice."""
        self._site = site
        self._work = work
        self._runs = [_Run(job) for job in jobs]
        self._done = done

    async def run(self) -> list[Compacted | str]:
        """What each job has become; a text says why its tasks failed."""
        await self._stage("keys", _Run.keys_plans, lambda run: run.keys, KeysFound, lambda run: run.sizes)
        await self._stage("survivors", _Run.survivors_plans, lambda run: run.survivors, SurvivorsFound)
        await self._stage(
            "rewrite",
            lambda run: run.rewrite_plans(self._site.cluster_id),
            lambda run: run.rewritten,
            Rewritten,
            lambda run: run.sizes,
        )
        return [run.result() for run in self._runs]

    async def delete_scratch(self) -> None:
        """As far as it can be done now."""
        found = sorted(key for run in self._runs for key in run.scratch())
        with suppress(CatenaError):
            for start in range(0, len(found), DELETED_AT_ONCE):
                await self._site.objects.delete(found[start : start + DELETED_AT_ONCE])

    async def _stage(
        self,
        task: str,
        plans_of: Callable[[_Run], Iterator[msgspec.Struct]],
        results_of: Callable[[_Run], list[Any]],
        result_type: type[msgspec.Struct],
        sizes_of: Callable[[_Run], Sequence[int]] | None = None,
    ) -> None:
        planned = [
            (run, msgspec.json.encode(plan)) for run in self._runs if run.error is None for plan in plans_of(run)
        ]
        if not planned:
            return
        sizes = [size for run in self._runs if run.error is None for size in sizes_of(run)] if sizes_of else []

        def done(number: int, _: bytes | TaskFailed) -> None:
            if sizes:
                self._done(sizes[number])

        results = await self._work.run(task, [plan for _, plan in planned], done)
        for (run, _), result in zip(planned, results, strict=True):
            if isinstance(result, TaskFailed):
                run.error = run.error or result.error
            else:
                results_of(run).append(msgspec.json.decode(result, type=result_type))
