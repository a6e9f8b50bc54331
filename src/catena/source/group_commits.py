"""A stream's progress as the committed offsets of a consumer group, so that tools for Kafka show its lag.

The stream itself goes by its checkpoint and never reads them. They are sent as a client without a member sends them, to
the group's coordinator, which any node names; nodes and their addresses are in the meta store. Nothing of it may fail
the stream: what can't be sent is a warning, once, and the next commit, which says more, is sent again.

Nobody else may be in the group: a coordinator refuses the offsets of strangers while it has members.
"""

from __future__ import annotations

import asyncio
import logging
import struct
from collections.abc import Sequence

from catena.cluster.view import Address, NodeRecord, decode_node
from catena.errors import CatenaError, RetryLater, StoreUnavailable
from catena.meta import keys
from catena.meta.base import MetaStore
from catena.source.offsets import StreamOffsets
from catena.wire.apis import APIS, Api
from catena.wire.codes import Code
from catena.wire.messages.find_coordinator import FindCoordinatorRequest, FindCoordinatorResponse
from catena.wire.messages.offset_commit import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
    OffsetCommitResponse,
)
from catena.wire.reader import WireError, read_message
from catena.wire.requests import HEADER
from catena.wire.schema import Message
from catena.wire.writer import write_message

log = logging.getLogger(__name__)

CLIENT_ID = b"catena-spark"
NODE_MAX_S = 5.0
"""For all that one node is asked."""
COMMIT_MAX_S = 15.0
MAX_ANSWER_BYTES = 16 << 20

_BY_REQUEST: dict[type[Message], Api] = {api.request: api for api in APIS.values()}
_SIZE = struct.Struct(">i")


class GroupCommits:
    def __init__(self, meta: MetaStore, group: str) -> None:
        self._meta = meta
        self._group = group
        self._has_warned = False

    async def commit(self, offsets: StreamOffsets) -> bool:
        """Whether it was taken. Never raises for what nodes and stores do."""
        try:
            async with asyncio.timeout(COMMIT_MAX_S):
                await self._commit(offsets)
        except (CatenaError, OSError, TimeoutError, WireError) as error:
            if not self._has_warned:
                log.warning(
                    "the stream's progress could not be committed for group %s, and goes on without: %s",
                    self._group,
                    str(error) or type(error).__name__,
                )
            self._has_warned = True
            return False
        self._has_warned = False
        return True

    async def _commit(self, offsets: StreamOffsets) -> None:
        nodes = await find_brokers(self._meta)
        trouble: Exception = StoreUnavailable("no node is alive")
        for node in nodes:
            try:
                async with asyncio.timeout(NODE_MAX_S):
                    coordinator = await self._find_coordinator(_address(node))
                    await self._send(coordinator, offsets)
            except (RetryLater, OSError, TimeoutError, WireError) as error:
                trouble = error
            else:
                return
        raise trouble

    async def _find_coordinator(self, address: Address) -> Address:
        request = FindCoordinatorRequest(coordinator_keys=[self._group])
        answer = await ask(address, request)
        assert isinstance(answer, FindCoordinatorResponse)
        (found,) = answer.coordinators
        if found.error_code:
            raise StoreUnavailable(f"{address} names no coordinator: {Code(found.error_code).name}")
        return Address(found.host, found.port)

    async def _send(self, address: Address, offsets: StreamOffsets) -> None:
        topics = [
            OffsetCommitRequestTopic(
                topic_id=topic.id,
                name=name,
                partitions=[
                    OffsetCommitRequestPartition(partition_index=number, committed_offset=offset)
                    for number, offset in topic.partitions.items()
                ],
            )
            for name, topic in offsets.topics.items()
        ]
        answer = await ask(address, OffsetCommitRequest(group_id=self._group, topics=topics))
        assert isinstance(answer, OffsetCommitResponse)
        refused = {part.error_code for topic in answer.topics for part in topic.partitions if part.error_code}
        if refused:
            raise StoreUnavailable(f"{address}: {', '.join(sorted(Code(code).name for code in refused))}")


async def find_brokers(meta: MetaStore) -> Sequence[NodeRecord]:
    """Those that are alive, as the meta store knows it."""
    records = await meta.scan(keys.NODES, keys.after(keys.NODES))
    nodes = [decode_node(record) for record in records]
    return [node for node in nodes if node.serves and node.listeners]


async def ask(address: Address, request: Message) -> Message:
    """One request over a connection of its own, in the newest version."""
    api = _BY_REQUEST[type(request)]
    flexible = api.is_flexible(api.last)
    reader, writer = await asyncio.open_connection(address.host, address.port)
    try:
        head = HEADER.pack(api.key, api.last, 1, len(CLIENT_ID)) + CLIENT_ID + b"\0" * flexible
        body = b"".join(map(bytes, write_message(request, api.last, flexible, [head])))
        writer.write(_SIZE.pack(len(body)) + body)
        (size,) = _SIZE.unpack(await _receive(reader, _SIZE.size))
        if not _SIZE.size <= size <= MAX_ANSWER_BYTES:
            raise WireError(f"{address} answers with {size} bytes")
        frame = memoryview(await _receive(reader, size))
    finally:
        writer.close()
    answer, _ = read_message(api.response, api.last, flexible, frame, _SIZE.size + flexible)
    assert isinstance(answer, Message)
    return answer


async def _receive(reader: asyncio.StreamReader, count: int) -> bytes:
    try:
        return await reader.readexactly(count)
    except asyncio.IncompleteReadError:
        raise StoreUnavailable("the node has hung up") from None


def _address(node: NodeRecord) -> Address:
    return next(iter(node.listeners.values()))
