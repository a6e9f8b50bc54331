"""What a commit does to a partition, as a pure function: every byte that gets an offset is found by it again."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

import pytest
from hypothesis import given
from hypothesis import strategies as st

from catena.errors import Sealed, StaleView
from catena.loglets.base import Entry, Stored, spanning_header
from catena.loglets.diskless.partition import Partition
from catena.loglets.diskless.plan import Plan, ProducerEpoch, make_plan, opened
from catena.loglets.diskless.records import Control
from catena.loglets.producers import ProducerBatch
from catena.testing.contracts.loglet import Links, Stamp, make_entry

LINK = Links().spec(epoch=3, base=40)


@dataclass
class Run:
    data_key: str
    byte_offset: int
    entries: Sequence[Entry]
    created_at_ms: int = 77

    @property
    def body(self) -> bytes:
        return b"".join(bytes(entry.data) for entry in self.entries)


def plan(runs: Sequence[Run], start: int = 0, failed: dict[ProducerEpoch, int] | None = None) -> Plan:
    known = {entry.header.producer_id: None for run in runs for entry in run.entries if entry.header.has_producer}
    return make_plan(Control(1, "OPEN", start), runs, known, failed or {}, "id", 1000)


entries = st.builds(
    lambda count, stamp, timestamp_ms: make_entry(*["x"] * count, stamp=stamp, timestamp_ms=timestamp_ms),
    st.integers(1, 3),
    # Few producers and sequence numbers, so that many are duplicates and many are refused.
    st.none() | st.builds(Stamp, st.integers(1, 2), st.just(0), st.integers(0, 2)),
    st.integers(0, 100),
)
runs_of_blobs = st.lists(
    st.tuples(st.integers(0, 50), st.lists(entries, min_size=1, max_size=6)), min_size=1, max_size=4
).map(lambda runs: [Run(f"blob {number}", offset, run) for number, (offset, run) in enumerate(runs)])


@given(runs_of_blobs, st.integers(0, 1000))
def test_offsets_are_contiguous_and_found_by_the_index(runs: list[Run], start: int) -> None:
    made = plan(runs, start)
    blobs = {run.data_key: bytes(run.byte_offset) + run.body for run in runs}
    offset, found = start, b""
    for entry in made.entries:
        assert entry.start_offset == offset
        assert entry.byte_length is not None
        assert entry.append_id == "id"
        assert entry.created_at_ms == 77
        found += blobs[entry.data_key][entry.byte_offset :][: entry.byte_length]
        offset = entry.end_offset + 1
    assert made.control == Control(1, "OPEN", offset)
    assert found == b"".join(bytes(entry.data) for _, entry in made.placed if isinstance(entry, Entry))
    at = start
    for placed, batch in made.placed:
        assert placed == at
        at += batch.header.count
    assert at == offset


@given(runs_of_blobs)
def test_each_appender_gets_an_answer_and_duplicates_that_of_the_first(runs: list[Run]) -> None:
    made = plan(runs)
    assert [len(answers) for answers in made.answers] == [len(run.entries) for run in runs]
    first_offsets: dict[bytes, int] = {}
    placed = {offset for offset, _ in made.placed}
    for run, answers in zip(runs, made.answers, strict=True):
        for entry, answer in zip(run.entries, answers, strict=True):
            if isinstance(answer, int):
                assert answer in placed
                if entry.header.has_producer:
                    key = bytes(entry.data[43:61])  # producer, epoch, sequence and number of records
                    assert first_offsets.setdefault(key, answer) == answer


@given(runs_of_blobs)
def test_byte_adjacent_batches_of_a_blob_share_an_entry(runs: list[Run]) -> None:
    made = plan(runs)
    for left, right in zip(made.entries, made.entries[1:], strict=False):
        assert left.byte_length is not None
        assert (left.data_key, left.byte_offset + left.byte_length) != (right.data_key, right.byte_offset)
    for entry in made.entries:
        times = [
            each.header.max_timestamp
            for offset, each in made.placed
            if entry.start_offset <= offset <= entry.end_offset
        ]
        assert entry.max_timestamp == max(times)


def test_after_a_failed_first_batch_only_that_one_is_taken() -> None:
    failed = {ProducerEpoch(7, 0): 0}
    late, again = make_entry("b", stamp=Stamp(7, 0, 1)), make_entry("a", stamp=Stamp(7, 0, 0))
    made = plan([Run("blob", 0, [late, again, late])], failed=failed)
    assert [type(answer).__name__ for answer in made.answers[0]] == ["OutOfOrderSequence", "int", "int"]
    other_epoch = make_entry("a", stamp=Stamp(7, 1, 0))
    assert plan([Run("blob", 0, [other_epoch])], failed=failed).answers == [[0]]


def test_batches_in_front_of_a_failed_one_are_taken() -> None:
    first, second = make_entry("a", stamp=Stamp(7, 0, 0)), make_entry("b", stamp=Stamp(7, 0, 1))
    assert plan([Run("blob", 0, [first, second])], failed={ProducerEpoch(7, 0): 1}).answers == [[0, 1]]


def test_of_several_failed_batches_the_first_counts_whichever_failed_first() -> None:
    partition = Partition(LINK.partition)
    for sequence in (2, 0, 1):
        partition.note_failed([make_entry("a", stamp=Stamp(7, 0, sequence))])
    assert partition.failed == {ProducerEpoch(7, 0): 0}


def test_a_plan_of_nothing_new_is_empty() -> None:
    entry = make_entry("a", stamp=Stamp(7, 0, 0))
    assert not plan([Run("blob", 0, [entry])]).is_empty
    assert plan([Run("blob", 0, [make_entry("a", stamp=Stamp(7, 0, 1))])], failed={ProducerEpoch(7, 0): 0}).is_empty


def test_a_link_is_opened_from_nothing_or_from_a_lower_epoch() -> None:
    assert opened(None, LINK) == Control(3, "OPEN", 40)
    assert opened(Control(2, "FENCED", 40), LINK) == Control(3, "OPEN", 40)
    assert opened(Control(3, "OPEN", 50), LINK) == Control(3, "OPEN", 50)


@pytest.mark.parametrize("control", [Control(3, "FENCED", 50), Control(4, "OPEN", 50), Control(4, "FENCED", 50)])
def test_a_link_that_is_sealed_or_followed_is_not_opened(control: Control) -> None:
    with pytest.raises(Sealed):
        opened(control, LINK)


def test_what_is_stored_is_placed_in_one_piece_and_not_too_late() -> None:
    async def fetch() -> bytes:
        raise AssertionError("nobody reads it")

    def stored(not_after_ms: int) -> Stored:
        return Stored(spanning_header(5, 300, 9, 1 << 62, 0), "blob", 8, 77, not_after_ms, fetch)

    class OneRun(NamedTuple):
        entries: list[Entry | Stored]
        data_key: str = "blob"
        byte_offset: int = 8
        created_at_ms: int = 77

    control = Control(1, "OPEN", 40)
    made = make_plan(control, [OneRun([stored(101)])], {1 << 62: None}, {}, "id", 100)
    (entry,) = made.entries
    assert (entry.start_offset, entry.end_offset, entry.byte_offset, entry.byte_length) == (40, 44, 8, 300)
    assert made.answers == [[40]]
    assert made.producers[1 << 62].batches[-1] == ProducerBatch(0, 4, 40, 5)
    late = make_plan(control, [OneRun([stored(100)])], {1 << 62: None}, {}, "id", 100)
    assert late.is_empty
    assert isinstance(late.answers[0][0], StaleView)
    assert late.producers == {}
