"""Idempotent producers of which a batch has failed, so that the batches behind it do not go first.

A log takes whatever batch comes first from a producer that it does not know. If the first one fails for a moment, and
the second one, sent before its sender heard of that, is taken, then the first one is refused for ever when it is sent
again. So the batches behind one that failed say so (`Entry.not_before`), and a log that does not know their producer
refuses them. A log that knows it goes by its sequence numbers: the failed one may have come in through another node.
"""

from __future__ import annotations

from typing import NamedTuple

from catena.formats.record_batch import BatchHeader
from catena.loglets.base import Entry, Stored

MAX_PRODUCERS = 1000
"""Of one log. The oldest is forgotten."""
IN_FLIGHT_MAX_S = 600.0
"""Nothing that was sent before its sender heard of a failure comes in so long after it."""


class _Failed(NamedTuple):
    sequence: int
    at: float


class FailedProducers:
    __slots__ = ("_failed",)

    def __init__(self) -> None:
        self._failed: dict[tuple[int, int], _Failed] = {}

    def admit(self, entry: Entry | Stored, now: float) -> Entry | Stored:
        """The entry as it is handed to a link. The mark stays until a batch is in the log: when the one that failed
        comes again, batches that were called before it may still be on their way to another link."""
        if not self._failed or not entry.header.has_producer:
            return entry
        producer = _producer(entry.header)
        failed = self._failed.get(producer)
        if failed is None:
            return entry
        if now - failed.at > IN_FLIGHT_MAX_S:
            del self._failed[producer]
            return entry
        return entry._replace(not_before=failed.sequence)

    def note(self, header: BatchHeader, now: float) -> None:
        """It failed, or nobody knows whether it did."""
        if not header.has_producer:
            return
        producer, sequence = _producer(header), header.base_sequence
        before = self._failed.pop(producer, None)
        self._failed[producer] = _Failed(min(sequence, before.sequence) if before is not None else sequence, now)
        if len(self._failed) > MAX_PRODUCERS:
            del self._failed[next(iter(self._failed))]

    def settle(self, header: BatchHeader) -> None:
        """It is in the log, which knows the producer from now on."""
        if self._failed and header.has_producer:
            self._failed.pop(_producer(header), None)


def _producer(header: BatchHeader) -> tuple[int, int]:
    return header.producer_id, header.producer_epoch
