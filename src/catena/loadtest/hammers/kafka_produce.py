"""Produce at a given rate by librdkafka, in one thread: what is due is handed over, and acks are taken in between.

The producer is idempotent, so a record that is acked is in the log once. What could not be delivered may be in it:
librdkafka knows for some, but its Python side does not tell.
"""

from __future__ import annotations

from functools import partial
from pathlib import Path
from typing import Any

from confluent_kafka import Producer

from catena.loadtest.hammers.base import Order, Orders, Tally
from catena.loadtest.hammers.kafka_consume import PATIENCE
from catena.loadtest.ledger import DROPPED, UNKNOWN, Ledger
from catena.loadtest.pace import Pace
from catena.loadtest.records import RecordForm
from catena.runtime import Clock

CONNECT_MAX_S = 30.0
AT_ONCE = 256
"""So many are handed over before acks are taken again: an ack that waits for longer would count as a late one."""
TICK_S = 0.002
"""What falls due within it is handed over at once, and it is part of the latency. Shorter waits would be none, since
librdkafka counts milliseconds: the hammer would spin on a core that the nodes need."""
IDLE_S = 0.05


def produce(orders: Orders, clock: Clock) -> None:
    order = orders.order
    producer = Producer(settings_of(order))
    producer.list_topics(timeout=CONNECT_MAX_S)
    start = orders.wait_for_start()
    ledger = Ledger()
    hammer = _KafkaHammer(order, producer, ledger, Tally(order, start), clock)
    seconds = order.load.warm_up_s + order.load.duration_s
    pace = Pace.of(start, seconds, order.per_s, order.number, order.of)
    while len(ledger) < pace.total and not orders.stopped.is_set():
        due = pace.due_by(clock.monotonic())
        hammer.send(pace, min(due, len(ledger) + AT_ONCE))
        behind = due > len(ledger)
        producer.poll(0 if behind else min(max(TICK_S, pace.due_at(len(ledger)) - clock.monotonic()), IDLE_S))
        hammer.tally.tell(clock.monotonic())
    hammer.leave(pace.due_by(clock.monotonic()))
    deadline = clock.monotonic() + order.load.drain_s
    while hammer.tally.outstanding and (left := deadline - clock.monotonic()) > 0:
        producer.flush(min(left, order.load.interval_s))
        hammer.tally.tell(clock.monotonic())
    hammer.tally.tell(clock.monotonic(), last=True)
    if order.ledger:
        ledger.save(Path(order.ledger))


def settings_of(order: Order) -> dict[str, Any]:
    # A record that is not delivered by the end of the drain is given up at the same time by both sides.
    give_up_ms = int((order.load.warm_up_s + order.load.duration_s + order.load.drain_s) * 1000)
    return {
        "bootstrap.servers": order.bootstrap,
        "client.id": order.name,
        "enable.idempotence": True,
        "max.in.flight.requests.per.connection": order.kafka.in_flight,
        "linger.ms": order.kafka.linger_ms,
        "batch.size": order.kafka.batch_bytes,
        "batch.num.messages": 1_000_000,
        "compression.type": order.kafka.compression,
        "queue.buffering.max.messages": order.load.backlog_max + AT_ONCE,
        "queue.buffering.max.kbytes": 2_097_151,
        "message.timeout.ms": max(1_000, min(give_up_ms, 2_147_483_647)),
        "message.max.bytes": 16 << 20,
        "socket.keepalive.enable": True,
        **PATIENCE,
    }


class _KafkaHammer:
    def __init__(self, order: Order, producer: Producer, ledger: Ledger, tally: Tally, clock: Clock) -> None:
        self.tally = tally
        self._order = order
        self._producer = producer
        self._ledger = ledger
        self._clock = clock
        self._form = RecordForm(order.seed, order.load.record_bytes)

    def send(self, pace: Pace, up_to: int) -> None:
        order, tally, ledger = self._order, self.tally, self._ledger
        if up_to > len(ledger):
            tally.got_to(pace.due_at(len(ledger)), self._clock.monotonic(), up_to - len(ledger))
        for sequence in range(len(ledger), up_to):
            ledger.add()
            tally.due()
            if tally.outstanding > order.load.backlog_max:
                self._drop(sequence)
                continue
            due = pace.due_at(sequence)
            topic, partition = order.places[sequence // order.kafka.in_a_row % len(order.places)]
            value = self._form.make(order.hammer, sequence, int(due * 1e6))
            try:
                self._producer.produce(
                    topic, value, partition=partition, on_delivery=partial(self._answered, sequence, due, len(value))
                )
            except BufferError:
                self._drop(sequence)

    def leave(self, up_to: int) -> None:
        """What was due, and we never got to before we were stopped."""
        left = up_to - len(self._ledger)
        if left > 0:
            self._ledger.ended(self._ledger.add(left), DROPPED, left)
            self.tally.due(left)
            self.tally.dropped(left)

    def _drop(self, sequence: int) -> None:
        self._ledger.ended(sequence, DROPPED)
        self.tally.dropped()

    def _answered(self, sequence: int, due: float, size: int, error: Any, message: Any) -> None:
        if error is None:
            self._ledger.acked(sequence, message.offset())
            self.tally.acked(due, self._clock.monotonic(), 1, size)
        else:
            self._ledger.ended(sequence, UNKNOWN)
            self.tally.unknown(1, error.name())
