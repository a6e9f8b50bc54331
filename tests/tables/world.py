"""A log in a folder, and drivers that keep its tables with tasks in this process."""

from __future__ import annotations

from collections.abc import AsyncIterator, Collection, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any, NamedTuple

import msgspec
import pyarrow as pa

import catena
from catena.config import Settings, load
from catena.objects.counted import CountedObjects
from catena.pipeline.settings import TablesSettings
from catena.pipeline.tasks import TaskContext
from catena.pipeline.work import InlineWork
from catena.runtime import Disk, SystemClock, SystemEntropy
from catena.tables.building import Driver, TableBuilder
from catena.tables.committer import Change, Committer, DataFile, OpenTable, Owner, TableState
from catena.tables.report import TableReport, UpkeepReport
from catena.tables.settings import TableConfig, TableFormat
from catena.tables.storage import Storage, TableOpener
from catena.tables.tasks import run_task
from catena.tables.upkeep import TableUpkeep
from catena.testing.faults import Faults, FaultyObjects
from catena.virtual_log.topics import TopicRecord

TOPIC = "orders"
START_MS = 1_700_000_000_000
"""2023-11-14, 22:13 UTC."""
HOUR_MS = 3_600_000


class Row(NamedTuple):
    partition: int
    offset: int


class FaultyCommitter:
    """A table whose driver dies or sleeps: where its library writes by itself, no store of ours can tell."""

    def __init__(self, committer: Committer, faults: Faults) -> None:
        self._committer = committer
        self._faults = faults
        self.name, self.uri, self.has_day = committer.name, committer.uri, committer.has_day
        self.file_schema = committer.file_schema

    async def load(self) -> TableState | None:
        self._faults.taken["load"] += 1
        return await self._committer.load()

    async def create(self, schema: pa.Schema) -> TableState:
        return await self._faults.take("create", lambda: self._committer.create(schema))

    async def evolve(self, state: TableState, schema: pa.Schema) -> TableState:
        return await self._faults.take("evolve", lambda: self._committer.evolve(state, schema))

    async def commit(self, state: TableState, change: Change) -> TableState:
        return await self._faults.take("commit", lambda: self._committer.commit(state, change))

    async def files(self) -> list[DataFile]:
        return await self._committer.files()

    async def expire(self, older_than_ms: int) -> int:
        return await self._faults.take("expire", lambda: self._committer.expire(older_than_ms))

    async def in_use(self, paths: Collection[str]) -> set[str]:
        return await self._committer.in_use(paths)

    async def close(self) -> None:
        await self._committer.close()


class FaultyOpener(TableOpener):
    faults: Faults

    def committer(self, name: str, owner: Owner, kind: TableFormat) -> Committer:
        return FaultyCommitter(super().committer(name, owner, kind), self.faults)


class World:
    def __init__(self, log: catena.Log, settings: Settings, disk: Disk) -> None:
        self.log = log
        self.settings = settings
        self._disk = disk
        self._clock, self._entropy = SystemClock(), SystemEntropy()
        self._openers: list[TableOpener] = []
        self._names: dict[tuple[str, ...], str] = {}

    async def close(self) -> None:
        for opener in self._openers:
            await opener.close()

    async def create(self, partitions: int = 1, **configs: str) -> None:
        """`value_format` stands for table.value.format."""
        await self.log.create_topic(TOPIC, partitions)
        await self.configure(enable="true", **configs)

    async def configure(self, **configs: str) -> None:
        change = {f"table.{name.replace('_', '.')}": value for name, value in configs.items()}
        await self.log.node.topics.alter_configs(TOPIC, change)

    async def append(self, values: Sequence[bytes | str | None], partition: int = 0, at_ms: int = START_MS) -> None:
        messages = [catena.Message(value, key="k", headers={"h": b"1"}, timestamp_ms=at_ms) for value in values]
        await self.log.append_batch(TOPIC, messages, partition=partition)

    async def topic(self) -> TopicRecord:
        return await self.log.topic(TOPIC)

    def driver(self, faults: Faults | None = None, max_records: int = 1000, is_new: bool = False) -> Driver:
        """One that `is_new` looks for the names of tables itself."""
        faults = faults or Faults()
        objects = CountedObjects(FaultyObjects(self.log.node.objects, faults), self._clock)
        # One task at a time: then the steps have the same numbers each time.
        work = InlineWork(TaskContext(objects, self._clock, self._entropy, objects), run_task, at_once=1)
        names = {} if is_new else self._names
        opener = FaultyOpener(Storage.of(self.settings), objects, self._disk, self._clock, self._entropy, names)
        opener.faults = faults
        self._openers.append(opener)
        return Driver(self.log.node, objects, self._clock, self._entropy, work, opener, max_records=max_records)

    async def build(self, driver: Driver | None = None, **options: Any) -> TableReport:
        topic = await self.topic()
        return await TableBuilder(driver or self.driver(), topic, TableConfig.of(topic.configs)).run(**options)

    async def keep_up(self, driver: Driver | None = None, **settings: int) -> list[UpkeepReport]:
        topic = await self.topic()
        own = msgspec.convert({"grace_ms": 1, "keep_states_ms": 0, **settings}, TablesSettings)
        return await TableUpkeep(driver or self.driver(), topic, TableConfig.of(topic.configs), own).run()

    async def opened(self) -> OpenTable:
        topic = await self.topic()
        return await self.driver().opener.open(topic, TableConfig.of(topic.configs).format)

    async def rows(self, letters: bool = False) -> pa.Table:
        """Of the table, as its own library reads it, in the order of partition and offset."""
        opened = await self.opened()
        committer = opened.letters if letters else opened.table
        return sorted_rows(
            read_table(self.settings, committer.uri, TableConfig.of((await self.topic()).configs).format)
        )

    async def offsets(self, letters: bool = False) -> list[Row]:
        return [Row(each["partition"], each["offset"]) for each in (await self.rows(letters))["_catena"].to_pylist()]


def read_table(settings: Settings, uri: str, kind: str) -> pa.Table:
    storage = Storage.of(settings)
    if kind == "delta":
        from deltalake import DeltaTable

        return DeltaTable(uri, storage_options=storage.delta_options or None).to_pyarrow_table()
    from catena.tables.iceberg import open_catalog

    catalog = open_catalog(storage.catalog, storage.iceberg_properties)
    try:
        return catalog.load_table(("catena", uri.rpartition("/")[2])).scan().to_arrow()
    finally:
        catalog.close()


def sorted_rows(rows: pa.Table) -> pa.Table:
    metadata = rows["_catena"].combine_chunks()
    keys = pa.table({name: metadata.field(name) for name in ("partition", "offset")})
    return rows.take(pa.compute.sort_indices(keys, [("partition", "ascending"), ("offset", "ascending")]))


@asynccontextmanager
async def opened_world(folder: Path) -> AsyncIterator[World]:
    disk = Disk(2)
    try:
        async with catena.open(folder) as log:
            world = World(log, load(data=str(folder)), disk)
            yield world
            await world.close()
    finally:
        disk.close()
