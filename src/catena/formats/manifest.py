"""The manifest: what is in the tiered prefix of one partition. One immutable object, which the chain names.

    {"version": 1, "cluster_id": "...", "topic": "...", "topic_id": "...", "partition": 0, "base": 0, "end": 1000,
     "segments": [{"key": "...", "base": 0, "end": 400, ...}, {"key": "...", "base": 400, "end": 1000, ...}],
     "crc32c": "5e6f7a8b"}

Segments are in the order of offsets and meet: together they hold [base, end), each offset once. There may be none, and
then base and end are the same. The last key is the CRC-32C of all before it: see `sealed_json`.

A segment may be in many manifests, one after the other; a manifest never changes.
"""

from __future__ import annotations

from bisect import bisect_right
from operator import attrgetter

import msgspec

from catena.errors import Corrupt
from catena.formats import sealed_json
from catena.formats.sealed_json import JsonVersion, Natural
from catena.formats.segment import SegmentInfo
from catena.types import Buffer, Offset, TopicId

VERSION = 1
SEAL = "crc32c"

_end = attrgetter("end")


class Manifest(msgspec.Struct, frozen=True, kw_only=True):
    version: JsonVersion = VERSION
    cluster_id: str
    topic: str
    topic_id: TopicId
    partition: Natural
    base: Natural
    end: Natural
    """After the last record."""
    segments: tuple[SegmentInfo, ...]

    def segment_at(self, offset: Offset) -> int:
        """Number of the segment that holds `offset`, or of the first one if it is below; past the last one at `end`."""
        return bisect_right(self.segments, offset, key=_end)


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
    manifest = sealed_json.decode(data, _DECODER, VERSION, what)
    if (defect := _defect(manifest)) is not None:
        raise Corrupt(f"{what}: {defect}")
    return manifest


def _defect(manifest: Manifest) -> str | None:
    at = manifest.base
    for number, segment in enumerate(manifest.segments):
        if segment.base != at or segment.end <= at:
            return f"segment {number} holds offsets {segment.base} to {segment.end}, and those before it end at {at}"
        if not 0 < segment.body_at < segment.index_at < segment.index_at + segment.index_length < segment.size:
            return f"segment {number}, object {segment.key}: the places of its batches and its index can't be"
        at = segment.end
    return None if at == manifest.end else f"it ends at offset {manifest.end}, and its segments at {at}"
