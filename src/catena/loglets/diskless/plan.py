"""What one commit does to one partition; pure.

Given the control record as it was last seen and the runs that wait in line, it says which offsets the batches get,
which index entries and producer states follow, and what each appender is told. Whether it comes true is decided by the
compare-and-set of the control record (and, in a group, of the producer records) that it was planned from.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import NamedTuple, Protocol, TypeAlias

from catena.errors import OutOfOrderSequence, ProducerFenced, Rejected, Sealed, StaleView
from catena.loglets.base import Entry, LinkSpec, Stored
from catena.loglets.diskless.records import Control, IndexEntry
from catena.loglets.producers import ProducerState, check_first, find_duplicate, unexpired, with_batch
from catena.types import Offset

Answer: TypeAlias = Offset | Rejected | StaleView


class ProducerEpoch(NamedTuple):
    producer_id: int
    epoch: int


class StoredRun(Protocol):
    """Consecutive entries of one partition that lie one after the other in one blob."""

    @property
    def entries(self) -> Sequence[Entry | Stored]: ...
    @property
    def data_key(self) -> str: ...
    @property
    def byte_offset(self) -> int: ...
    @property
    def created_at_ms(self) -> int: ...


class Plan(NamedTuple):
    append_id: str
    control: Control
    """After the commit, `pending` left empty."""
    entries: tuple[IndexEntry, ...]
    producers: dict[int, ProducerState]
    """The states that the commit changes."""
    answers: list[list[Answer]]
    """By run and entry."""
    placed: list[tuple[Offset, Entry | Stored]]
    """The entries that are new, each with the offset it gets."""

    @property
    def is_empty(self) -> bool:
        return not self.entries


def opened(control: Control | None, link: LinkSpec) -> Control:
    """The control record as this link's writers see it, or Sealed if they may not write any more.

    A link is opened by its first commit, from a lower epoch: the chain has the link only after the one before was
    sealed, and a seal leaves a FENCED record behind even where nothing was ever written.
    """
    if control is None or control.epoch < link.epoch:
        return Control(link.epoch, "OPEN", link.base)
    if control.epoch > link.epoch:
        raise Sealed(f"{link.partition}: epoch {control.epoch} has followed epoch {link.epoch}")
    if control.state == "FENCED":
        raise Sealed(f"{link.partition}: epoch {link.epoch} is sealed at {control.next}")
    return control


def make_plan(
    control: Control,
    runs: Sequence[StoredRun],
    known: Mapping[int, ProducerState | None],
    failed: Mapping[ProducerEpoch, int],
    append_id: str,
    now_ms: int,
) -> Plan:
    """`control` is open; `known` has the state of every producer that stands in `runs`.

    `failed` has the sequence number that a producer has to come back with after a batch of it failed here: the log does
    not know a new producer, so it would take the batches that were in flight behind the failed one, and then refuse the
    failed one when it is sent again. Those in front of it are taken: uploads end in any order.
    """
    producers = {producer: unexpired(state, now_ms) for producer, state in known.items()}
    changed: dict[int, ProducerState] = {}
    index: list[IndexEntry] = []
    answers: list[list[Answer]] = []
    placed: list[tuple[Offset, Entry | Stored]] = []
    offset = control.next
    for run in runs:
        told: list[Answer] = []
        position = run.byte_offset
        for entry in run.entries:
            header, size = entry.header, entry.size
            answer: Answer | None = None
            if isinstance(entry, Stored) and now_ms >= entry.not_after_ms:
                # The same clock, read once, says whether producers are forgotten: nothing can come between the two.
                answer = StaleView(f"{entry.key} comes too late: look again whether its batches are in the log")
            elif header.has_producer:
                try:
                    producer = ProducerEpoch(header.producer_id, header.producer_epoch)
                    check_first(producers[header.producer_id], header, entry.not_before)
                    check_first(producers[header.producer_id], header, failed.get(producer))
                    answer = find_duplicate(producers[header.producer_id], header)
                except (ProducerFenced, OutOfOrderSequence) as rejected:
                    answer = rejected
                if answer is None:
                    state = with_batch(producers[header.producer_id], header, offset, now_ms)
                    producers[header.producer_id] = changed[header.producer_id] = state
            if answer is None:
                answer = offset
                placed.append((offset, entry))
                offset += header.count
                _extend(index, run, position, size, offset - 1, header.count, header.max_timestamp, append_id)
            told.append(answer)
            position += size
        answers.append(told)
    after = Control(control.epoch, "OPEN", offset)
    return Plan(append_id, after, tuple(index), changed, answers, placed)


def _extend(
    index: list[IndexEntry],
    run: StoredRun,
    position: int,
    size: int,
    end_offset: Offset,
    count: int,
    max_timestamp: int,
    append_id: str,
) -> None:
    """Byte-adjacent batches of one blob share an index entry."""
    if index:
        last = index[-1]
        assert last.byte_length is not None
        if last.data_key == run.data_key and last.byte_offset + last.byte_length == position:
            count += last.msg_count
            size += last.byte_length
            position = last.byte_offset
            max_timestamp = max(max_timestamp, last.max_timestamp)
            index.pop()
    index.append(
        IndexEntry(end_offset, count, run.data_key, size, position, append_id, max_timestamp, run.created_at_ms)
    )
