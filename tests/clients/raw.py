"""A client that says exactly what it is told, to exactly the node that it is told: requests and answers as messages.

It is built of Catena's own reader and writer, which `tests/wire` holds against another implementation.
"""

from __future__ import annotations

import socket
import struct
from collections.abc import Sequence
from types import TracebackType
from typing import Self, TypeVar

from catena.types import Buffer
from catena.wire.apis import API_VERSIONS, APIS, Api
from catena.wire.codes import Code
from catena.wire.messages.fetch import FetchPartition, FetchRequest, FetchResponse, FetchTopic, PartitionData
from catena.wire.messages.find_coordinator import FindCoordinatorRequest, FindCoordinatorResponse
from catena.wire.messages.list_offsets import (
    ListOffsetsPartition,
    ListOffsetsPartitionResponse,
    ListOffsetsRequest,
    ListOffsetsResponse,
    ListOffsetsTopic,
)
from catena.wire.messages.metadata import MetadataRequest, MetadataRequestTopic, MetadataResponse
from catena.wire.messages.offset_commit import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
    OffsetCommitResponse,
)
from catena.wire.messages.offset_fetch import (
    OffsetFetchRequest,
    OffsetFetchRequestGroup,
    OffsetFetchRequestTopics,
    OffsetFetchResponse,
)
from catena.wire.messages.produce import (
    PartitionProduceData,
    PartitionProduceResponse,
    ProduceRequest,
    ProduceResponse,
    TopicProduceData,
)
from catena.wire.reader import read_message
from catena.wire.schema import Message
from catena.wire.writer import write_message

R = TypeVar("R", bound=Message)

TIMEOUT_S = 60.0
BY_REQUEST: dict[type[Message], Api] = {api.request: api for api in APIS.values()}
CLIENT_ID = b"raw"


class Closed(Exception):
    """The node has hung up."""


class Raw:
    """One connection."""

    def __init__(self, address: str, timeout_s: float = TIMEOUT_S) -> None:
        host, _, port = address.rpartition(":")
        self._socket = socket.create_connection((host, int(port)), timeout=timeout_s)
        self.correlation_id = 0
        """Of the last request."""

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self.close()

    def close(self) -> None:
        self._socket.close()

    def ask(self, request: Message, answer: type[R], version: int | None = None) -> R:
        """In the newest version, if nothing else is said. Raises Closed, and TimeoutError if nothing comes."""
        api = BY_REQUEST[type(request)]
        version = api.last if version is None else version
        self.send(request, version)
        return self.receive(api, answer, version)

    def send(self, request: Message, version: int) -> None:
        self.send_together([request], version)

    def send_together(self, requests: Sequence[Message], version: int) -> None:
        """So that the node finds them all when it looks."""
        frames = []
        for request in requests:
            api = BY_REQUEST[type(request)]
            flexible = api.is_flexible(version)
            body = b"".join(map(bytes, write_message(request, version, flexible, [])))
            frames.append(self._frame(api.key, version, b"\0" * flexible + body))
        self.send_bytes(b"".join(frames))

    def send_body(self, key: int, version: int, after_client_id: bytes) -> None:
        self.send_bytes(self._frame(key, version, after_client_id))

    def _frame(self, key: int, version: int, after_client_id: bytes) -> bytes:
        self.correlation_id += 1
        head = struct.pack(">hhih", key, version, self.correlation_id, len(CLIENT_ID)) + CLIENT_ID
        return struct.pack(">i", len(head) + len(after_client_id)) + head + after_client_id

    def send_bytes(self, data: bytes) -> None:
        try:
            self._socket.sendall(data)
        except (BrokenPipeError, ConnectionResetError) as error:
            raise Closed from error

    def receive(self, api: Api, answer: type[R], version: int, correlation_id: int | None = None) -> R:
        """The answer to the last request, if it is not said to which."""
        frame = self.receive_frame()
        expected = self.correlation_id if correlation_id is None else correlation_id
        assert struct.unpack_from(">i", frame)[0] == expected
        flexible = api.is_flexible(version)
        at = 4 + (flexible and api is not API_VERSIONS)
        message, end = read_message(api.response, version, flexible, memoryview(frame), at)
        assert end == len(frame), "nothing is left over"
        assert isinstance(message, answer)
        return message

    def receive_frame(self) -> bytes:
        return self._receive(struct.unpack(">i", self._receive(4))[0])

    def is_closed(self) -> bool:
        """Waits for it; False if the node says something instead."""
        try:
            self._receive(1)
        except Closed:
            return True
        return False

    def _receive(self, count: int) -> bytes:
        parts = bytearray()
        while len(parts) < count:
            try:
                part = self._socket.recv(count - len(parts))
            except ConnectionResetError as error:
                raise Closed from error
            if not part:
                raise Closed
            parts += part
        return bytes(parts)


def metadata(address: str, *topics: str, create: bool = False) -> MetadataResponse:
    """What this node says of itself, the others, and these topics."""
    asked = [MetadataRequestTopic(name=topic) for topic in topics]
    with Raw(address) as raw:
        return raw.ask(MetadataRequest(topics=asked, allow_auto_topic_creation=create), MetadataResponse)


def coordinator(address: str, group: str) -> int:
    """The id of the node that coordinates this group, as the node at this address sees it."""
    with Raw(address) as raw:
        found = raw.ask(FindCoordinatorRequest(coordinator_keys=[group]), FindCoordinatorResponse)
    return found.coordinators[0].node_id


def produce_request(topic: str, batch: Buffer, partition: int = 0, acks: int = -1) -> ProduceRequest:
    """Version 12 is the last one that knows topics by name."""
    data = [TopicProduceData(name=topic, partition_data=[PartitionProduceData(index=partition, records=[batch])])]
    return ProduceRequest(acks=acks, timeout_ms=10_000, topic_data=data)


def produce(raw: Raw, topic: str, batch: Buffer, partition: int = 0, acks: int = -1) -> PartitionProduceResponse:
    answer = raw.ask(produce_request(topic, batch, partition, acks), ProduceResponse, 12)
    return answer.responses[0].partition_responses[0]


def fetch(
    raw: Raw, topic: str, offset: int, partition: int = 0, max_wait_ms: int = 0, leader_epoch: int = -1
) -> PartitionData:
    asked = FetchPartition(
        partition=partition, fetch_offset=offset, current_leader_epoch=leader_epoch, partition_max_bytes=1 << 20
    )
    request = FetchRequest(
        max_wait_ms=max_wait_ms, min_bytes=1, max_bytes=1 << 20, topics=[FetchTopic(topic=topic, partitions=[asked])]
    )
    return raw.ask(request, FetchResponse, 12).responses[0].partitions[0]


def list_offset(raw: Raw, topic: str, time: int = -1, leader_epoch: int = -1) -> ListOffsetsPartitionResponse:
    """Of partition 0; the end of the log, if no time is given."""
    asked = ListOffsetsPartition(current_leader_epoch=leader_epoch, timestamp=time)
    request = ListOffsetsRequest(replica_id=-1, topics=[ListOffsetsTopic(name=topic, partitions=[asked])])
    return raw.ask(request, ListOffsetsResponse).topics[0].partitions[0]


def commit_request(group: str, topic: str, offset: int) -> OffsetCommitRequest:
    """For partition 0, of nobody in particular. Version 9 is the last one that knows topics by name."""
    place = OffsetCommitRequestPartition(partition_index=0, committed_offset=offset)
    return OffsetCommitRequest(group_id=group, topics=[OffsetCommitRequestTopic(name=topic, partitions=[place])])


def commit_answer(raw: Raw) -> Code:
    answer = raw.receive(BY_REQUEST[OffsetCommitRequest], OffsetCommitResponse, 9)
    return Code(answer.topics[0].partitions[0].error_code)


def commit(raw: Raw, group: str, topic: str, offset: int) -> Code:
    raw.send(commit_request(group, topic, offset), 9)
    return commit_answer(raw)


def committed_request(group: str, topic: str) -> OffsetFetchRequest:
    topics = [OffsetFetchRequestTopics(name=topic, partition_indexes=[0])]
    return OffsetFetchRequest(groups=[OffsetFetchRequestGroup(group_id=group, topics=topics)])


def committed(raw: Raw, group: str, topic: str) -> int | Code:
    """The offset of partition 0, or why it is not told."""
    raw.send(committed_request(group, topic), 9)
    return committed_answer(raw)


def committed_answer(raw: Raw) -> int | Code:
    answer = raw.receive(BY_REQUEST[OffsetFetchRequest], OffsetFetchResponse, 9).groups[0]
    return Code(answer.error_code) if answer.error_code else answer.topics[0].partitions[0].committed_offset
