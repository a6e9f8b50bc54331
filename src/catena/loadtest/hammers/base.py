"""What a hammer is told, and what it says."""

from __future__ import annotations

import os
import sys
import threading
from typing import Any

import msgspec

from catena.loadtest.histogram import Histogram, merged
from catena.loadtest.routing import Manifest, Remap
from catena.loadtest.scenario import Http, Kafka, Load

READ_BYTES = 1 << 20
ERROR_KINDS = 20
"""Of different words are kept; the rest is `other`."""


class Order(msgspec.Struct, frozen=True):
    role: str
    """`kafka-produce`, `kafka-consume`, `http-produce`, `http-consume` or `verify`."""
    name: str
    hammer: int
    """Its number in records."""
    seed: int
    bootstrap: str
    """Kafka's."""
    http: dict[str, str]
    """HOST:PORT of nodes, by name."""
    manifest: Manifest
    places: list[tuple[str, int]]
    """Partitions: all for a producer, in their order; its own for a consumer."""
    starts: list[int]
    """The offset of each at which a consumer begins."""
    load: Load
    kafka: Kafka
    http_load: Http
    per_s: float = 0.0
    """Records of all hammers of its role."""
    number: int = 0
    """Which of them it is."""
    of: int = 1
    ledger: str = ""
    """A file; empty: none is kept. For `verify`: a folder with all of them."""
    ends: list[int] = []
    """Of each place, for `verify`: where to stop."""
    rows: dict[int, int] = {}
    """Records in a row of each hammer, for `verify`."""
    sent_by: dict[int, str] = {}
    """Role of each hammer, for `verify`."""


class Counts(msgspec.Struct, omit_defaults=True, kw_only=True):
    """What hammers saw. Counts are records."""

    due: int = 0
    acked: int = 0
    failed: int = 0
    """Surely not in the log."""
    unknown: int = 0
    """May be in the log."""
    dropped: int = 0
    """Never sent: the backlog was full."""
    read: int = 0
    bytes: int = 0
    """Of record values that were acked or read."""
    latency: dict[int, int] = {}
    """Buckets of a histogram. Producers: from when it was due to its ack; consumers: to when they had it."""
    late: dict[int, int] = {}
    """Buckets as well: from when it was due to when a producer got to it. So much of a latency is the hammer's own."""
    errors: dict[str, int] = {}

    def add(self, other: Counts) -> None:
        for name in ("due", "acked", "failed", "unknown", "dropped", "read", "bytes"):
            setattr(self, name, getattr(self, name) + getattr(other, name))
        self.latency = merged((self.latency, other.latency)).counts
        self.late = merged((self.late, other.late)).counts
        for kind, count in other.errors.items():
            self.error(kind, count)

    def error(self, what: str, count: int = 1) -> None:
        kind = what if what in self.errors or len(self.errors) < ERROR_KINDS else "other"
        self.errors[kind] = self.errors.get(kind, 0) + count


class Interval(Counts, omit_defaults=True):
    """Of one hammer, in a while."""

    hammer: str
    role: str
    t: float
    """When it ended, in seconds since the hammers were let go, the warm-up included."""
    seconds: float
    backlog: int = 0
    """At its end: due, and nothing is known yet."""
    remaps: list[Remap] = []


class Said(msgspec.Struct, omit_defaults=True):
    """A line of a hammer: one of these."""

    ready: bool = False
    interval: Interval | None = None
    verified: dict[str, Any] | None = None
    done: bool = False


class Told(msgspec.Struct, omit_defaults=True):
    start: float | None = None
    stop: bool = False


def say(said: Said) -> None:
    sys.stdout.buffer.write(msgspec.json.encode(said) + b"\n")
    sys.stdout.buffer.flush()


class Orders:
    """The other end of our stdin, read by a thread, since producers must not wait for it."""

    def __init__(self) -> None:
        self._received = b""
        self.stopped = threading.Event()
        self.order = msgspec.json.decode(self._line(), type=Order)

    def wait_for_start(self) -> float:
        """Says that we are ready; returns when to begin. EOFError if nobody wants us to."""
        say(Said(ready=True))
        line = self._line()
        told = msgspec.json.decode(line, type=Told) if line else Told()
        if told.start is None:
            raise EOFError
        threading.Thread(target=self._listen, daemon=True).start()
        return told.start

    def _listen(self) -> None:
        line = self._line()
        assert not line or msgspec.json.decode(line, type=Told).stop
        self.stopped.set()

    def _line(self) -> bytes:
        """Empty at the end. Not by sys.stdin: Python can't end in peace while a thread waits in its buffer."""
        while b"\n" not in self._received:
            more = os.read(sys.stdin.fileno(), READ_BYTES)
            if not more:
                return b""
            self._received += more
        line, _, self._received = self._received.partition(b"\n")
        return line


class Tally:
    """Counts since the last line, and all together as far as a hammer needs them itself."""

    def __init__(self, order: Order, start: float) -> None:
        self._order = order
        self._start = start
        self._since = start
        self._now = Interval(order.name, order.role, 0.0, 0.0)
        self._measured_from = start + order.load.warm_up_s
        self._latency, self._late = Histogram(), Histogram()
        self.next_at = start + order.load.interval_s
        self.outstanding = 0

    def due(self, count: int = 1) -> None:
        self._now.due += count
        self.outstanding += count

    def got_to(self, due: float, now: float, count: int = 1) -> None:
        """So many, the first of which was due then, are handed over now."""
        if due >= self._measured_from:
            self._late.add(now - due, count)

    def acked(self, due: float, now: float, count: int, size: int) -> None:
        self.outstanding -= count
        self._now.acked += count
        self._now.bytes += size
        if due >= self._measured_from:
            self._latency.add(now - due, count)

    def read(self, due: float, now: float, size: int) -> None:
        self._now.read += 1
        self._now.bytes += size
        if due >= self._measured_from:
            self._latency.add(now - due)

    def failed(self, count: int, error: str) -> None:
        self.outstanding -= count
        self._now.failed += count
        self.error(error, count)

    def unknown(self, count: int, error: str) -> None:
        self.outstanding -= count
        self._now.unknown += count
        self.error(error, count)

    def dropped(self, count: int = 1) -> None:
        self.outstanding -= count
        self._now.dropped += count

    def error(self, what: str, count: int = 1) -> None:
        self._now.error(what, count)

    def remap(self, remap: Remap | None) -> None:
        if remap is not None:
            self._now.remaps.append(remap)

    def tell(self, now: float, last: bool = False) -> None:
        """Say a line if it is time."""
        if now < self.next_at and not last:
            return
        told = self._now
        told.t, told.seconds = round(now - self._start, 3), round(now - self._since, 3)
        told.backlog, told.latency, told.late = self.outstanding, self._latency.take(), self._late.take()
        say(Said(interval=told))
        self._now = Interval(self._order.name, self._order.role, 0.0, 0.0)
        self._since = now
        self.next_at += self._order.load.interval_s * (1 + (now - self.next_at) // self._order.load.interval_s)
