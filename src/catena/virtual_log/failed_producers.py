"""Idempotent producers of which a batch has failed, so that the batches behind it do not go first.

A log takes whatever batch comes first from a producer that it does not know. If the first one fails for a moment, and
the second one, sent before its sender heard of that, is taken, then the first one is refused for ever when it is sent
again. So a batch that failed is waited for: those with a higher sequence number are to be sent again after it.
"""

from __future__ import annotations

from catena.errors import RetryLater
from catena.formats.record_batch import BatchHeader

MAX_PRODUCERS = 1000
"""Of one log. The oldest is forgotten, and was given up by its sender most likely."""


class FailedProducers:
    __slots__ = ("_failed",)

    def __init__(self) -> None:
        self._failed: dict[tuple[int, int], int] = {}

    def admit(self, header: BatchHeader) -> None:
        """It goes to a link now. Raises RetryLater for a batch behind one that failed; that one lets the others in."""
        if not self._failed or not header.has_producer:
            return
        producer = (header.producer_id, header.producer_epoch)
        expected = self._failed.get(producer)
        if expected is None:
            return
        if header.base_sequence > expected:
            raise RetryLater(
                f"producer {header.producer_id} sends sequence {header.base_sequence}, and {expected} failed before: "
                "send that one again first"
            )
        if header.base_sequence == expected:
            del self._failed[producer]

    def note(self, header: BatchHeader) -> None:
        """It failed, or nobody knows whether it did."""
        if header.has_producer:
            producer, sequence = (header.producer_id, header.producer_epoch), header.base_sequence
            self._failed[producer] = min(sequence, self._failed.get(producer, sequence))
            if len(self._failed) > MAX_PRODUCERS:
                del self._failed[next(iter(self._failed))]
