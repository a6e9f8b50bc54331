"""Kafka's rules for idempotent producers, written down once more and as plainly as can be: all batches are kept."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import NamedTuple

from catena.testing.contracts.loglet import Stamp

SEQUENCES = 2**31
REMEMBERED = 5


class Taken(NamedTuple):
    stamp: Stamp
    records: int
    offset: int
    time_ms: int

    @property
    def next_sequence(self) -> int:
        return (self.stamp.sequence + self.records) % SEQUENCES


@dataclass
class KafkaRules:
    """A log that says what becomes of each batch: its offset, or the name of the error."""

    expiry_ms: int
    tail: int = 0
    batches: dict[int, list[Taken]] = field(default_factory=dict)

    def append(self, stamp: Stamp, count: int, time_ms: int) -> int | str:
        known = self.batches.get(stamp.producer_id, [])
        if known and time_ms - known[-1].time_ms >= self.expiry_ms:
            known = []
        if known:
            newest = known[-1]
            if stamp.epoch < newest.stamp.epoch:
                return "ProducerFenced"
            if stamp.epoch > newest.stamp.epoch:
                if stamp.sequence != 0:
                    return "OutOfOrderSequence"
                known = []
            else:
                for taken in known[-REMEMBERED:]:
                    if (taken.stamp.sequence, taken.records) == (stamp.sequence, count):
                        return taken.offset
                if stamp.sequence != newest.next_sequence:
                    return "OutOfOrderSequence"
        offset, self.tail = self.tail, self.tail + count
        self.batches[stamp.producer_id] = [*known, Taken(stamp, count, offset, time_ms)]
        return offset

    def next_stamp(self, producer_id: int) -> Stamp:
        """What this producer would send next."""
        newest = self.batches[producer_id][-1]
        return Stamp(producer_id, newest.stamp.epoch, newest.next_sequence)
