"""A Delta table. Entries of its log are written here, by create-if-absent; deltalake reads it, and cleans it up.

**A commit** is one object, the next entry of the log:

    put _delta_log/{version + 1}.json if absent         crash before: files that nothing refers to
                                                        crash after: it is done, and the next driver sees it
    on Conflict or an unknown outcome: whose entry is it? ours: done; another's: load, `may_follow`, and try the next

Every commit has a nonce, so an entry tells whose it is, however often a store has sent it. An entry is never put under
another version before it is known that the first was not taken. What goes wrong behind the entry (a checkpoint) is made
good by the next one. What is said of columns (`naming`) is metadata of theirs, in the same entry as they are.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Collection, Mapping
from datetime import UTC, date, datetime, timedelta
from typing import TYPE_CHECKING, Any, TypeVar

from catena.errors import (
    ConfigError,
    Conflict,
    Contended,
    Corrupt,
    ObjectMissing,
    OutcomeUnknown,
    StaleView,
    StoreRefused,
    StoreUnavailable,
)
from catena.objects.base import ObjectStore
from catena.runtime import Clock, Disk, Entropy
from catena.tables import delta_actions as actions
from catena.tables.columns import DAY, METADATA, OFFSET, PARTITION, TIMESTAMP
from catena.tables.committer import Change, DataFile, Guards, Owner, Span, TableState, guards_after, may_follow
from catena.types import ABSENT, TopicId

if TYPE_CHECKING:
    import pyarrow as pa
    from deltalake import DeltaTable

log = logging.getLogger(__name__)

T = TypeVar("T")

MAX_TRIES = 20
CHECKPOINT_EVERY = 20
HOUR_MS = 3_600_000
CONFIGURATION = {
    "delta.checkpointInterval": str(CHECKPOINT_EVERY),
    "delta.logRetentionDuration": "interval 7 days",
    "delta.deletedFileRetentionDuration": "interval 7 days",
}


_EPOCH, _MICROSECOND = datetime(1970, 1, 1, tzinfo=UTC), timedelta(microseconds=1)


class DeltaCommitter:
    has_day = False

    def __init__(
        self,
        name: str,
        prefix: str,
        uri: str,
        owner: Owner,
        objects: ObjectStore,
        disk: Disk,
        clock: Clock,
        entropy: Entropy,
        options: Mapping[str, str],
    ) -> None:
        """`prefix` is in the object store what `uri` is elsewhere, and `options` is how deltalake opens that."""
        self.name = name
        self.uri = uri
        self._prefix = prefix
        self._owner = owner
        self._objects = objects
        self._disk = disk
        self._clock = clock
        self._entropy = entropy
        self._options = dict(options)

    async def load(self) -> TableState | None:
        table = await self._ask(self._open)
        return None if table is None else await self._ask(lambda: self._state(table))

    async def create(self, schema: pa.Schema) -> TableState:
        found = await self.load()
        if found is None:
            configuration = {
                **CONFIGURATION,
                actions.TOPIC: self._owner.topic,
                actions.TOPIC_ID: self._owner.topic_id,
            }
            now_ms, nonce = self._clock.now_ms(), self._entropy.hex_id()
            metadata = actions.metadata_of(nonce, _schema_json(schema), now_ms, configuration)
            await self._put(0, actions.first_entry(metadata, nonce, now_ms), nonce)
            found = await self.load()
        if found is None:
            raise StoreRefused(f"table {self.uri}: what was just made is not there; is it another store?")
        return found

    async def evolve(self, state: TableState, schema: pa.Schema) -> TableState:
        if state.schema.equals(schema, check_metadata=True):
            return state
        table = await self._ask(self._open)
        now = None if table is None else await self._ask(lambda: self._state(table))
        if table is None or now is None or not now.schema.equals(state.schema, check_metadata=True):
            raise StaleView(f"table {self.name} has got other columns meanwhile")
        known = await self._ask(table.metadata)
        now_ms, nonce = self._clock.now_ms(), self._entropy.hex_id()
        metadata = actions.metadata_of(
            str(known.id), _schema_json(schema), known.created_time or now_ms, dict(known.configuration)
        )
        if not await self._put(now.version + 1, actions.metadata_entry(metadata, nonce, now_ms), nonce):
            raise StaleView(f"table {self.name} has changed meanwhile")
        return now._replace(version=now.version + 1, schema=schema)

    async def commit(self, state: TableState, change: Change) -> TableState:
        now_ms, nonce = self._clock.now_ms(), self._entropy.hex_id()
        entry = actions.change_entry(change, self._owner.topic_id, nonce, now_ms)
        now: TableState | None = state
        for _ in range(MAX_TRIES):
            if now is None or not may_follow(state.guards, now.guards, change):
                raise StaleView(f"table {self.name} has moved on since this change was planned")
            if now is not state and change.removed:
                there = {file.path for file in await self.files()}
                if not all(file.path in there for file in change.removed):
                    raise StaleView(f"table {self.name}: another has removed the same files")
            if await self._put(now.version + 1, entry, nonce):
                done = now._replace(version=now.version + 1, guards=guards_after(now.guards, change))
                await self._checkpoint(done.version)
                return done
            now = await self.load()
        raise Contended(f"table {self.name} is changed by others all the time")

    def file_schema(self, state: TableState) -> pa.Schema:
        return state.schema.remove(state.schema.get_field_index(DAY))

    async def files(self) -> list[DataFile]:
        table = await self._ask(self._open)
        return [] if table is None else await self._ask(lambda: _files(table))

    async def expire(self, older_than_ms: int) -> int:
        """Files that were removed before, and entries of the log that nobody needs."""
        hours = max(self._clock.now_ms() - older_than_ms, 0) // HOUR_MS
        table = await self._ask(self._open)
        if table is None:
            return 0

        def clean() -> int:
            gone = table.vacuum(hours, dry_run=True, enforce_retention_duration=False)
            if gone:  # it is two entries of the log, also where there is nothing to do
                table.vacuum(hours, dry_run=False, enforce_retention_duration=False)
                table.update_incremental()
                table.create_checkpoint()
            table.cleanup_metadata()
            return len(gone)

        return await self._ask(clean)

    async def in_use(self, paths: Collection[str]) -> set[str]:
        table = await self._ask(self._open)
        if table is None:
            return set()

        def referred() -> set[str]:
            removed = table.vacuum(0, dry_run=True, enforce_retention_duration=False)
            return {*(file.path for file in _files(table)), *removed}

        return set(paths) & await self._ask(referred)

    async def close(self) -> None:
        pass

    def _open(self) -> DeltaTable | None:
        from deltalake import DeltaTable
        from deltalake.exceptions import TableNotFoundError

        try:
            return DeltaTable(self.uri, storage_options=self._options or None)
        except TableNotFoundError:
            return None

    def _state(self, table: DeltaTable) -> TableState:
        import pyarrow as pa

        protocol = table.protocol()
        if protocol.min_reader_version > 1 or protocol.min_writer_version > 2:
            raise StoreRefused(
                f"table {self.uri} was upgraded to reader version {protocol.min_reader_version} and writer version "
                f"{protocol.min_writer_version}, which this version of Catena can't write"
            )
        configuration = table.metadata().configuration
        topic_id = TopicId(configuration.get(actions.TOPIC_ID, ""))
        apps = {number: actions.progress_app(topic_id, number) for number in range(self._owner.partitions)}
        found = {number: table.transaction_version(app) for number, app in apps.items()}
        guards = Guards(
            {number: offset for number, offset in found.items() if offset is not None},
            table.transaction_version(actions.LETTERS) or 0,
            table.transaction_version(actions.FENCE) or 0,
        )
        return TableState(table.version(), topic_id, pa.schema(table.schema().to_arrow()), guards)

    async def _put(self, version: int, entry: bytes, nonce: str) -> bool:
        """Whether the entry has this version now; else another has it."""
        key = actions.entry_key(self._prefix, version)
        is_unknown = False
        for _ in range(MAX_TRIES):
            try:
                await self._objects.put(key, [entry], ABSENT)
                return True
            except (Conflict, OutcomeUnknown):
                is_unknown = True
                try:
                    return actions.nonce_of((await self._objects.get(key)).data) == nonce
                except ObjectMissing:
                    continue  # not there yet: the same again, which is applied once at the most
                except StoreUnavailable as error:
                    raise OutcomeUnknown(f"it is not known whether {key} was written: {error}") from error
            except StoreUnavailable as error:
                if is_unknown:
                    raise OutcomeUnknown(f"it is not known whether {key} was written: {error}") from error
                raise
        raise OutcomeUnknown(f"it is not known whether {key} was written")

    async def _checkpoint(self, version: int) -> None:
        if version % CHECKPOINT_EVERY:
            return
        try:
            table = await self._ask(self._open)
            if table is not None:
                await self._ask(table.create_checkpoint)
        except StoreUnavailable as error:
            log.warning("table %s goes on without a checkpoint at version %s: %s", self.name, version, error)

    async def _ask(self, question: Callable[[], T]) -> T:
        """deltalake blocks, and has errors of its own."""
        from deltalake.exceptions import DeltaError, DeltaProtocolError

        try:
            return await self._disk.run(question)
        except DeltaProtocolError as error:
            raise StoreRefused(f"table {self.uri} can't be read: {error}") from error
        except (DeltaError, OSError) as error:
            raise StoreUnavailable(f"table {self.uri} can't be read: {error}") from error
        except (ValueError, KeyError) as error:
            raise Corrupt(f"table {self.uri} can't be read: {type(error).__name__}: {error}") from error


def _schema_json(schema: pa.Schema) -> str:
    from deltalake import Schema

    try:
        return str(Schema.from_arrow(schema).to_json())
    except Exception as error:  # of no type of its own: fields of a struct that differ in case only, ...
        reason = str(error).partition("\n")[0]
        raise ConfigError(f"the schema has columns that a Delta table can't have: {reason}") from error


def _files(table: DeltaTable) -> list[DataFile]:
    import pyarrow as pa

    rows: list[dict[str, Any]] = pa.table(table.get_add_actions(flatten=True)).to_pylist()
    return [
        DataFile(row["path"], _day(row[f"partition.{DAY}"]), row["num_records"] or 0, row["size_bytes"], _span(row))
        for row in rows
    ]


def _day(value: date | None) -> str:
    return "" if value is None else value.isoformat()


def _span(row: Mapping[str, Any]) -> Span | None:
    ends: list[tuple[Any, Any]] = [
        (row.get(f"min.{METADATA}.{name}"), row.get(f"max.{METADATA}.{name}"))
        for name in (PARTITION, OFFSET, TIMESTAMP)
    ]
    if any(least is None or greatest is None for least, greatest in ends):
        return None
    (first, last) = ends[2]
    times = (first - _EPOCH) // _MICROSECOND, (last - _EPOCH) // _MICROSECOND
    return Span(ends[0], ends[1], times)
