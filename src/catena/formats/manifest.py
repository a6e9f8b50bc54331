"""The manifest: what is in the tiered prefix of one partition. One immutable object, which the chain names.

    {"version": 1, "cluster_id": "...", "topic": "...", "topic_id": "...", "partition": 0, "base": 0, "end": 1000,
     "segments": [{"key": "...", "base": 0, "end": 400, ...}, {"key": "...", "base": 400, "end": 1000, ...}],
     "crc32c": "5e6f7a8b"}

Segments are in the order of offsets and meet: together they hold [base, end), each offset once. There may be none, and
then base and end are the same. The last key is the CRC-32C of all before it: see `sealed_json`.

Version 2 is that of a log that was compacted; releases that do not know of compaction refuse it. Segments that say how
many records they have are thinned out, and one more field tells up to which offset, and when, the log was cleaned:

    "cleanings": [{"end": 400, "at_ms": 1700000000000}, {"end": 1000, "at_ms": 1700000900000}]

What lies below 400 was first cleaned at the first of these times, or earlier, and what lies from there to 1000 at the
second. The marks of deleted keys go by it. Above the last `end` nothing was cleaned yet.

In either version a manifest may say what vacuum has to leave alone for a while, though readers do not need it any more
(`catena.pipeline.replaced`): manifests whose segments it does not have any more, and blobs that records came from.

    "replaced": [{"key": "...", "at_ms": 1700000000000}, {"key": "..."}], "blobs": ["..."]

One without a time was replaced by this very manifest, when the chain took it.

A segment may be in many manifests, one after the other; a manifest never changes.
"""

from __future__ import annotations

from bisect import bisect_right
from itertools import pairwise
from operator import attrgetter

import msgspec
from msgspec import UNSET, UnsetType

from catena.errors import Corrupt
from catena.formats import sealed_json
from catena.formats.sealed_json import JsonVersion, Natural
from catena.formats.segment import SegmentInfo
from catena.types import Buffer, Offset, TopicId

PLAIN, COMPACTED = 1, 2
"""Versions."""
SEAL = "crc32c"

_end = attrgetter("end")


class Cleaning(msgspec.Struct, frozen=True):
    end: Natural
    at_ms: int


class Replaced(msgspec.Struct, frozen=True):
    """A manifest that another one has taken the place of."""

    key: str
    at_ms: int | UnsetType = UNSET
    """UNSET: when the chain took the manifest that says so."""


class Manifest(msgspec.Struct, frozen=True, kw_only=True):
    version: JsonVersion = PLAIN
    cluster_id: str
    topic: str
    topic_id: TopicId
    partition: Natural
    base: Natural
    end: Natural
    """After the last record."""
    segments: tuple[SegmentInfo, ...]
    cleanings: tuple[Cleaning, ...] | UnsetType = UNSET
    """In the order of offsets. UNSET: the log was never compacted."""
    replaced: tuple[Replaced, ...] | UnsetType = UNSET
    """The newest last. UNSET: none."""
    blobs: tuple[str, ...] | UnsetType = UNSET
    """UNSET: none."""

    @property
    def cleaned(self) -> tuple[Cleaning, ...]:
        return () if self.cleanings is UNSET else self.cleanings

    @property
    def cleaned_up_to(self) -> Offset:
        return max(self.base, self.cleaned[-1].end) if self.cleaned else self.base

    def segment_at(self, offset: Offset) -> int:
        """Number of the segment that holds `offset`, or of the first one if it is below; past the last one at `end`."""
        return bisect_right(self.segments, offset, key=_end)


def version_of(cleanings: tuple[Cleaning, ...] | UnsetType) -> int:
    """Of a manifest that has these."""
    return PLAIN if cleanings is UNSET else COMPACTED


_ENCODER = msgspec.json.Encoder()
_DECODER = msgspec.json.Decoder(Manifest)


def encode(manifest: Manifest) -> bytes:
    """Raises ValueError if its segments don't meet."""
    if (defect := _defect(manifest)) is not None:
        raise ValueError(f"a manifest of {manifest.topic}/{manifest.partition}: {defect}")
    return sealed_json.sealed(_ENCODER.encode(manifest), SEAL)


def decode(data: Buffer, what: str) -> Manifest:
    """The manifest, checked. `what` is for errors: "object llog/..."."""
    sealed_json.unseal(data, SEAL, what)
    manifest = sealed_json.decode(data, _DECODER, COMPACTED, what)
    if (defect := _defect(manifest)) is not None:
        raise Corrupt(f"{what}: {defect}")
    return manifest


def _defect(manifest: Manifest) -> str | None:
    if manifest.version != version_of(manifest.cleanings):
        return f"version {manifest.version} can't have cleanings {manifest.cleanings}"
    if any(right.end <= left.end for left, right in pairwise(manifest.cleaned)):
        return f"its cleanings don't follow each other: {manifest.cleaned}"
    at = manifest.base
    for number, segment in enumerate(manifest.segments):
        if segment.base != at or segment.end <= at:
            return f"segment {number} holds offsets {segment.base} to {segment.end}, and those before it end at {at}"
        if not 0 < segment.body_at < segment.index_at < segment.index_at + segment.index_length < segment.size:
            return f"segment {number}, object {segment.key}: the places of its batches and its index can't be"
        if segment.is_compacted and (manifest.cleanings is UNSET or segment.record_count > segment.end - segment.base):
            return f"segment {number}, object {segment.key}: {segment.record_count} records can't be"
        at = segment.end
    return None if at == manifest.end else f"it ends at offset {manifest.end}, and its segments at {at}"
