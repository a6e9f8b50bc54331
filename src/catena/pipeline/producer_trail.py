"""Which sequence numbers idempotent producers have used, in the order of offsets; pure.

A trail is made of the batches of a stretch of the log, and trails of neighbouring stretches are joined, so that a
partition can be looked at in pieces, by several workers, in any order. For each producer it holds its first batch and
where it has come to, whatever lies between.

    stretch 1: producer 7, sequence 0 .. next 40        stretch 2: producer 7, sequence 40 .. next 55

The rules are those of `catena.loglets.producers`: a producer that is not known may begin anywhere, one that has been
silent for a day is forgotten. Where a part of the log can't be read the trail breaks off: behind it nobody is known.
"""

from __future__ import annotations

import struct
from collections.abc import Iterable
from typing import NamedTuple

import msgspec

from catena.formats.record_batch import CONTROL, LENGTH_END
from catena.loglets.producers import EXPIRY_MS, MAX_SEQUENCE
from catena.pipeline.defects import Kind
from catena.types import Buffer, Offset

FORGOTTEN_AFTER_MS = EXPIRY_MS - 3_600_000
"""Nodes' clocks differ, and times are those of uploads."""
MAX_PRODUCERS = 50_000
"""Of one trail; past it those seen first are forgotten."""

_NEEDED = struct.Struct(">8xi9xhi8xqqhi")
"""Of a batch's header: length, attributes, last offset delta, max timestamp, producer id, epoch and sequence."""

_EPOCH, _NEXT, _LAST_MS = 5, 6, 7


class Break(NamedTuple):
    """A batch that can't follow what its producer had written before."""

    kind: Kind
    first: Offset
    last: Offset
    what: str


class Sighting(msgspec.Struct, frozen=True, array_like=True):
    producer_id: int
    epoch: int
    """Of its first batch, as are those that follow."""
    sequence: int
    offset: Offset
    end: Offset
    at_ms: int
    last_epoch: int
    """After its last batch, as are those that follow."""
    next_sequence: int
    last_ms: int


class Track(msgspec.Struct, frozen=True, array_like=True):
    """A trail as it is sent: up to where it breaks off, and from its last break on."""

    head: tuple[Sighting, ...] = ()
    tail: tuple[Sighting, ...] | None = None


class Trail:
    __slots__ = ("_head", "_seen")

    def __init__(self) -> None:
        self._seen: dict[int, list[int]] = {}
        self._head: dict[int, list[int]] | None = None

    def add(self, body: Buffer, offset: Offset, low_ms: int, high_ms: int) -> list[Break]:
        """These sound batches follow, the first at `offset`; they were appended between these times."""
        view = memoryview(body)
        size, at = len(view), 0
        unpack, seen = _NEEDED.unpack_from, self._seen
        epoch_, next_, last_ms = _EPOCH, _NEXT, _LAST_MS
        breaks: list[Break] = []
        while at < size:
            length, attributes, delta, time_ms, producer, epoch, sequence = unpack(view, at)
            end = offset + delta + 1
            if producer >= 0 and sequence >= 0 and not attributes & CONTROL:
                following = (sequence + delta + 1) & MAX_SEQUENCE
                at_ms = high_ms if time_ms > high_ms else low_ms if time_ms < low_ms else time_ms
                known = seen.get(producer)
                if known is not None and known[next_] == sequence and known[epoch_] == epoch:
                    known[next_], known[last_ms] = following, at_ms
                else:
                    first = (producer, epoch, sequence, offset, end, at_ms)
                    breaks += self._meet(Sighting(*first, epoch, following, at_ms))
            offset = end
            at += length + LENGTH_END
        return breaks

    def follow(self, track: Track) -> list[Break]:
        """What follows is this."""
        breaks = [found for sighting in track.head for found in self._meet(sighting)]
        if track.tail is not None:
            self.break_off()
            self._take(track.tail)
        return breaks

    def break_off(self) -> None:
        """What follows can't be read."""
        if self._head is None:
            self._head = self._seen
        self._seen = {}

    def track(self) -> Track:
        seen = _sightings(self._seen)
        return Track(seen) if self._head is None else Track(_sightings(self._head), seen)

    def _meet(self, sighting: Sighting) -> list[Break]:
        known = self._seen.get(sighting.producer_id)
        if known is None:
            self._take((sighting,))
            return []
        found = _judge(known, sighting)
        known[_LAST_MS] = max(known[_LAST_MS], sighting.last_ms)
        if found is None or found.kind != "duplicate_batch":
            known[_EPOCH], known[_NEXT] = sighting.last_epoch, sighting.next_sequence
        return [] if found is None else [found]

    def _take(self, sightings: Iterable[Sighting]) -> None:
        for each in sightings:
            if len(self._seen) >= MAX_PRODUCERS:
                del self._seen[next(iter(self._seen))]
            first = [each.epoch, each.sequence, each.offset, each.end, each.at_ms]
            self._seen[each.producer_id] = [*first, each.last_epoch, each.next_sequence, each.last_ms]


def _judge(known: list[int], found: Sighting) -> Break | None:
    epoch, expected = known[_EPOCH], known[_NEXT]
    if (found.epoch, found.sequence) == (epoch, expected) or found.at_ms - known[_LAST_MS] >= FORGOTTEN_AFTER_MS:
        return None
    if found.epoch > epoch and found.sequence == 0:
        return None
    kind: Kind = "sequence_break"
    if found.epoch == epoch and (expected - found.sequence) % (MAX_SEQUENCE + 1) <= MAX_SEQUENCE // 2:
        kind = "duplicate_batch"
    what = (
        f"producer {found.producer_id} has sequence {found.sequence} of epoch {found.epoch}, "
        f"and {expected} of epoch {epoch} is the next"
    )
    return Break(kind, found.offset, found.end - 1, what)


def _sightings(seen: dict[int, list[int]]) -> tuple[Sighting, ...]:
    return tuple(Sighting(producer_id, *numbers) for producer_id, numbers in seen.items())
