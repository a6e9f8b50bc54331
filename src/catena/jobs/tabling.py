"""Keep the tables of topics; see `catena.tables`."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from importlib.util import find_spec
from typing import TYPE_CHECKING, NamedTuple

from catena.config import Settings
from catena.errors import ConfigError, UnknownTopic
from catena.jobs.opening import EVERYTHING, OpenWork, Which, on_spark, open_site
from catena.node import Node
from catena.pipeline.renewed_work import RenewedWork
from catena.pipeline.service import Ran, ShouldStop
from catena.pipeline.set_aside import SetAside
from catena.pipeline.site import Site
from catena.pipeline.work import Executor, Table, TaskFailed, Usage, Work, used
from catena.runtime import Clock, Disk, SystemClock, SystemEntropy
from catena.runtime.tasks import map_bounded
from catena.tables.figures import TableFigures
from catena.tables.report import TableReport, TablesReport, UpkeepReport
from catena.tables.settings import TableConfig
from catena.types import Offset, TopicId
from catena.virtual_log.topics import TopicRecord, list_topics

if TYPE_CHECKING:
    from catena.tables.building import Driver

TABLES_AT_ONCE = 4
RUN_S = 300.0
"""After that a run takes nothing on any more."""
LOOK_S = 0.5
"""So often it is seen that the last one is not at work any more."""


LIBRARIES = ("pyarrow", "deltalake", "pyiceberg", "fastavro")


def check_libraries() -> None:
    """They are large, so nothing here imports them before they are needed."""
    missing = [name for name in LIBRARIES if find_spec(name) is None]
    if missing:
        raise ConfigError(
            f"tables need {', '.join(missing)}, which come with an extra: pip install 'catena-log[spark,tables]'"
        )


class TableTopic(NamedTuple):
    topic: TopicRecord
    config: TableConfig


class Seen(NamedTuple):
    """What is known of tables from one run to the next."""

    names: dict[tuple[str, ...], str]
    progress: dict[TopicId, Mapping[int, Offset]]
    took_ms: dict[TopicId, int]


async def find_tables(site: Site, which: Which) -> list[TableTopic]:
    """Topics that have a table, by name. Raises UnknownTopic, and ConfigError if one is asked for that has none."""
    found = await _all(site)
    if which.topic is not None:
        found = [each for each in found if each.topic.name == which.topic]
        if not found:
            raise UnknownTopic(which.topic)
        if not found[0].config.enable:
            raise ConfigError(
                f"topic {which.topic} has no table: `catena topic config {which.topic} table.enable=true` gives it one"
            )
    return [each for each in found if each.config.enable]


async def has_tables(settings: Settings, which: Which = EVERYTHING) -> bool:
    async with open_site(settings, SystemClock(), SystemEntropy()) as (site, _):
        return any(each.config.enable and which.topic in (None, each.topic.name) for each in await _all(site))


async def _all(site: Site) -> list[TableTopic]:
    return [TableTopic(topic, TableConfig.of(topic.configs)) for topic in await list_topics(site.meta)]


@asynccontextmanager
async def open_driver(
    settings: Settings,
    site: Site,
    work: Work | None,
    should_stop: Callable[[], bool] = lambda: False,
    seen: Seen | None = None,
) -> AsyncIterator[Driver]:
    check_libraries()
    from catena.tables.building import Driver
    from catena.tables.storage import Storage, TableOpener

    node = await Node.start(settings, site.meta, site.objects, site.clock, site.entropy)
    disk = Disk()
    names, progress, took_ms = seen or (None, None, {})
    opener = TableOpener(Storage.of(settings), site.objects, disk, site.clock, site.entropy, names)
    try:
        yield Driver(node, site.objects, site.clock, site.entropy, work, opener, should_stop, progress, took_ms=took_ms)
    finally:
        await opener.close()
        disk.close()
        await node.close()


async def build_tables(
    driver: Driver, tables: Sequence[TableTopic], only_if_due: bool = False, dry_run: bool = False
) -> list[TableReport]:
    from catena.tables.building import TableBuilder

    async def build(each: TableTopic) -> TableReport:
        return await TableBuilder(driver, each.topic, each.config).run(only_if_due, dry_run)

    return await map_bounded(TABLES_AT_ONCE, build, tables)


async def keep_up_tables(driver: Driver, settings: Settings, tables: Sequence[TableTopic]) -> list[list[UpkeepReport]]:
    """Of each, the table and its dead letters."""

    from catena.tables.upkeep import TableUpkeep

    async def keep_up(each: TableTopic) -> list[UpkeepReport]:
        return await TableUpkeep(driver, each.topic, each.config, settings.pipeline.tables).run()

    return await map_bounded(TABLES_AT_ONCE, keep_up, tables)


class TablePasses:
    """Of the service: tables that are due are built; those that are gone are forgotten.

    **No table waits for another.** A run goes on for as long as some table is being built; meanwhile the others are
    looked at again, as often as ever, and built when they are due. One that has much to catch up with takes turns: it
    is one commit each, and then those come first that were not looked at for longer. That goes on for `RUN_S`; then
    each that waits has its turn, and the run ends: the service tells how it went, and looks at the stores anew.
    """

    def __init__(self, settings: Settings, site: Site, work: RenewedWork, which: Which) -> None:
        self._settings = settings
        self._site = site
        self._work = work
        self._which = which
        self._seen = Seen({}, {}, {})
        self._set_aside = SetAside(site.clock)
        """Tables that keep failing, each by the first partition of its topic."""
        self.figures: dict[str, TableFigures] = {}
        """By topic."""

    async def build(self, should_stop: ShouldStop) -> Ran:
        found = await self._find()
        if not found:
            return Ran()
        await self._work.ready()
        async with open_driver(self._settings, self._site, self._work, should_stop, self._seen) as driver:
            turns = _Turns(found, self._site.clock, self._settings.pipeline.service.tables_every_ms / 1000)

            async def work(_: int) -> None:
                while not should_stop() and (each := await turns.next(self._find)) is not None:
                    turns.over(each, is_behind=await self._build_one(driver, each))

            await map_bounded(TABLES_AT_ONCE, work, range(TABLES_AT_ONCE))
        for tp, failing in self._set_aside.all.items():
            return Ran("partly", f"table of {tp.topic}: {failing.error}")
        return Ran("stopped" if should_stop() else "good")

    async def _build_one(self, driver: Driver, each: TableTopic) -> bool:
        """Whether there is more to do right away."""
        tp = each.topic.partition(0)
        if self._set_aside.is_aside(tp):
            return False
        (report,) = await build_tables(driver, [each], only_if_due=True)
        self.figures.setdefault(report.topic, TableFigures()).add(report)
        if report.outcome == "failed":
            self._set_aside.failed(tp, report.error)
        else:
            self._set_aside.succeeded(tp)
        return report.outcome == "committed" and report.records_behind > 0

    async def keep_up(self, should_stop: ShouldStop) -> Ran:
        found = await self._find()
        if not found:
            return Ran()
        await self._work.ready()
        async with open_driver(self._settings, self._site, self._work, should_stop, self._seen) as driver:
            reports = await keep_up_tables(driver, self._settings, found)
        failed = ""
        for each, of_table in zip(found, reports, strict=True):
            # Whoever builds meanwhile may have found that it has no table any more.
            self.figures.setdefault(each.topic.name, TableFigures()).add_upkeep(of_table)
            failed = failed or next((f"{report.table}: {report.error}" for report in of_table if report.error), "")
        return Ran("partly", failed) if failed else Ran("stopped" if should_stop() else "good")

    async def _find(self) -> list[TableTopic]:
        found = [each for each in await _all(self._site) if self._which.topic in (None, each.topic.name)]
        enabled = [each for each in found if each.config.enable]
        self._set_aside.keep({each.topic.partition(0) for each in enabled})
        ids = {each.topic.topic_id for each in enabled}
        for topic_id in self._seen.progress.keys() - ids:
            del self._seen.progress[topic_id]
            self._seen.took_ms.pop(topic_id, None)
        self.figures = {each.topic.name: self.figures.get(each.topic.name, TableFigures()) for each in enabled}
        return enabled


class _Turns:
    """Whose turn it is: who was not looked at for longest, and is not at work."""

    def __init__(self, tables: Sequence[TableTopic], clock: Clock, every_s: float) -> None:
        self._clock = clock
        self._every_s = every_s
        self._waiting = {each.topic.topic_id: each for each in tables}
        """In this order."""
        self._at_work: dict[TopicId, None] = {}
        self._looked_at = clock.monotonic()
        self._ends_at = self._looked_at + RUN_S

    async def next(self, find: Callable[[], Awaitable[list[TableTopic]]]) -> TableTopic | None:
        """None: all were looked at, and nobody is at work any more, or it has taken long enough."""
        while not self._waiting:
            if not self._at_work or self._is_late:
                return None
            rest_s = self._looked_at + self._every_s - self._clock.monotonic()
            if rest_s > 0:
                await self._clock.sleep(min(rest_s, LOOK_S))
                continue
            self._looked_at = self._clock.monotonic()
            for each in await find():
                if each.topic.topic_id not in self._at_work:
                    self._waiting.setdefault(each.topic.topic_id, each)
        each = self._waiting.pop(next(iter(self._waiting)))
        self._at_work[each.topic.topic_id] = None
        return each

    def over(self, each: TableTopic, is_behind: bool) -> None:
        del self._at_work[each.topic.topic_id]
        if is_behind and not self._is_late:
            self._waiting[each.topic.topic_id] = each

    @property
    def _is_late(self) -> bool:
        return self._clock.monotonic() >= self._ends_at


class _LateWork:
    """Opened by the first task: where there is none, Spark is not even started, which takes longer than all else."""

    def __init__(self, open_work: OpenWork, opened: AsyncExitStack) -> None:
        self._open = open_work
        self._opened = opened
        self._turn = asyncio.Lock()
        self._work: Work | None = None

    async def run(
        self, task: str, plans: Sequence[bytes], done: Callable[[int, bytes | TaskFailed], None]
    ) -> list[bytes | TaskFailed]:
        return await (await self._ready()).run(task, plans, done) if plans else []

    @asynccontextmanager
    async def table(self, task: str, plans: Sequence[bytes]) -> AsyncIterator[Table]:
        async with (await self._ready()).table(task, plans) as table:
            yield table

    async def _ready(self) -> Work:
        async with self._turn:
            if self._work is None:
                self._work = await self._opened.enter_async_context(self._open())
            return self._work

    @property
    def usage(self) -> Mapping[Executor, Usage]:
        return {} if self._work is None else self._work.usage


@asynccontextmanager
async def _opened_late(open_work: OpenWork) -> AsyncIterator[Work]:
    async with AsyncExitStack() as opened:
        yield _LateWork(open_work, opened)


async def tables(
    settings: Settings,
    which: Which = EVERYTHING,
    dry_run: bool = False,
    open_work: OpenWork | None = None,
    should_stop: Callable[[], bool] = lambda: False,
) -> TablesReport:
    """All tables are brought up to the tails of their topics, and then tidied."""
    clock, entropy = SystemClock(), SystemEntropy()
    async with open_site(settings, clock, entropy) as (site, requests):
        started_at_ms, before = clock.now_ms(), requests.snapshot()
        found = await find_tables(site, which)
        usage: dict[Executor, Usage] = {}
        upkeep: list[UpkeepReport] = []
        reports: list[TableReport] = []
        if found and dry_run:
            async with open_driver(settings, site, None, should_stop) as driver:
                reports = await build_tables(driver, found, dry_run=True)
        elif found:
            async with (
                _opened_late(open_work or on_spark(settings)) as work,
                open_driver(settings, site, work, should_stop) as driver,
            ):
                reports = await build_tables(driver, found)
                if not should_stop():
                    upkeep = [each for of_table in await keep_up_tables(driver, settings, found) for each in of_table]
                usage = dict(work.usage)
        return TablesReport(
            started_at_ms=started_at_ms,
            duration_ms=clock.now_ms() - started_at_ms,
            dry_run=dry_run,
            tables=tuple(reports),
            upkeep=tuple(upkeep),
            executors={str(executor): each for executor, each in usage.items()},
            driver=used(before, requests.snapshot(), 0),
        )
