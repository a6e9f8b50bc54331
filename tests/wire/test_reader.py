"""Whatever the bytes are: a message, or a WireError, quickly, and for little memory."""

from __future__ import annotations

import inspect
import random
import tracemalloc
from typing import Annotated, Any

import msgspec
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from catena.types import Buffer
from catena.wire.messages.describe_topic_partitions import DescribeTopicPartitionsRequest
from catena.wire.messages.fetch import FetchRequest, FetchResponse, LeaderIdAndEpoch, PartitionData
from catena.wire.messages.list_groups import ListGroupsRequest
from catena.wire.messages.metadata import MetadataRequest
from catena.wire.messages.offset_fetch import OffsetFetchRequest
from catena.wire.messages.produce import PartitionProduceData, ProduceRequest, TopicProduceData
from catena.wire.reader import MAX_ENTRIES, WireError, read_message, read_uvarint, reader, skip_tags
from catena.wire.schema import Int32, Message, String, nullable, tagged
from catena.wire.writer import uvarint, write_message
from tests.wire.fuzz import LENGTHS, changed, random_message
from tests.wire.messages import CASES, REQUESTS, Case, messages

each_case = pytest.mark.parametrize("case", CASES, ids=str)


def encoded(case: Case, seed: int) -> bytes:
    return case.write(random_message(random.Random(seed), case.message, case.version))


def read(message: type[Message], version: int, flexible: bool, data: Buffer) -> Any:
    return read_message(message, version, flexible, memoryview(data), 0)[0]


@each_case
def test_every_cut_is_noticed(case: Case) -> None:
    for seed in range(5):
        data = encoded(case, seed)
        assert case.read(data)[1] == len(data)
        for length in range(min(len(data), 500)):
            with pytest.raises(WireError, match=f"^{case.message.__name__} v{case.version}: "):
                case.read(data[:length])


@pytest.mark.parametrize("case", REQUESTS, ids=str)
def test_no_length_at_any_place_does_harm(case: Case) -> None:
    data = sorted((encoded(case, seed) for seed in range(5)), key=len)[2]
    for at in range(min(len(data), 100)):
        for length in LENGTHS:
            for wrong in (data[:at] + length + data[at + len(length) :], data[:at] + length):
                try:
                    case.read(wrong)
                except WireError:
                    pass


@each_case
@settings(max_examples=5, deadline=None, suppress_health_check=list(HealthCheck))
@given(data=st.data())
def test_changed_bytes_are_read_or_refused(case: Case, data: st.DataObject) -> None:
    valid = case.write(data.draw(messages(case.message, case.version)))
    garbage = data.draw(st.binary(max_size=64))
    chance = data.draw(st.randoms(use_true_random=False))
    for wrong in (changed(chance, valid, [garbage]), garbage, valid[: len(valid) // 2] + garbage):
        try:
            message, at = case.read(wrong)
        except WireError:
            continue
        assert at <= len(wrong)
        assert case.read(case.write(message))[0] == message


class Thing(Message):
    names: Annotated[list[String] | None, nullable(1)] = msgspec.field(default_factory=list)
    counts: list[Int32] = msgspec.field(default_factory=list)
    note: Annotated[String | None, nullable(1)] = ""
    more: Annotated[list[Int32], tagged(3, 2)] = msgspec.field(default_factory=list)


@pytest.mark.parametrize(
    ("version", "flexible", "data", "trouble"),
    [
        (0, False, "ffffffff", "names is null or has a negative length"),
        (1, False, "fffffffe", "names has the length -2"),
        (1, False, "80000000", "names has the length -2147483648"),
        (0, False, "7fffffff 0000", "names has 2147483647 entries, and 2 bytes are left"),
        (0, False, "00000000 ffffffff", "counts is null or has a negative length"),
        (0, False, "00000000 00000002 00000001 000000", "counts has 2 entries, and 7 bytes are left"),
        (0, False, "00000000 00000000 ffff", "note is null or has a negative length"),
        (1, False, "00000000 00000000 fffe", "note has the length -2"),
        (1, False, "00000000 00000000 7fff 61", "note has 32767 bytes, and 1 are left"),
        (1, False, "00000000 00000000 0002 c328", "a string is not UTF-8"),
        (1, False, "00000000 000000", "it ends too early, after 7 bytes"),
        (2, True, "c1843d 0101", "names has 1000000 entries, and 2 bytes are left"),
        (2, True, "ffffffff0f", "names has 4294967294 entries, and 0 bytes are left"),
        (2, True, "ffffffff1f", "a length or tag has more than 32 bits"),
        (2, True, "808080808001", "a length or tag has more than 32 bits"),
        (2, True, "00 00", "counts is null or has a negative length"),
        (2, True, "00 01 818002", "a string of 32768 bytes; it may have 32767"),
        (2, True, "00 01 05 6161", "note has 4 bytes, and 2 are left"),
        (2, True, "00 01 00", "it ends too early, after 3 bytes"),
        (2, True, "00 01 00 05 0000", "5 tagged fields, and 2 bytes are left"),
        (2, True, "00 01 00 01 0902 00", "a tagged field has 2 bytes, and 1 are left"),
        (2, True, "00 01 00 01 0302 0100", "tagged field more does not have 2 bytes"),
        (2, True, "00 01 00 01 0301 0200000001", "tagged field more does not have 1 bytes"),
        (2, True, "00 01 00 01 0301 03", "more has 2 entries, and 0 bytes are left"),
    ],
)
def test_says_what_is_wrong(version: int, flexible: bool, data: str, trouble: str) -> None:
    with pytest.raises(WireError, match=f"Thing v{version}: {trouble}"):
        read(Thing, version, flexible, bytes.fromhex(data))


def test_unknown_tags_are_left_aside() -> None:
    data = bytes.fromhex("00 01 00 03 0103abcdef 0305 02 00000007 7f00")
    assert read(Thing, 2, True, data) == Thing(names=None, note=None, more=[7])
    metadata = bytes.fromhex("00 00 00 00 02 05026162 0900")
    assert read(MetadataRequest, 9, True, metadata) == MetadataRequest(topics=None, allow_auto_topic_creation=False)
    assert skip_tags(memoryview(bytes.fromhex("01 0501ff ff")), 0, 10) == (4, 9)


def test_tagged_fields_are_not_there_in_older_versions() -> None:
    request = FetchRequest(cluster_id="c", topics=[])
    assert read(FetchRequest, 11, False, write_old(request, 11)) == FetchRequest(topics=[])
    assert read(FetchRequest, 12, True, b"".join(write_message(request, 12, True, []))) == request


def write_old(message: Message, version: int) -> bytes:
    return b"".join(write_message(message, version, False, []))


@pytest.mark.parametrize(("marker", "is_null"), [("ff", True), ("80", True), ("01", False), ("00", False)])
def test_null_of_a_message_is_a_negative_byte(marker: str, is_null: bool) -> None:
    cursor = "" if is_null else "0261 00000005 00"
    request = read(DescribeTopicPartitionsRequest, 0, True, bytes.fromhex(f"01 00000001 {marker} {cursor} 00"))
    assert (request.cursor is None) == is_null
    if not is_null:
        assert (request.cursor.topic_name, request.cursor.partition_index) == ("a", 5)


@given(st.integers(0, (1 << 32) - 1), st.binary(max_size=4), st.binary(max_size=4))
def test_uvarint_round_trip_in_place(value: int, before: bytes, after: bytes) -> None:
    data = uvarint(value)
    assert read_uvarint(memoryview(before + data + after), len(before)) == (value, len(before) + len(data))


def test_record_batches_are_slices_of_the_request() -> None:
    data = bytearray(write_old(ProduceRequest(topic_data=[topic(PartitionProduceData(records=[b"batch"]))]), 8))
    (records,) = read(ProduceRequest, 8, False, data).topic_data[0].partition_data[0].records
    assert records == b"batch"
    assert records.obj is data


def topic(*partitions: PartitionProduceData) -> TopicProduceData:
    return TopicProduceData(name="t", partition_data=list(partitions))


def test_defaults_are_not_shared_between_messages() -> None:
    data = b"".join(write_message(FetchResponse(), 12, True, []))
    first, second = read(FetchResponse, 12, True, data), read(FetchResponse, 12, True, data)
    first.node_endpoints.append(1)
    assert second.node_endpoints == FetchResponse().node_endpoints == []
    partition = b"".join(write_message(PartitionData(), 12, True, []))
    one, other = read(PartitionData, 12, True, partition), read(PartitionData, 12, True, partition)
    one.current_leader.leader_id = 5
    assert other.current_leader == PartitionData().current_leader == LeaderIdAndEpoch()
    old = read(ListGroupsRequest, 0, False, b"")
    old.states_filter.append("x")
    assert read(ListGroupsRequest, 0, False, b"").states_filter == []


def peak_bytes_of_refusing(message: type[Message], version: int, flexible: bool, data: bytes) -> int:
    reader(message, version, flexible)
    tracemalloc.start()
    try:
        with pytest.raises(WireError):
            read(message, version, flexible, data)
        return tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()


def test_a_length_that_is_not_true_costs_nothing() -> None:
    million, most = bytes.fromhex("000f4240"), bytes.fromhex("7fffffff")
    for n in (million, most):
        assert peak_bytes_of_refusing(MetadataRequest, 1, False, n + bytes(1000)) < 20_000
        assert peak_bytes_of_refusing(OffsetFetchRequest, 1, False, b"\0\1a" + n + bytes(1000)) < 20_000
    huge = bytes.fromhex("ffffffff0f")
    assert peak_bytes_of_refusing(ProduceRequest, 9, True, b"\0\0\0\0\0\0\0" + huge + bytes(1000)) < 20_000


def test_many_small_entries_are_refused_before_they_cost_much() -> None:
    """Each of these partitions has 6 bytes, and would become objects of some 300."""
    million = 1_000_000
    partitions = uvarint(million + 1) + bytes.fromhex("00000000 01 00") * million
    data = b"\0\0\0\0\0\0\0" + b"\2" + b"\2t" + partitions + b"\0\0"
    assert peak_bytes_of_refusing(ProduceRequest, 9, True, data) < 100_000


def test_entries_are_counted_over_all_arrays_of_a_message() -> None:
    def produce(partitions: int) -> bytes:
        half = uvarint(partitions + 1) + bytes.fromhex("00000000 00 00") * partitions + b"\0"
        return b"\0\0\0\0\0\0\0" + b"\3" + (b"\2t" + half) * 2 + b"\0"

    topics = read(ProduceRequest, 9, True, produce(MAX_ENTRIES // 2 - 1)).topic_data
    assert [len(topic.partition_data) for topic in topics] == [MAX_ENTRIES // 2 - 1] * 2
    with pytest.raises(WireError, match=f"with partition_data it has more than {MAX_ENTRIES} entries"):
        read(ProduceRequest, 9, True, produce(MAX_ENTRIES // 2))


def test_tagged_fields_are_counted_too() -> None:
    """They cost no memory, but time."""
    tags = uvarint(MAX_ENTRIES) + b"\7\0" * MAX_ENTRIES
    body = bytes.fromhex("00 01 00")
    assert read(Thing, 2, True, body + tags) == Thing(names=None, note=None)
    too_many = "with tagged fields it has more than"
    with pytest.raises(WireError, match=too_many):
        read(Thing, 2, True, body + uvarint(MAX_ENTRIES + 1) + tags + bytes(2))
    metadata = bytes.fromhex("02 01") + tags + bytes(10)
    with pytest.raises(WireError, match=too_many):
        read(MetadataRequest, 9, True, metadata)


def test_the_code_of_a_reader_can_be_looked_at() -> None:
    assert "v1_acks, v1_timeout_ms, n, = unpack" in inspect.getsource(reader(ProduceRequest, 9, True))
