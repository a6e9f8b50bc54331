"""SQL over topics, by DuckDB in this process: each topic that the query names is a view of its table and its tail.

DuckDB reads the files of a table through Arrow, so that it needs no extension of its own for S3, and only the columns
and row groups that the query is about.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import msgspec

from catena.errors import DataLoss, ObjectMissing, Rejected, UnknownTopic
from catena.node import Node
from catena.objects.base import ObjectStore
from catena.queries.fresh import Fresh, look
from catena.tables.columns import DAY
from catena.tables.storage import Storage, TableOpener
from catena.virtual_log.topics import TopicRecord

if TYPE_CHECKING:
    import duckdb
    import pyarrow as pa

    from catena.queries.rows import TailRows

BATCH_ROWS = 10_000
LOOKS = 5
"""Until nothing that is to be read is collected meanwhile."""


class Answer(NamedTuple):
    names: Sequence[str]
    batches: Iterator[pa.RecordBatch]
    warnings: Sequence[str]


class DuckQueries:
    """Views live as long as it does; each query sees topics as they are when it is asked."""

    def __init__(self, node: Node, objects: ObjectStore, storage: Storage, opener: TableOpener) -> None:
        self._node = node
        self._objects = objects
        self._storage = storage
        self._opener = opener

    @contextmanager
    def connect(self, folder: Path) -> Iterator[duckdb.DuckDBPyConnection]:
        """What does not fit into memory goes to the folder."""
        import duckdb

        settings = {"temp_directory": str(folder), "python_enable_replacements": "false"}
        connection = duckdb.connect(config=settings)
        try:
            yield connection
        finally:
            connection.close()

    async def run(self, connection: duckdb.DuckDBPyConnection, sql: str, folder: Path) -> Answer:
        """Raises Rejected with DuckDB's own words where it does not understand the query."""
        named = _names_in(connection, sql)
        topics = {topic.name: topic for topic in await self._node.topics.list()}
        found = _topics_named(named, topics)
        warnings: list[str] = []
        for number, name in enumerate(sorted(found)):
            warnings += await self._make_view(connection, topics[name], number, folder / f"{number}.arrow")
        relation = _answer(connection, sql, [name for name in named if name not in topics])
        return Answer([] if relation is None else relation.columns, _batches(relation), warnings)

    async def _make_view(
        self, connection: duckdb.DuckDBPyConnection, topic: TopicRecord, number: int, file: Path
    ) -> list[str]:
        fresh, tail = await self._read_tail(topic, file)
        warnings = list(fresh.losses)
        if tail.left_out:
            warnings.append(f"{tail.left_out} values of {topic.name} do not fit its columns, and are left out")
        # No topic has a space in its name.
        table, rest = f"the table {number}", f"the rest {number}"
        connection.register(table, self._dataset(fresh))
        connection.register(rest, tail.rows)
        connection.execute(
            f"create or replace temp view {_quoted(topic.name)} as select * from {_quoted(table)} "
            f"union all by name select * from {_quoted(rest)}"
        )
        return warnings

    async def _read_tail(self, topic: TopicRecord, file: Path) -> tuple[Fresh, TailRows]:
        from catena.queries.rows import tail_rows

        missing: ObjectMissing | None = None
        for _ in range(LOOKS):
            fresh = await look(self._node, self._opener, topic)
            try:
                return fresh, await tail_rows(self._objects, fresh, file)
            except ObjectMissing as error:
                missing = error
        raise DataLoss(
            f"topic {topic.name}: {missing}; vacuum collects what has moved meanwhile: ask again"
        ) from missing

    def _dataset(self, fresh: Fresh) -> Any:
        import pyarrow.dataset as ds

        from catena.queries.files import open_files

        files = open_files(self._storage)
        form = ds.ParquetFileFormat()
        fragments = [
            form.make_fragment(f"{files.root}/{fresh.prefix}/{file.path}", files.system, _day_is(file.day))
            for file in fresh.files
        ]
        return ds.FileSystemDataset(fragments, fresh.schema, form, files.system)


def _day_is(day: str) -> Any:
    """In the files, the day may not be a column; then their place says it."""
    import datetime

    import pyarrow.dataset as ds

    return ds.field(DAY) == ds.scalar(datetime.date.fromisoformat(day))


def _topics_named(named: Collection[str], topics: Collection[str]) -> list[str]:
    """Which topics a query means. DuckDB does not tell names apart that differ in case only, so it can't have both."""
    folded: dict[str, list[str]] = {}
    for topic in topics:
        folded.setdefault(topic.casefold(), []).append(topic)
    found: dict[str, str] = {}
    for name in named:
        same = folded.get(name.casefold(), [])
        if len(same) > 1 and name not in same:
            raise Rejected(f"sql: {name} may be any of the topics {', '.join(sorted(same))}: write it as it is")
        for topic in [name] if name in same else same:
            if (other := found.setdefault(name.casefold(), topic)) != topic:
                raise Rejected(f"sql: the topics {other} and {topic} differ in case only, and can't be in one query")
    return list(found.values())


def _names_in(connection: duckdb.DuckDBPyConnection, sql: str) -> set[str]:
    """Of all tables that it is about, and may be of some more. DuckDB's tree is better than its list, but has only some
    statements."""
    ((text,),) = connection.execute("select json_serialize_sql(?)", [sql]).fetchall()
    tree = msgspec.json.decode(text)
    if tree.get("error", True):
        return set(_asked(lambda: connection.get_table_names(sql)))
    return {node["table_name"] for node in _nodes(tree) if node.get("type") == "BASE_TABLE"}


def _nodes(tree: Any) -> Iterator[dict[str, Any]]:
    waiting = [tree]
    while waiting:
        match waiting.pop():
            case dict() as node:
                yield node
                waiting += node.values()
            case list() as nodes:
                waiting += nodes


def _answer(connection: duckdb.DuckDBPyConnection, sql: str, unknown: Sequence[str]) -> Any:
    import duckdb

    try:
        return connection.sql(sql)
    except duckdb.CatalogException as error:
        for name in unknown:
            if f"Table with name {name} does not exist" in str(error):
                raise UnknownTopic(name) from error
        raise Rejected(f"sql: {error}") from error
    except duckdb.Error as error:
        raise Rejected(f"sql: {error}") from error


def _asked(question: Callable[[], Any]) -> Any:
    import duckdb
    import pyarrow as pa

    try:
        return question()
    except (duckdb.Error, pa.ArrowException, OSError) as error:
        if "No such file" in str(error) or "does not exist" in str(error):
            raise DataLoss(f"sql: {error}; the table's old files are gone: ask again") from error
        raise Rejected(f"sql: {error}") from error


def _batches(relation: Any) -> Iterator[pa.RecordBatch]:
    if relation is None:
        return  # a statement that has no rows
    reader = _asked(lambda: relation.to_arrow_reader(BATCH_ROWS))
    while True:
        try:
            yield _asked(reader.read_next_batch)
        except StopIteration:
            return


def _quoted(name: str) -> str:
    doubled = name.replace('"', '""')
    return f'"{doubled}"'
