"""What every client asked and was told, in the order in which it happened.

A tick is the number of an event in the one total order of a run: every call gets one when it is made and another when
its answer arrives. Of two calls, one is before the other only if it was answered before the other was made. A call that
is never answered, or whose answer says that its outcome is unknown, counts as still under way for ever (`NEVER`).

The history knows batches by their payload: each is unique, so that whatever a read returns names the append it came
from. All events go through `note`, whose running hash is the fingerprint of the run.
"""

from __future__ import annotations

import enum
import hashlib
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import NamedTuple

NEVER = 1 << 62


class LogId(NamedTuple):
    """One incarnation of one partition: a topic that is created again has another id."""

    topic: str
    topic_id: str
    partition: int

    def __str__(self) -> str:
        return f"{self.topic}.{self.topic_id[:4]}/{self.partition}"


class Outcome(enum.Enum):
    UNKNOWN = "unknown"
    """Under way, or nobody can tell whether it took effect."""
    OK = "ok"
    FAILED = "failed"
    """It took no effect, and never will."""


@dataclass(slots=True)
class Call:
    """Any call of a client; the kinds below add what was asked and answered."""

    log: LogId
    client: str
    invoked: int
    returned: int = NEVER
    outcome: Outcome = Outcome.UNKNOWN
    error: str = ""
    """A failure that no client may ever meet."""


class Stamp(NamedTuple):
    """Where a batch stands in the order of its idempotent producer."""

    producer_id: int
    epoch: int
    sequence: int


@dataclass(slots=True)
class Append(Call):
    """One batch, through all retries of an idempotent producer: acked once one of them was."""

    batch: int = 0
    count: int = 1
    timestamp_ms: int = 0
    stamp: Stamp | None = None
    offset: int = -1
    """Of the first record, once acked."""
    pipeline: int = 0
    """Not 0: the same for appends that were called on one node one after the other, none waiting for the last."""

    @property
    def end(self) -> int:
        return self.offset + self.count


@dataclass(frozen=True, order=True, slots=True)
class Seen:
    """One batch as a read returned it; `batch` is -1 for bytes that nobody appended."""

    offset: int
    count: int
    batch: int

    @property
    def end(self) -> int:
        return self.offset + self.count


@dataclass(slots=True)
class Read(Call):
    offset: int = 0
    seen: tuple[Seen, ...] = ()
    out_of_range: tuple[int, int] | None = None
    """Start and tail of the log, as an OffsetOutOfRange told them."""
    final: bool = False
    """Made after everything was healed, until the tail was reached."""


@dataclass(slots=True)
class Tail(Call):
    tail: int = -1


@dataclass(slots=True)
class Wait(Call):
    """For the tail; a hint that tells nothing."""


@dataclass(slots=True)
class Start(Call):
    start: int = -1


@dataclass(slots=True)
class FindTime(Call):
    timestamp_ms: int = 0
    offset: int | None = None


@dataclass(slots=True)
class Seal(Call):
    tail: int = -1


@dataclass(slots=True)
class Reconfigure(Call):
    kind: str = ""


@dataclass(slots=True)
class Trim(Call):
    offset: int = 0


@dataclass(slots=True)
class Delete(Call):
    """Of the whole topic; `log.partition` means nothing."""


@dataclass(slots=True)
class History:
    now: Callable[[], float] = lambda: 0.0
    keep_transcript: bool = False
    calls: list[Call] = field(default_factory=list)
    transcript: list[str] = field(default_factory=list)
    _tick: int = 0
    _batches: dict[bytes, int] = field(default_factory=dict)
    _hash: hashlib.blake2b = field(default_factory=lambda: hashlib.blake2b(digest_size=16))

    def note(self, what: str) -> int:
        """Add one event to the order; returns its tick."""
        self._tick += 1
        now = self.now()
        line = f"{self._tick} {now:.6f} {what}"
        self._hash.update(line.encode())
        if self.keep_transcript:
            self.transcript.append(line)
        return self._tick

    def fingerprint(self) -> str:
        return self._hash.hexdigest()

    def new_batch(self) -> int:
        """A number for the next batch; its payload is made known with `know`."""
        return len(self._batches)

    def know(self, payload: bytes) -> None:
        assert payload not in self._batches, "payloads are unique"
        self._batches[payload] = len(self._batches)

    def batch_of(self, payload: bytes) -> int:
        return self._batches.get(payload, -1)

    def invoke(self, call: Call, what: str) -> None:
        call.invoked = self.note(f"{call.client} {call.log} {what} ...")
        self.calls.append(call)

    def ok(self, call: Call, answer: str) -> None:
        call.returned = self.note(f"{call.client} {call.log} {type(call).__name__} -> {answer}")
        call.outcome = Outcome.OK

    def failed(self, call: Call, why: str) -> None:
        call.returned = self.note(f"{call.client} {call.log} {type(call).__name__} failed: {why}")
        call.outcome = Outcome.FAILED

    def unknown(self, call: Call, why: str) -> None:
        """Its outcome stays open; the call counts as under way for ever."""
        self.note(f"{call.client} {call.log} {type(call).__name__} unknown: {why}")
