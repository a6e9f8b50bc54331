"""Where a topic's table ends and its log goes on.

The table is looked at first: its files and its progress, of one and the same version. Then the log, from that progress
up to its tail. So each record is in a file or in a range, in exactly one of them, whatever the pipeline commits
meanwhile; and what was acked before the look is there, because tails are linearizable. If the log lacks something, it
may have come into the table and been trimmed between the two looks: then both are looked at again, and something is
lost only if the table has not moved. Files that are replaced while a query runs stay for as long as the table keeps its
old states.

A topic without a table is read from its log alone.
"""

from __future__ import annotations

import functools
from collections.abc import Sequence
from typing import TYPE_CHECKING, NamedTuple

from catena.errors import Contended, OffsetOutOfRange, StaleView
from catena.node import Node
from catena.runtime.tasks import map_bounded
from catena.source.planning import OffsetRange
from catena.source.splitting import Split, cut_by_extents
from catena.tables import planning
from catena.tables.columns import evolved, typed
from catena.tables.committer import Committer, DataFile, TableState
from catena.tables.settings import TableConfig
from catena.tables.storage import TableOpener
from catena.tables.values import ValueSpec, decoder_of
from catena.types import Offset
from catena.virtual_log.extents import find_extents
from catena.virtual_log.topics import TopicRecord

if TYPE_CHECKING:
    import pyarrow as pa

MAX_TRIES = 20
AT_ONCE = 32


class Fresh(NamedTuple):
    """A topic as it is at a moment."""

    topic: TopicRecord
    schema: pa.Schema
    """Of all rows; `day` last."""
    value: ValueSpec
    prefix: str
    """Of the table's files."""
    files: Sequence[DataFile]
    splits: Sequence[Split]
    losses: Sequence[str]
    """What is neither in the table nor in the log any more."""


class _Part(NamedTuple):
    state: TableState | None
    prefix: str
    files: list[DataFile]


async def look(node: Node, opener: TableOpener, topic: TopicRecord) -> Fresh:
    """Raises UnknownTopic if the topic is deleted meanwhile."""
    config = TableConfig.of(topic.configs)
    value = ValueSpec.of(config)
    fields = decoder_of(value).fields
    before: int | None = None
    for _ in range(MAX_TRIES):
        try:
            part = await _table(opener, topic, config) if config.enable else _Part(None, "", [])
        except StaleView:
            continue  # another topic has got that table: a new look finds another name
        progress = {} if part.state is None else part.state.guards.progress
        lack = planning.plan(topic, progress, await planning.look(node, topic), max_records=1 << 62)
        version = -1 if part.state is None else part.state.version
        if lack.losses and part.state is not None and version != before:
            before = version
            continue
        try:
            found = await map_bounded(AT_ONCE, functools.partial(_splits, node, topic), lack.ranges)
        except OffsetOutOfRange:
            continue  # trimmed just now
        schema = typed(fields) if part.state is None else evolved(part.state.schema, fields)
        splits = [split for each in found for split in each]
        return Fresh(topic, schema, value, part.prefix, part.files, splits, _lost(part, lack.losses))
    raise Contended(f"topic {topic.name} is trimmed, or its table replaced, faster than it can be planned: ask again")


async def _table(opener: TableOpener, topic: TopicRecord, config: TableConfig) -> _Part:
    opened = await opener.open(topic, config.format)
    for _ in range(MAX_TRIES):
        state = opener.own(topic, config.format, await opened.table.load())
        if state is None:
            return _Part(None, "", [])
        files = await opened.table.files()
        if await _is_still(opened.table, state):
            return _Part(state, opened.prefix, files)
    raise Contended(f"the table of topic {topic.name} changes faster than it can be looked at")


async def _is_still(table: Committer, state: TableState) -> bool:
    now = await table.load()
    return now is not None and now.version == state.version


def _lost(part: _Part, losses: Sequence[str]) -> Sequence[str]:
    """Without a table nothing was to be kept beyond the log's own start."""
    return losses if part.state is not None else ()


async def _splits(node: Node, topic: TopicRecord, each: OffsetRange) -> list[Split]:
    log = node.open_log(topic, each.tp.partition)
    return cut_by_extents([each], await find_extents(log, Offset(each.start), Offset(each.end)))
