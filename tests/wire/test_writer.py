from __future__ import annotations

import inspect
from typing import Annotated, Any

import msgspec
import pytest

from catena.types import Buffer
from catena.wire.messages.describe_topic_partitions import Cursor, DescribeTopicPartitionsResponse
from catena.wire.messages.fetch import (
    EpochEndOffset,
    FetchableTopicResponse,
    FetchResponse,
    LeaderIdAndEpoch,
    NodeEndpoint,
    PartitionData,
    SnapshotId,
)
from catena.wire.messages.metadata import MetadataResponse, MetadataResponseTopic
from catena.wire.reader import read_message
from catena.wire.schema import NO_ID, Bool, Bytes, Int8, Int32, Message, String, Uuid, nullable, tagged
from catena.wire.writer import Unwritable, uvarint, write_message, writer


class Part(Message):
    count: Int8 = 0


class Whole(Message):
    name: String = ""
    blob: Bytes = b""
    is_new: Bool = False
    numbers: list[Int32] = msgspec.field(default_factory=list)
    id: Uuid = NO_ID
    part: Part = msgspec.field(default_factory=Part)
    parts: list[Part] = msgspec.field(default_factory=list)
    comment: Annotated[String | None, nullable()] = None
    last: Annotated[Int32, tagged(9, 1)] = 0
    first: Annotated[String, tagged(1, 1)] = ""


BOTH = [(0, False), (1, True)]


def written(message: Message, version: int, flexible: bool) -> bytes:
    return b"".join(write_message(message, version, flexible, []))


@pytest.mark.parametrize(("version", "flexible"), BOTH)
@pytest.mark.parametrize(
    ("change", "trouble"),
    [
        ({"name": "x" * 32768}, "name has 32768 bytes; a string may have 32767"),
        ({"name": "é" * 16384}, "name has 32768 bytes; a string may have 32767"),
        ({"comment": "x" * 40000}, "comment has 40000 bytes; a string may have 32767"),
        ({"name": None}, "name is None"),
        ({"name": b"bytes"}, "name is of type bytes"),
        ({"name": "\ud800"}, "name can't be written: 'utf-8' codec can't encode"),
        ({"blob": None}, "blob is None"),
        ({"blob": [1]}, "blob is of type list"),
        ({"blob": "text"}, "blob is of type str"),
        ({"is_new": None}, "is_new is None"),
        ({"numbers": None}, "numbers is None"),
        ({"numbers": 5}, "numbers is of type int"),
        ({"numbers": [1, None]}, r"numbers\[1\] is None"),
        ({"numbers": [1 << 31]}, r"numbers\[0\] can't be written: "),
        ({"numbers": [0] * 20 + [-1 << 40]}, r"numbers\[20\] can't be written: "),
        ({"id": "12"}, "id can't be written: an id has 32 digits, not 2"),
        ({"id": "x" * 32}, "id can't be written: non-hexadecimal"),
        ({"part": None}, "part is None"),
        ({"part": Part(count=128)}, r"part.count can't be written: "),
        ({"parts": [Part(), Part(count=-129)]}, r"parts\[1\].count can't be written: "),
        ({"parts": [Part(), 7]}, r"parts\[1\] is of type int"),
        ({"numbers": (1, 2), "parts": (Part(), None)}, r"parts\[1\] is None"),
    ],
)
def test_says_what_cannot_be_written(version: int, flexible: bool, change: dict[str, Any], trouble: str) -> None:
    with pytest.raises(Unwritable, match=f"Whole v{version}: {trouble}"):
        written(Whole(**change), version, flexible)


@pytest.mark.parametrize("change", [{"first": None}, {"first": "x" * 32768}, {"last": None}])
def test_says_which_tagged_field_cannot_be_written(change: dict[str, Any]) -> None:
    with pytest.raises(Unwritable, match=f"Whole v1: {next(iter(change))} "):
        written(Whole(**change), 1, True)
    assert written(Whole(**change), 0, False) == written(Whole(), 0, False)


@pytest.mark.parametrize(("version", "flexible"), BOTH)
@pytest.mark.parametrize("count", [0, 1, 2, 3, 4, 5, 16, 17, 126, 127, 128, 1000])
def test_arrays_and_strings_of_any_length(version: int, flexible: bool, count: int) -> None:
    message = Whole(
        name="n" * count,
        blob=b"b" * count,
        numbers=list(range(-count, 0)),
        parts=[Part(count=n % 100) for n in range(count)],
    )
    data = written(message, version, flexible)
    assert read_message(Whole, version, flexible, memoryview(data), 0) == (message, len(data))


def test_the_longest_string() -> None:
    message = Whole(name="x" * 32767)
    for version, flexible in BOTH:
        data = written(message, version, flexible)
        assert read_message(Whole, version, flexible, memoryview(data), 0)[0] == message


def test_tagged_fields_are_written_in_order_and_only_if_set() -> None:
    nothing = written(Whole(), 1, True)
    assert nothing[-1:] == b"\0"
    assert written(Whole(last=7), 1, True) == nothing[:-1] + bytes.fromhex("01 0904 00000007")
    assert written(Whole(last=7, first="a"), 1, True) == nothing[:-1] + bytes.fromhex("02 0102 0261 0904 00000007")


def test_messages_in_tagged_fields() -> None:
    partition = PartitionData(
        diverging_epoch=EpochEndOffset(epoch=1, end_offset=2),
        current_leader=LeaderIdAndEpoch(leader_id=3, leader_epoch=4),
        snapshot_id=SnapshotId(end_offset=5, epoch=6),
        records=None,
    )
    endpoints = [NodeEndpoint(node_id=1, host="a", port=2, rack=None)]
    response = FetchResponse(
        responses=[FetchableTopicResponse(partitions=[partition])], node_endpoints=endpoints, session_id=9
    )
    data = written(response, 16, True)
    assert read_message(FetchResponse, 16, True, memoryview(data), 0) == (response, len(data))
    assert read_message(FetchResponse, 12, True, memoryview(written(response, 12, True)), 0)[0].node_endpoints == []


def test_null_messages() -> None:
    for cursor in (None, Cursor(topic_name="t", partition_index=3)):
        data = written(DescribeTopicPartitionsResponse(next_cursor=cursor), 0, True)
        assert read_message(DescribeTopicPartitionsResponse, 0, True, memoryview(data), 0)[0].next_cursor == cursor


@pytest.mark.parametrize("version", [4, 11, 12, 18])
def test_record_batches_are_passed_on_as_they_are(version: int) -> None:
    batches: list[list[Buffer] | None] = [[b"first", memoryview(b"second")], [], [bytearray(b"third")], None]
    partitions = [PartitionData(partition_index=n, records=batch) for n, batch in enumerate(batches)]
    response = FetchResponse(responses=[FetchableTopicResponse(topic="t", partitions=partitions)])
    parts = write_message(response, version, version >= 12, [b"before"])
    assert bytes(parts[0]).startswith(b"before")
    for batch in batches:
        assert all(any(part is buffer for part in parts) for buffer in batch or [])
    data = b"".join(parts).removeprefix(b"before")
    (topic,) = read_message(FetchResponse, version, version >= 12, memoryview(data), 0)[0].responses
    read = [partition.records and b"".join(partition.records) for partition in topic.partitions]
    assert read == [b"firstsecond", b"", b"third", None]


@pytest.mark.parametrize("records", [b"batch", [None], 5])
def test_records_that_cannot_be_written(records: Any) -> None:
    good = PartitionData(records=[b"batch"])
    bad = FetchableTopicResponse(partitions=[good, PartitionData(records=records)])
    with pytest.raises(Unwritable, match=r"FetchResponse v12: responses\[0\].partitions\[1\].records "):
        written(FetchResponse(responses=[bad]), 12, True)


def test_null_where_a_version_has_none() -> None:
    response = MetadataResponse(topics=[MetadataResponseTopic(name=None)])
    written(response, 12, True)
    with pytest.raises(Unwritable, match=r"MetadataResponse v11: topics\[0\].name is None"):
        written(response, 11, True)


def test_uvarint() -> None:
    known = {0: "00", 127: "7f", 128: "8001", 16383: "ff7f", 16384: "808001", (1 << 32) - 1: "ffffffff0f"}
    assert {value: uvarint(value).hex() for value in known} == known


def test_the_code_of_a_writer_can_be_looked_at() -> None:
    assert "put(pack" in inspect.getsource(writer(FetchResponse, 12, True))
