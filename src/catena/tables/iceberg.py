"""An Iceberg table in a SQL catalog: pyiceberg writes its metadata, and the catalog's row decides.

**A commit** is a snapshot and the table's properties, which hold the guards, in one new metadata file:

    write manifests, a list of them, a metadata file     crash: files that nothing refers to
    update the catalog's row, if it is what it was       crash after: it is done, and the next driver sees it

Guards are properties, not part of a snapshot, so they outlive the expiry of snapshots and what other programs do.
Properties alone are not conditional in Iceberg; so each change of a guard comes with a snapshot, maybe an empty one,
and is refused unless the snapshot before it is still the last one. Pyiceberg's own retries are switched off: they would
append the same files behind whatever another has committed.

Files carry the ids of their columns, and the day as a column, as Iceberg wants it. What is said of columns (`naming`)
is a property, by their ids, which never change, in the same metadata file as the columns. New columns are conditional
on those before; where they stay and only more is said of them, an empty snapshot makes it so.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from contextlib import suppress
from datetime import UTC, date, datetime, timedelta
from typing import TYPE_CHECKING, Any, TypeVar

from catena.errors import ConfigError, Contended, Corrupt, NeedsOperator, OutcomeUnknown, StaleView, StoreUnavailable
from catena.runtime import Clock, Disk, Entropy
from catena.tables.columns import DAY, METADATA, OFFSET, PARTITION, TIMESTAMP
from catena.tables.committer import Change, DataFile, Guards, Owner, Span, TableState, guards_after, may_follow
from catena.tables.naming import additions, field_of, labelled, within
from catena.types import TopicId

if TYPE_CHECKING:
    import pyarrow as pa
    from pyiceberg.catalog import Catalog
    from pyiceberg.table import Table

T = TypeVar("T")

NAMESPACE = "catena"
MAX_TRIES = 20
TOPIC, TOPIC_ID, NONCE = "catena.topic", "catena.topic-id", "catena.nonce"
PROGRESS, LETTERS, FENCE, FIELDS = "catena.progress", "catena.dead-letters", "catena.fence", "catena.fields"
PROPERTIES = {
    "commit.retry.num-retries": "0",
    "write.metadata.delete-after-commit.enabled": "true",
    "write.metadata.previous-versions-max": "20",
    "write.parquet.compression-codec": "zstd",
}
_EPOCH = date(1970, 1, 1)


def open_catalog(uri: str, properties: Mapping[str, str]) -> Catalog:
    """Whoever opened it closes it."""
    from pyiceberg.catalog.sql import SqlCatalog
    from sqlalchemy.exc import IntegrityError, OperationalError, ProgrammingError

    if not uri:
        raise ConfigError("setting pipeline.tables.catalog: say where the catalog of Iceberg tables is")
    # Its tables are made apart: a catalog that can't be made leaves its connection open.
    catalog = SqlCatalog(NAMESPACE, uri=uri, init_catalog_tables="false", **properties)
    for _ in range(MAX_TRIES):
        with suppress(OperationalError, IntegrityError, ProgrammingError):  # of several that make them at once
            catalog.create_tables()
            return catalog
    try:
        catalog.create_tables()
    except BaseException:
        catalog.close()
        raise
    return catalog


class IcebergCommitter:
    has_day = True

    def __init__(
        self,
        name: str,
        uri: str,
        owner: Owner,
        catalog: Callable[[], Catalog],
        disk: Disk,
        clock: Clock,
        entropy: Entropy,
    ) -> None:
        self.name = name
        self.uri = uri
        self._owner = owner
        self._catalog = catalog
        self._disk = disk
        self._clock = clock
        self._entropy = entropy
        self._location = uri if "://" in uri else f"file://{uri}"
        self._opened = ""
        """The metadata file that was read last."""

    async def load(self) -> TableState | None:
        return await self._ask(self._load)

    async def create(self, schema: pa.Schema) -> TableState:
        def create() -> TableState:
            from pyiceberg.exceptions import NamespaceAlreadyExistsError, TableAlreadyExistsError
            from sqlalchemy.exc import IntegrityError

            found = self._load()
            if found is None:
                with suppress(NamespaceAlreadyExistsError, IntegrityError):  # the latter: of two at once
                    self._catalog().create_namespace(NAMESPACE)
                with suppress(TableAlreadyExistsError):
                    self._create(schema)
                found = self._load()
            assert found is not None, "a table that was just made is not there"
            return found

        return await self._ask(create)

    async def evolve(self, state: TableState, schema: pa.Schema) -> TableState:
        if state.schema.equals(schema, check_metadata=True):
            return state
        nonce = self._entropy.hex_id()

        def evolve() -> TableState:
            table = self._open()
            if not _state(table).schema.equals(state.schema, check_metadata=True):
                raise StaleView(f"table {self.name} has got other columns meanwhile")
            added = list(additions(state.schema, schema))
            with table.transaction() as transaction:
                if added:
                    with transaction.update_schema() as update:
                        for path, column in added:
                            update.add_column(path, _iceberg_type(column))
                else:
                    with transaction.update_snapshot(snapshot_properties={NONCE: nonce}).fast_append():
                        pass
                transaction.set_properties({FIELDS: _fields_json(transaction.table_metadata.schema(), schema)})
            return _state(table)

        return await self._ask(evolve)

    async def commit(self, state: TableState, change: Change) -> TableState:
        nonce = self._entropy.hex_id()

        def attempt() -> TableState | None:
            """None: another was faster."""
            from pyiceberg.exceptions import CommitFailedException, ValidationException
            from sqlalchemy.exc import SQLAlchemyError

            table = self._open()
            now = _state(table)
            if not may_follow(state.guards, now.guards, change):
                raise StaleView(f"table {self.name} has moved on since this change was planned")
            try:
                self._apply(table, now, change, nonce)
            except CommitFailedException:
                return None
            except ValidationException as error:
                raise StaleView(f"table {self.name}: another has removed the same files: {error}") from error
            except SQLAlchemyError as error:
                raise OutcomeUnknown(f"it is not known whether table {self.name} was committed: {error}") from error
            return _state(table)

        for _ in range(MAX_TRIES):
            done = await self._ask(attempt)
            if done is not None:
                return done
        raise Contended(f"table {self.name} is changed by others all the time")

    def file_schema(self, state: TableState) -> pa.Schema:
        return state.schema

    async def files(self) -> list[DataFile]:
        def files() -> list[DataFile]:
            table = self._open()
            snapshot = table.current_snapshot()
            ids = _span_ids(table)
            return [] if snapshot is None else [self._known(file, ids) for file in _data_files(table, snapshot)]

        return await self._ask(files)

    async def expire(self, older_than_ms: int) -> int:
        """Manifests that only such states have are deleted with them; their data files are orphans then."""

        def expire() -> int:
            table = self._open()
            before = {snapshot.snapshot_id: snapshot for snapshot in table.metadata.snapshots}
            files_before = {path for snapshot in before.values() for path in _metadata_files(table, snapshot)}
            expiring = table.maintenance.expire_snapshots().older_than(
                datetime.fromtimestamp(older_than_ms / 1000, UTC)
            )
            expiring.commit()
            table = self._open()
            gone = len(before.keys() - {snapshot.snapshot_id for snapshot in table.metadata.snapshots})
            if gone:
                kept = {path for snapshot in table.metadata.snapshots for path in _metadata_files(table, snapshot)}
                for path in sorted(files_before - kept):
                    table.io.delete(path)
            return gone

        return await self._ask(expire)

    async def in_use(self, paths: Collection[str]) -> set[str]:
        def referred() -> set[str]:
            table = self._open()
            found = {file.file_path for snapshot in table.metadata.snapshots for file in _data_files(table, snapshot)}
            return {self._relative(path) for path in found}

        return set(paths) & await self._ask(referred)

    async def close(self) -> None:
        pass

    def _load(self) -> TableState | None:
        from pyiceberg.exceptions import NoSuchTableError

        try:
            return _state(self._open())
        except NoSuchTableError:
            return None

    def _open(self) -> Table:
        table = self._catalog().load_table((NAMESPACE, self.name))
        self._opened = table.metadata_location
        return table

    def _has_moved(self) -> bool:
        before = self._opened
        with suppress(FileNotFoundError):
            self._open()
        return self._opened != before

    def _create(self, schema: pa.Schema) -> None:
        from pyiceberg.partitioning import PartitionField, PartitionSpec
        from pyiceberg.schema import assign_fresh_schema_ids
        from pyiceberg.transforms import IdentityTransform

        fresh = assign_fresh_schema_ids(_iceberg_schema(schema))
        by_day = PartitionField(fresh.find_field(DAY).field_id, 1000, IdentityTransform(), DAY)
        properties = {
            **PROPERTIES,
            TOPIC: self._owner.topic,
            TOPIC_ID: self._owner.topic_id,
            FIELDS: _fields_json(fresh, schema),
        }
        self._catalog().create_table(
            (NAMESPACE, self.name), fresh, self._location, PartitionSpec(by_day), properties=properties
        )

    def _apply(self, table: Table, now: TableState, change: Change, nonce: str) -> None:
        after = guards_after(now.guards, change)
        known = {}
        if change.removed:
            snapshot = table.current_snapshot()
            known = {} if snapshot is None else {file.file_path: file for file in _data_files(table, snapshot)}
        removed = [known.get(f"{self._location}/{file.path}") for file in change.removed]
        if None in removed:
            raise StaleView(f"table {self.name}: another has removed the same files")
        with table.transaction() as transaction:
            transaction.set_properties(
                {
                    PROGRESS: json.dumps({str(number): at for number, at in sorted(after.progress.items())}),
                    LETTERS: str(after.letters),
                    FENCE: str(after.fence),
                }
            )
            update = transaction.update_snapshot(snapshot_properties={NONCE: nonce})
            with update.overwrite() if change.removed else update.fast_append() as snapshot:
                for old in removed:
                    snapshot.delete_data_file(old)
                for file in change.added:
                    snapshot.append_data_file(self._described(table, file))

    def _described(self, table: Table, file: DataFile) -> Any:
        from pyiceberg.conversions import to_bytes
        from pyiceberg.manifest import DataFile as IcebergFile
        from pyiceberg.manifest import DataFileContent, FileFormat
        from pyiceberg.typedef import Record

        lower, upper = {}, {}
        if file.span is not None:
            ends = (file.span.partition, file.span.offset, file.span.timestamp_us)
            for (field_id, kind), (least, greatest) in zip(_span_ids(table), ends, strict=True):
                lower[field_id], upper[field_id] = to_bytes(kind, least), to_bytes(kind, greatest)
        return IcebergFile.from_args(
            content=DataFileContent.DATA,
            file_path=f"{self._location}/{file.path}",
            file_format=FileFormat.PARQUET,
            partition=Record((date.fromisoformat(file.day) - _EPOCH).days),
            record_count=file.rows,
            file_size_in_bytes=file.bytes,
            column_sizes={},
            value_counts=dict.fromkeys(lower, file.rows),
            null_value_counts=dict.fromkeys(lower, 0),
            nan_value_counts={},
            lower_bounds=lower,
            upper_bounds=upper,
            split_offsets=None,
            sort_order_id=None,
            spec_id=table.metadata.default_spec_id,
            equality_ids=None,
            key_metadata=None,
        )

    def _known(self, file: Any, ids: list[tuple[int, Any]]) -> DataFile:
        from pyiceberg.conversions import from_bytes

        day = file.partition[0]
        lower, upper = file.lower_bounds or {}, file.upper_bounds or {}
        span = None
        if all(field_id in lower and field_id in upper for field_id, _ in ids):
            ends = [(from_bytes(kind, lower[each]), from_bytes(kind, upper[each])) for each, kind in ids]
            span = Span(*ends)
        return DataFile(
            self._relative(file.file_path),
            "" if day is None else (_EPOCH + timedelta(days=day)).isoformat(),
            file.record_count,
            file.file_size_in_bytes,
            span,
        )

    def _relative(self, path: str) -> str:
        return path.removeprefix(f"{self._location}/")

    async def _ask(self, question: Callable[[], T]) -> T:
        """Pyiceberg blocks, and has errors of its own and of others."""
        from pyiceberg.exceptions import CommitFailedException, NoSuchTableError, RESTError, ValidationError
        from sqlalchemy.exc import SQLAlchemyError

        try:
            return await self._disk.run(question)
        except CommitFailedException as error:
            raise StaleView(f"table {self.name} has changed meanwhile: {error}") from error
        except NoSuchTableError as error:
            raise NeedsOperator(f"table {self.name} is not in the catalog any more: {error}") from error
        except FileNotFoundError as error:
            if await self._ask(self._has_moved):
                raise StaleView(f"table {self.name} has moved on, and what it was has expired: {error}") from error
            raise StoreUnavailable(f"table {self.name}: {error}") from error
        except (SQLAlchemyError, OSError, RESTError) as error:
            raise StoreUnavailable(f"table {self.name}: {error}") from error
        except (ValidationError, ValueError, KeyError) as error:
            raise Corrupt(f"table {self.name} can't be read: {type(error).__name__}: {error}") from error


def _state(table: Table) -> TableState:
    properties = table.metadata.properties
    progress = {int(number): at for number, at in json.loads(properties.get(PROGRESS, "{}")).items()}
    guards = Guards(progress, int(properties.get(LETTERS, "0")), int(properties.get(FENCE, "0")))
    snapshot = table.current_snapshot()
    version = 0 if snapshot is None else snapshot.snapshot_id
    return TableState(version, TopicId(properties.get(TOPIC_ID, "")), _arrow_schema(table), guards)


def _arrow_schema(table: Table) -> pa.Schema:
    """With the ids of columns and what they hold, and the day last."""
    import pyarrow as pa
    from pyiceberg.io.pyarrow import schema_to_pyarrow

    held = json.loads(table.metadata.properties.get(FIELDS, "{}"))
    fields = [_made_ours(field, held) for field in schema_to_pyarrow(table.schema())]
    return pa.schema(sorted(fields, key=lambda field: field.name == DAY))


def _made_ours(field: pa.Field, held: Mapping[str, str]) -> pa.Field:
    """Pyiceberg has types for gigabytes in one batch; others do not read them all."""
    import pyarrow as pa

    kind = field.type
    if pa.types.is_large_string(kind):
        kind = pa.string()
    elif pa.types.is_large_binary(kind):
        kind = pa.binary()
    elif pa.types.is_list(kind) or pa.types.is_large_list(kind):
        kind = pa.list_(_made_ours(kind.value_field, held))
    elif pa.types.is_map(kind):
        kind = pa.map_(_made_ours(kind.key_field, held), _made_ours(kind.item_field, held))
    elif pa.types.is_struct(kind):
        kind = pa.struct([_made_ours(kind.field(number), held) for number in range(kind.num_fields)])
    name = held.get(_id_of(field))
    made = field.with_type(kind)
    return made if name is None else labelled(made, name)


def _id_of(field: pa.Field) -> str:
    return str((field.metadata or {})[b"PARQUET:field_id"].decode())


def _fields_json(schema: Any, columns: pa.Schema) -> str:
    """What columns hold, by the ids that they have in a schema of Iceberg."""
    import pyarrow as pa
    from pyiceberg.io.pyarrow import schema_to_pyarrow

    held: dict[str, str] = {}

    def note(kind: pa.DataType, wanted: pa.DataType) -> None:
        if pa.types.is_struct(kind) and pa.types.is_struct(wanted):
            of_struct({field.name: field for field in kind}, wanted)
        else:
            for field, column in zip(within(kind), within(wanted), strict=False):
                note(field.type, column.type)

    def of_struct(known: Mapping[str, pa.Field], wanted: Iterable[pa.Field]) -> None:
        for column in wanted:
            field, name = known[column.name], field_of(column)
            if name is not None:
                held[_id_of(field)] = name
            note(field.type, column.type)

    of_struct({field.name: field for field in schema_to_pyarrow(schema)}, columns)
    return json.dumps(held)


def _iceberg_schema(schema: pa.Schema) -> Any:
    from pyiceberg.io.pyarrow import _pyarrow_to_schema_without_ids

    return _pyarrow_to_schema_without_ids(schema)


def _iceberg_type(field: pa.Field) -> Any:
    import pyarrow as pa

    return _iceberg_schema(pa.schema([field])).fields[0].field_type


def _span_ids(table: Table) -> list[tuple[int, Any]]:
    found = [table.schema().find_field(f"{METADATA}.{name}") for name in (PARTITION, OFFSET, TIMESTAMP)]
    return [(field.field_id, field.field_type) for field in found]


def _data_files(table: Table, snapshot: Any) -> Iterator[Any]:
    for manifest in snapshot.manifests(table.io):
        for entry in manifest.fetch_manifest_entry(table.io, discard_deleted=True):
            yield entry.data_file


def _metadata_files(table: Table, snapshot: Any) -> Iterator[str]:
    yield snapshot.manifest_list
    for manifest in snapshot.manifests(table.io):
        yield manifest.manifest_path
