"""What the diskless loglet keeps in the meta store reads back as it was, and says its key when it can't be read."""

from __future__ import annotations

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from catena.errors import Corrupt
from catena.loglets.diskless.records import (
    Control,
    IndexEntry,
    Pending,
    ProducerRecord,
    decode_control,
    decode_index_entry,
    decode_producer,
    encode,
)
from catena.loglets.producers import ProducerBatch, ProducerState

offsets = st.integers(0, 2**63 - 1)
counts = st.integers(1, 2**31 - 1)
sequences = st.integers(0, 2**31 - 1)
names = st.text(max_size=40)

index_entries = st.builds(
    IndexEntry,
    end_offset=offsets,
    msg_count=counts,
    data_key=names,
    byte_length=st.none() | st.integers(0, 2**40),
    byte_offset=st.integers(0, 2**40),
    append_id=names,
    max_timestamp=st.integers(-1, 2**62),
    created_at_ms=st.integers(0, 2**62),
    encoding=names,
)
states = st.builds(
    ProducerState,
    epoch=st.integers(0, 2**15 - 1),
    updated_ms=st.integers(0, 2**62),
    batches=st.lists(st.builds(ProducerBatch, sequences, sequences, offsets, counts), max_size=5).map(tuple),
)
pendings = st.builds(
    Pending,
    append_id=names,
    entries=st.lists(index_entries, max_size=3).map(tuple),
    producers=st.dictionaries(st.integers(0, 2**63 - 1), states, max_size=3),
)


@given(
    st.builds(
        Control,
        epoch=offsets,
        state=st.sampled_from(["OPEN", "FENCED"]),
        next=offsets,
        pending=st.none() | pendings,
    )
)
def test_a_control_record_reads_back(control: Control) -> None:
    assert decode_control("key", encode(control)) == control


@given(index_entries)
def test_an_index_entry_reads_back(entry: IndexEntry) -> None:
    assert decode_index_entry("key", encode(entry)) == entry
    assert entry.end_offset - entry.start_offset + 1 == entry.msg_count


@given(st.builds(ProducerRecord, link_epoch=offsets, state=states))
def test_a_producer_record_reads_back(record: ProducerRecord) -> None:
    assert decode_producer("key", encode(record)) == record


@pytest.mark.parametrize("decode", [decode_control, decode_index_entry, decode_producer])
@pytest.mark.parametrize("value", [b"", b"{", b"{}", b"[]", b"null", b"\xff", b'{"epoch": "x"}'])
def test_what_cannot_be_read_is_named(decode: object, value: bytes) -> None:
    assert callable(decode)
    with pytest.raises(Corrupt, match="some/key"):
        decode("some/key", value)


def test_what_a_newer_version_added_is_passed_over() -> None:
    value = msgspec.json.encode({"epoch": 1, "state": "OPEN", "next": 5, "colour": "red"})
    assert decode_control("key", value) == Control(1, "OPEN", 5)


def test_a_state_that_is_not_known_is_not_taken_for_another() -> None:
    with pytest.raises(Corrupt):
        decode_control("key", b'{"epoch": 1, "state": "AJAR", "next": 5}')


def test_an_entry_of_older_data_has_its_end_offset_in_the_key() -> None:
    older = (
        b'{"type":"WAL","msg_count":3,"data_key":"s3://bucket/llog/orders/partitions/0/data/wal/1f","created_at_ms":1760000000000,'
        b'"encoding":"bytes-batch-v1"}'
    )
    entry = decode_index_entry("llog/t/partitions/0/index/00000000000000000007", older)
    assert (entry.start_offset, entry.end_offset, entry.encoding) == (5, 7, "bytes-batch-v1")
    with pytest.raises(Corrupt, match="llog/cluster"):
        decode_index_entry("llog/cluster", older)
