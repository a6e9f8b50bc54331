"""Read everything back with a Kafka client, and hold it against the ledgers of those who sent it.

Found to be wrong is: an acked record that is not there (lost); one that is there twice (duplicated), or at another
offset than its ack said (moved), or in another partition (misplaced); one that was refused or never sent, and is
there all the same (unexpected); one whose bytes are not those that were sent (damaged); and records of a Kafka
producer that are not in the order in which it sent them (reordered). HTTP requests overtake each other, so theirs
have no order. A record of unknown outcome may be there once or not.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import msgspec
from confluent_kafka import Consumer, TopicPartition

from catena.loadtest.hammers.base import Order, Orders, Said, say
from catena.loadtest.hammers.kafka_consume import consumer_settings
from catena.loadtest.ledger import ACKED, DROPPED, FAILED, Ledger
from catena.loadtest.records import RecordForm

AT_ONCE = 10_000
SILENT_MAX = 60
"""Seconds in which nothing comes; then what is missing counts as not there."""
SHOWN = 20


class Verified(msgspec.Struct):
    """Records that were found, and what was wrong, with the first examples of it."""

    read: int = 0
    acked: int = 0
    unacked_found: int = 0
    """Whose outcome was unknown, and which are in the log."""
    unread: int = 0
    """Offsets up to the tails that did not come."""
    lost: int = 0
    duplicated: int = 0
    moved: int = 0
    misplaced: int = 0
    unexpected: int = 0
    damaged: int = 0
    reordered: int = 0
    examples: list[str] = []

    @property
    def wrong(self) -> int:
        kinds = (self.unread, self.lost, self.duplicated, self.moved, self.misplaced, self.unexpected, self.damaged)
        return sum(kinds) + self.reordered


class Verifier:
    """Takes records one after the other, those of a partition in the order of their offsets."""

    def __init__(self, order: Order, ledgers: dict[int, Ledger]) -> None:
        self._order = order
        self._ledgers = ledgers
        self._seen = {hammer: bytearray(len(ledger)) for hammer, ledger in ledgers.items()}
        self._form = RecordForm(order.seed, order.load.record_bytes)
        self._last: dict[tuple[int, str, int], int] = {}
        self.found = Verified()

    def take(self, topic: str, partition: int, offset: int, value: bytes) -> None:
        found = self.found
        found.read += 1
        record = self._form.check(value)
        if record is None or record[0] not in self._ledgers or record[1] >= len(self._ledgers[record[0]]):
            found.damaged += 1
            self._show(f"{topic}/{partition} offset {offset} is no record that was sent")
            return
        hammer, sequence = record
        what = f"record {sequence} of hammer {hammer}, in {topic}/{partition} at offset {offset},"
        places = self._order.places
        if places[sequence // self._order.rows[hammer] % len(places)] != (topic, partition):
            found.misplaced += 1
            self._show(f"{what} was sent to another partition")
            return
        self._hold(hammer, sequence, offset, what)
        if self._order.sent_by[hammer] == "kafka-produce":
            if sequence < self._last.get((hammer, topic, partition), -1):
                found.reordered += 1
                self._show(f"{what} comes after a later one")
            self._last[hammer, topic, partition] = sequence

    def _hold(self, hammer: int, sequence: int, offset: int, what: str) -> None:
        found, ledger, seen = self.found, self._ledgers[hammer], self._seen[hammer]
        if seen[sequence]:
            found.duplicated += 1
            self._show(f"{what} is there a second time")
            return
        seen[sequence] = 1
        state = ledger.states[sequence]
        if state == ACKED:
            found.acked += 1
            if ledger.offsets[sequence] != offset:
                found.moved += 1
                self._show(f"{what} was acked at offset {ledger.offsets[sequence]}")
        elif state in (FAILED, DROPPED):
            found.unexpected += 1
            self._show(f"{what} was {'refused' if state == FAILED else 'never sent'}")
        else:
            found.unacked_found += 1

    def end(self) -> Verified:
        for hammer, ledger in self._ledgers.items():
            seen = self._seen[hammer]
            for sequence, state in enumerate(ledger.states):
                if state == ACKED and not seen[sequence]:
                    self.found.lost += 1
                    self._show(f"record {sequence} of hammer {hammer}, acked at {ledger.offsets[sequence]}, is lost")
        return self.found

    def _show(self, example: str) -> None:
        if len(self.found.examples) < SHOWN:
            self.found.examples.append(example)


def verify(orders: Orders) -> None:
    order = orders.order
    ledgers = {hammer: Ledger.load(Path(order.ledger, str(hammer))) for hammer in order.rows}
    verifier = Verifier(order, ledgers)
    left = {
        place: end - start
        for place, start, end in zip(order.places, order.starts, order.ends, strict=True)
        if end > start
    }
    orders.wait_for_start()
    if left:
        _read(order, verifier, left, orders)
    verifier.found.unread = sum(left.values())
    say(Said(verified=msgspec.to_builtins(verifier.end())))


def _read(order: Order, verifier: Verifier, left: dict[tuple[str, int], int], orders: Orders) -> None:
    """Up to the ends; `left` is what is still to come of each partition."""
    consumer = Consumer({**consumer_settings(order.bootstrap, order.name), "check.crcs": True})
    bounds = dict(zip(order.places, zip(order.starts, order.ends, strict=True), strict=True))
    consumer.assign([TopicPartition(topic, partition, bounds[topic, partition][0]) for topic, partition in left])
    silent = 0
    while any(left.values()) and silent < SILENT_MAX and not orders.stopped.is_set():
        messages: list[Any] = consumer.consume(AT_ONCE, 1.0)
        silent = 0 if messages else silent + 1
        for message in messages:
            if message.error() is not None:
                continue
            place = message.topic(), message.partition()
            if message.offset() < bounds[place][1]:
                left[place] -= 1
                verifier.take(*place, message.offset(), message.value() or b"")
    consumer.close()
