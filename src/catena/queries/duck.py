"""SQL over topics, by DuckDB in this process: each topic that the query names is a view of its table and its tail.

DuckDB reads the files of a table through Arrow, so that it needs no extension of its own for S3, and only the columns
and row groups that the query is about. It works on threads of its own, and the event loop is free to do what these
wait for: downloads of the tail. So no statement is run on the loop's own thread, once topics are in it.
"""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable, Collection, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple, TypeVar

import msgspec

from catena.errors import DataLoss, Rejected, UnknownTopic
from catena.node import Node
from catena.objects.base import ObjectStore
from catena.queries.fresh import Fresh, look
from catena.queries.pieces import PieceReader
from catena.runtime import Disk
from catena.tables.columns import DAY
from catena.tables.storage import Storage, TableOpener
from catena.virtual_log.topics import TopicRecord

if TYPE_CHECKING:
    import duckdb
    import pyarrow as pa

    from catena.queries.rows import TailRows

T = TypeVar("T")

BATCH_ROWS = 10_000
END_S = 60.0
"""For so long a statement that was interrupted may go on."""


class Answer(NamedTuple):
    names: Sequence[str]
    batches: Iterator[pa.RecordBatch]
    warnings: Sequence[str]
    """Complete once all batches were read."""


class _View(NamedTuple):
    topic: str
    reader: PieceReader
    tail: TailRows


class DuckQueries:
    """Views live as long as it does; each query sees topics as they are when it is asked."""

    def __init__(
        self,
        node: Node,
        objects: ObjectStore,
        storage: Storage,
        opener: TableOpener,
        disk: Disk,
        skips: bool = False,
    ) -> None:
        """`skips`: batches of the tail that can't be decoded are left out, and counted; else they are an error."""
        self._node = node
        self._objects = objects
        self._storage = storage
        self._opener = opener
        self._disk = disk
        self._skips = skips

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

    async def run(self, connection: duckdb.DuckDBPyConnection, sql: str, show: Callable[[Answer], T]) -> T:
        """What `show` makes of the answer, on a thread. Raises Rejected with DuckDB's own words where it does not
        understand the query."""
        named = _names_in(connection, sql)
        topics = {topic.name: topic for topic in await self._node.topics.list()}
        found = _topics_named(named, topics)
        warnings: list[str] = []
        views: list[_View] = []
        for number, name in enumerate(sorted(found)):
            view, losses = await self._make_view(connection, topics[name], number)
            views.append(view)
            warnings += losses
        unknown = [name for name in named if name not in topics]
        ended = threading.Event()

        def ask() -> T:
            try:
                relation = _told(lambda: _answer(connection, sql, unknown), views)
                names = [] if relation is None else relation.columns
                return show(Answer(names, _batches(relation, views, warnings), warnings))
            finally:
                ended.set()

        try:
            return await self._disk.run(ask)
        except asyncio.CancelledError:
            for view in views:
                view.reader.stop()
            connection.interrupt()
            await self._disk.run(ended.wait, END_S)
            raise

    async def _make_view(
        self, connection: duckdb.DuckDBPyConnection, topic: TopicRecord, number: int
    ) -> tuple[_View, Sequence[str]]:
        from catena.queries.rows import TailRows

        fresh = await look(self._node, self._opener, topic)
        reader = PieceReader(self._node, self._objects, topic)
        tail = TailRows(fresh, reader, self._skips)
        # No topic has a space in its name.
        table, rest = f"the table {number}", f"the rest {number}"
        connection.register(table, self._dataset(fresh))
        connection.register(rest, tail)
        connection.execute(
            f"create or replace temp view {_quoted(topic.name)} as select * from {_quoted(table)} "
            f"union all by name select * from {_quoted(rest)}"
        )
        return _View(topic.name, reader, tail), fresh.losses

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
        return _names_told(connection, sql)
    return {node["table_name"] for node in _nodes(tree) if node.get("type") == "BASE_TABLE"}


def _names_told(connection: duckdb.DuckDBPyConnection, sql: str) -> set[str]:
    import duckdb

    try:
        return set(connection.get_table_names(sql))
    except duckdb.CatalogException as error:  # DuckDB looks for what a statement changes, and has only what is read
        raise Rejected(f"sql: {error}; topics are only read, by select") from error
    except duckdb.Error as error:
        raise Rejected(f"sql: {error}") from error


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


def _told(question: Callable[[], Any], views: Sequence[_View]) -> Any:
    """An error of ours comes as it was."""
    try:
        return _asked(question)
    except (DataLoss, Rejected) as error:
        for view in views:
            if view.tail.trouble is not None:
                raise view.tail.trouble from error
        raise


def _batches(relation: Any, views: Sequence[_View], warnings: list[str]) -> Iterator[pa.RecordBatch]:
    if relation is not None:  # else it is a statement that has no rows
        reader = _told(lambda: relation.to_arrow_reader(BATCH_ROWS), views)
        while True:
            try:
                yield _told(reader.read_next_batch, views)
            except StopIteration:
                break
    for view in views:
        topic, tail = view.topic, view.tail
        if tail.left_out:
            warnings.append(f"values of {topic} that do not fit its columns and are left out: {tail.left_out}")
        if tail.opaque:
            warnings.append(f"batches of {topic} that can't be decoded and are left out: {tail.opaque}")


def _quoted(name: str) -> str:
    doubled = name.replace('"', '""')
    return f'"{doubled}"'
