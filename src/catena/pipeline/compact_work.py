"""The tasks of several compactions, stage by stage, and what each partition has become; see `tasks.compacting`.

A partition of which a task has failed takes no part in the stages that follow. Scratch objects are known here alone, by
what tasks tell of them; those of a task that was done twice, or of a driver that has died, are left for vacuum.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
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
    Part,
    RewritePlan,
    Rewritten,
    SurvivorsFound,
    SurvivorsPlan,
)
from catena.pipeline.work import TaskFailed, Work

DELETED_AT_ONCE = 1000


class Compacted(NamedTuple):
    """What a partition has become."""

    written: tuple[SegmentInfo | None, ...]
    """Of each group; None: nothing was removed."""
    records: int
    bytes: int
    keys: int
    tombstones: int


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

    def keys_plans(self) -> list[KeysPlan]:
        buckets = self.job.plan.choice.buckets
        return [KeysPlan(**self._names, buckets=buckets, segments=group) for group in self.groups]

    def survivors_plans(self) -> list[SurvivorsPlan]:
        choice = self.job.plan.choice
        ends = tuple(group[-1].end for group in self.groups)
        return [
            SurvivorsPlan(**self._names, parts=parts, ends=ends, tombstones_below=choice.tombstones_below)
            for parts in zip(*(found.buckets for found in self.keys), strict=True)
        ]

    def rewrite_plans(self, cluster_id: str) -> list[RewritePlan]:
        told = zip(*(found.groups for found in self.survivors), strict=True)
        return [
            RewritePlan(**self._names, cluster_id=cluster_id, segments=group, survivors=parts)
            for group, parts in zip(self.groups, told, strict=True)
        ]

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
        )

    def scratch(self) -> set[str]:
        parts: list[Part] = [part for found in self.keys for part in found.buckets]
        parts += [part for found in self.survivors for part in found.groups]
        return {part.key for part in parts if part.size}

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
        plans_of: Callable[[_Run], Sequence[msgspec.Struct]],
        results_of: Callable[[_Run], list[Any]],
        result_type: type[msgspec.Struct],
        sizes_of: Callable[[_Run], Sequence[int]] | None = None,
    ) -> None:
        planned = [(run, plan) for run in self._runs if run.error is None for plan in plans_of(run)]
        if not planned:
            return
        sizes = [size for run in self._runs if run.error is None for size in sizes_of(run)] if sizes_of else []

        def done(number: int, _: bytes | TaskFailed) -> None:
            if sizes:
                self._done(sizes[number])

        results = await self._work.run(task, [msgspec.json.encode(plan) for _, plan in planned], done)
        for (run, _), result in zip(planned, results, strict=True):
            if isinstance(result, TaskFailed):
                run.error = run.error or result.error
            else:
                results_of(run).append(msgspec.json.decode(result, type=result_type))
