"""Idempotent producers, by Kafka's rules; pure.

A log remembers the last 5 batches of each producer. A batch that is among them is a retry: it is answered with the
offset it got at first. Otherwise its first sequence number must be the one after the last, and:

- a producer that the log does not know may start anywhere (its state may have expired);
- a lower epoch than the known one is fenced, a higher one must start at 0;
- sequence numbers wrap from 2^31 - 1 to 0, also inside of a batch.

The state is kept under the same condition as the log's next offset, so that it can't disagree with the log.
"""

from __future__ import annotations

import msgspec

from catena.errors import OutOfOrderSequence, ProducerFenced
from catena.formats.record_batch import BatchHeader
from catena.types import Offset

MAX_SEQUENCE = 2**31 - 1
REMEMBERED_BATCHES = 5
EXPIRY_MS = 24 * 3600 * 1000
"""A producer that has been silent for so long is forgotten, as Kafka's producer.id.expiration.ms has it."""


class ProducerBatch(msgspec.Struct, frozen=True, array_like=True):
    first_sequence: int
    last_sequence: int
    offset: Offset
    count: int


class ProducerState(msgspec.Struct, frozen=True):
    """What a log knows of one producer; `batches` are the newest last."""

    epoch: int
    updated_ms: int
    batches: tuple[ProducerBatch, ...]

    @property
    def end(self) -> Offset:
        """The offset after its newest batch; a greater one means a newer state."""
        newest = self.batches[-1]
        return newest.offset + newest.count


def advance_sequence(sequence: int, by: int) -> int:
    return (sequence + by) % (MAX_SEQUENCE + 1)


def check_first(state: ProducerState | None, header: BatchHeader, not_before: int | None) -> None:
    """A log takes any first batch of a producer that it does not know, but not one behind a batch that failed."""
    if state is None and not_before is not None and header.base_sequence > not_before:
        raise OutOfOrderSequence(
            f"producer {header.producer_id} sends sequence {header.base_sequence}; {not_before} failed, and comes first"
        )


def find_duplicate(state: ProducerState | None, header: BatchHeader) -> Offset | None:
    """None if the batch is the next one of its producer, the offset it already has if it is a retry; else raises."""
    if state is None:
        return None
    if header.producer_epoch < state.epoch:
        raise ProducerFenced(
            f"producer {header.producer_id} writes with epoch {header.producer_epoch}, but {state.epoch} has written"
        )
    if header.producer_epoch > state.epoch:
        if header.base_sequence != 0:
            raise OutOfOrderSequence(
                f"producer {header.producer_id} starts epoch {header.producer_epoch} with sequence "
                f"{header.base_sequence}, not 0"
            )
        return None
    last = advance_sequence(header.base_sequence, header.last_offset_delta)
    for batch in state.batches:
        if batch.first_sequence == header.base_sequence and batch.last_sequence == last:
            return batch.offset
    expected = advance_sequence(state.batches[-1].last_sequence, 1)
    if header.base_sequence != expected:
        raise OutOfOrderSequence(
            f"producer {header.producer_id} sends sequence {header.base_sequence}, and {expected} is the next"
        )
    return None


def with_batch(state: ProducerState | None, header: BatchHeader, offset: Offset, now_ms: int) -> ProducerState:
    """The state after this batch, which is no duplicate, was given `offset`."""
    batch = ProducerBatch(
        header.base_sequence, advance_sequence(header.base_sequence, header.last_offset_delta), offset, header.count
    )
    earlier = state.batches if state is not None and state.epoch == header.producer_epoch else ()
    return ProducerState(header.producer_epoch, now_ms, (*earlier[1 - REMEMBERED_BATCHES :], batch))


def unexpired(state: ProducerState | None, now_ms: int) -> ProducerState | None:
    return state if state is not None and now_ms - state.updated_ms < EXPIRY_MS else None
