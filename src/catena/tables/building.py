"""Brings a table up to the tail that its topic has now: plan, tasks, commit, and again if that was too much for one.

What a crash leaves, step by step:

    load, create, add columns      an empty table, or columns that are null
    tasks write files              files that nothing refers to: upkeep deletes them; if a batch of raw values can't be
                                   decoded, a table of dead letters is made, and they are written again
    put the list of dead letters   a list that nothing refers to: the same
    commit                         done; dead letters are still to be committed, which the next driver does first
    commit dead letters            nothing

A driver that is refused, because another was faster, plans anew from what that one has done.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, NamedTuple

import msgspec

from catena.errors import CatenaError, ObjectMissing, OffsetOutOfRange, StaleView, UnknownTopic
from catena.node import Node
from catena.objects.base import ObjectStore
from catena.pipeline.work import TaskFailed, Work, require_done
from catena.runtime import Clock, Entropy
from catena.runtime.tasks import map_bounded
from catena.source.planning import OffsetRange
from catena.source.splitting import Split, cut_by_extents
from catena.tables import planning
from catena.tables.columns import DEAD_LETTERS, evolved, typed, value_fields
from catena.tables.committer import Change, DataFile, OpenTable, TableState
from catena.tables.dead_letters import put_list, settle
from catena.tables.naming import source_of
from catena.tables.planning import AT_ONCE, Lack, group_splits, oldest_ms
from catena.tables.report import Outcome, TableReport
from catena.tables.settings import TableConfig, TableFormat
from catena.tables.storage import AnyState, TableOpener
from catena.tables.tasks import ROWS
from catena.tables.tasks.rows import FilesSpec, RowsPlan, RowsWritten
from catena.tables.values import ValueSpec, decoder_of
from catena.types import Offset, TopicId
from catena.virtual_log.extents import find_extents
from catena.virtual_log.topics import TopicRecord

if TYPE_CHECKING:
    import pyarrow as pa

log = logging.getLogger(__name__)

MAX_RECORDS = 5_000_000
"""Of one commit."""
MAX_ROUNDS = 10_000
MAX_REFUSALS = 5
"""In a row; then the table is left to those who are faster."""


class Driver(NamedTuple):
    """What builders share."""

    node: Node
    objects: ObjectStore
    clock: Clock
    entropy: Entropy
    work: Work | None
    """None: for who only looks."""
    opener: TableOpener
    should_stop: Callable[[], bool] = lambda: False
    progress: dict[TopicId, Mapping[int, Offset]] | None = None
    """Of tables as they were seen last; whoever looks again and again keeps it, and need not open a table to see that
    there is nothing to do yet."""
    max_records: int = MAX_RECORDS
    took_ms: dict[TopicId, int] | None = None
    """How long the last commit of each table took, from the look on; whoever looks again and again keeps it."""


class SeenProgress(dict[int, Offset]):
    """Says nothing of the topic's table in another format."""

    def __init__(self, progress: Mapping[int, Offset], kind: TableFormat) -> None:
        super().__init__(progress)
        self.format = kind


class PlanIsOld(StaleView):
    """An object is gone: tiered, merged or trimmed, and vacuumed since. If it is so again and again, it is lost."""


async def run_tasks(driver: Driver, task: str, plans: Sequence[bytes]) -> list[bytes]:
    assert driver.work is not None, "who only looks has no tasks"
    results = await driver.work.run(task, plans, lambda *_: None)
    for result in results:
        if isinstance(result, TaskFailed) and result.error.startswith(ObjectMissing.__name__):
            raise PlanIsOld(f"vacuum collects what was trimmed or moved since a plan was made: {result.error}")
    return [require_done(result) for result in results]


@dataclass(slots=True)
class _Done:
    outcome: Outcome = "idle"
    uri: str = ""
    commits: int = 0
    rows: int = 0
    dead_letters: int = 0
    opaque_batches: int = 0
    files: list[DataFile] = field(default_factory=list)
    records_behind: int = 0
    behind_ms: int = 0
    freshness_ms: int = 0
    losses: dict[str, None] = field(default_factory=dict)


class TableBuilder:
    """Of one topic."""

    def __init__(self, driver: Driver, topic: TopicRecord, config: TableConfig) -> None:
        self._driver = driver
        self._topic = topic
        self._config = config
        self._done = _Done()
        self._began_ms = driver.clock.now_ms()
        self._letters_schema: pa.Schema | None = None
        """Of the files of dead letters, once it is known; raw values have none, unless the table was typed before, or a
        batch can't be decoded."""

    async def run(self, only_if_due: bool = False, dry_run: bool = False) -> TableReport:
        """`only_if_due`: not before the commit interval asks for it, and one commit. What goes wrong is in the report:
        one table stops no other."""
        error = ""
        try:
            await self._build(only_if_due, dry_run)
        except UnknownTopic:
            pass  # it is deleted just now, and its table stays as it is
        except CatenaError as failed:
            self._done.outcome, error = "failed", f"{type(failed).__name__}: {failed}"
        except Exception as failed:
            log.exception("the table of topic %s could not be built", self._topic.name)
            self._done.outcome, error = "failed", f"{type(failed).__name__}: {failed}"
        done = self._done
        return TableReport(
            topic=self._topic.name,
            table=done.uri,
            format=self._config.format,
            outcome=done.outcome,
            commits=done.commits,
            rows=done.rows,
            files=len(done.files),
            bytes=sum(file.bytes for file in done.files),
            dead_letters=done.dead_letters,
            opaque_batches=done.opaque_batches,
            records_behind=done.records_behind,
            behind_ms=done.behind_ms,
            freshness_ms=done.freshness_ms,
            losses=tuple(done.losses),
            error=error,
        )

    async def _build(self, only_if_due: bool, dry_run: bool) -> None:
        if only_if_due and not await self._may_be_due():
            return
        refusals = 0
        for _ in range(MAX_ROUNDS):
            if self._driver.should_stop():
                return
            try:
                opened = await self._driver.opener.open(self._topic, self._config.format)
                self._done.uri = opened.table.uri
                if not await self._round(opened, only_if_due, dry_run) or only_if_due:
                    return
                refusals = 0
            except (StaleView, OffsetOutOfRange) as error:
                refusals += 1
                if refusals == MAX_REFUSALS:
                    if isinstance(error, PlanIsOld):
                        raise
                    self._done.outcome = "left"
                    return

    async def _may_be_due(self) -> bool:
        """By what the table was when it was seen last: since then it may have got more, and never less."""
        known = (self._driver.progress or {}).get(self._topic.topic_id)
        if not isinstance(known, SeenProgress) or known.format != self._config.format:
            return True
        try:
            lack, splits = await self._lack(known)
        except OffsetOutOfRange:
            return True
        if not lack.progress:
            return False
        if not self._is_due(lack, splits):
            self._done.outcome = "waiting"
            return False
        return True

    async def _lack(self, progress: Mapping[int, Offset]) -> tuple[Lack, list[Split]]:
        driver, done = self._driver, self._done
        bounds = await planning.look(driver.node, self._topic)
        lack = planning.plan(self._topic, progress, bounds, driver.max_records)
        splits = [split for splits in await map_bounded(AT_ONCE, self._find, lack.ranges) for split in splits]
        oldest = oldest_ms(splits)
        done.losses |= dict.fromkeys(lack.losses)
        done.records_behind = lack.records + lack.rest
        done.behind_ms = 0 if oldest is None else max(driver.clock.now_ms() - oldest, 0)
        return lack, splits

    async def _round(self, opened: OpenTable, only_if_due: bool, dry_run: bool) -> bool:
        """Whether there may be more to do."""
        driver, done = self._driver, self._done
        state = self._own(await opened.table.load()) if dry_run else await self._prepare(opened)
        progress = {} if state is None else state.guards.progress
        if driver.progress is not None:
            driver.progress[self._topic.topic_id] = SeenProgress(progress, self._config.format)
        lack, splits = await self._lack(progress)
        oldest = oldest_ms(splits)
        if not lack.progress:
            return False
        if dry_run or state is None:
            done.outcome = "planned"
            return False
        if only_if_due and not self._is_due(lack, splits):
            done.outcome = "committed" if done.commits else "waiting"
            return False
        after = await self._commit(opened, state, lack, await self._write(opened, state, splits))
        if driver.progress is not None:
            driver.progress[self._topic.topic_id] = SeenProgress(after.guards.progress, self._config.format)
        if oldest is not None:
            done.freshness_ms = max(done.freshness_ms, driver.clock.now_ms() - oldest)
        if driver.took_ms is not None:
            driver.took_ms[self._topic.topic_id] = driver.clock.now_ms() - self._began_ms
        done.records_behind, done.behind_ms = lack.rest, 0
        return lack.rest > 0

    async def _prepare(self, opened: OpenTable) -> TableState:
        """The table is there, has its columns, and nothing is left to be done for it."""
        fields = decoder_of(ValueSpec.of(self._config)).fields
        state = self._own(await opened.table.load()) or self._own(await opened.table.create(typed(fields)))
        state = await opened.table.evolve(state, evolved(state.schema, fields))
        types = {source_of(column): column.type for column in value_fields(state.schema)}
        may_not_fit = any(not field.type.equals(types[field.name]) for field in fields)
        if self._config.value_format != "raw" or may_not_fit:
            await self._prepare_letters(opened)
        await settle(self._driver.objects, opened, state)
        return state

    async def _prepare_letters(self, opened: OpenTable) -> None:
        if self._letters_schema is None:
            self._letters_schema = opened.letters.file_schema(self._own(await opened.letters.create(DEAD_LETTERS)))

    def _own(self, state: AnyState) -> AnyState:
        return self._driver.opener.own(self._topic, self._config.format, state)

    async def _find(self, each: OffsetRange) -> list[Split]:
        log = self._driver.node.open_log(self._topic, each.tp.partition)
        return cut_by_extents([each], await find_extents(log, each.start, each.end))

    def _is_due(self, lack: Lack, splits: list[Split]) -> bool:
        """Half of the interval is for the rest: the time to the next look, and that of the work itself; more of it
        where that took more than a quarter the last time."""
        interval_ms = self._config.commit_interval_ms
        took_ms = (self._driver.took_ms or {}).get(self._topic.topic_id, 0)
        size = sum(extent.length or 0 for split in splits for extent in split.extents)
        return (
            any(
                not extent.created_at_ms for split in splits for extent in split.extents
            )  # it is old enough to be tiered
            or self._done.behind_ms >= interval_ms - max(interval_ms / 2, 2 * took_ms)
            or size >= self._config.target_file_bytes
            or lack.rest > 0
        )

    async def _write(self, opened: OpenTable, state: TableState, splits: list[Split]) -> list[RowsWritten]:
        written = await self._run_tasks(opened, state, splits)
        if any(each.lacks_letters for each in written):
            await self._prepare_letters(opened)
            written = await self._run_tasks(opened, state, splits)
        return written

    async def _run_tasks(self, opened: OpenTable, state: TableState, splits: list[Split]) -> list[RowsWritten]:
        target = self._config.target_file_bytes
        table = FilesSpec.of(opened.prefix, opened.table.file_schema(state), opened.table.has_day, target)
        letters = None
        if self._letters_schema is not None:
            letters = FilesSpec.of(opened.letters_prefix, self._letters_schema, opened.letters.has_day, target)
        value = ValueSpec.of(self._config)
        plans = [msgspec.msgpack.encode(RowsPlan(group, value, table, letters)) for group in group_splits(splits)]
        results = await run_tasks(self._driver, ROWS, plans)
        return [msgspec.msgpack.decode(result, type=RowsWritten) for result in results]

    async def _commit(self, opened: OpenTable, state: TableState, lack: Lack, written: list[RowsWritten]) -> TableState:
        driver, done = self._driver, self._done
        files = [file for each in written for file in each.files]
        dead = [file for each in written for file in each.dead_letters]
        number = None
        if dead:
            number = await put_list(driver.objects, driver.entropy, opened.prefix, state, lack.progress, dead)
        after = await opened.table.commit(state, Change(added=files, progress=lack.progress, letters=number))
        done.outcome = "committed"
        done.commits += 1
        done.files += files
        done.rows += sum(file.rows for file in files)
        done.dead_letters += sum(file.rows for file in dead)
        opaque = sum(each.opaque_batches for each in written)
        done.opaque_batches += opaque
        if opaque:
            log.warning("topic %s: %d batches can't be decoded, and are dead letters", self._topic.name, opaque)
        if dead:
            await settle(driver.objects, opened, after)
        return after
