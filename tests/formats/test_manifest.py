from __future__ import annotations

import json
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec import UNSET

from catena.errors import Corrupt, StoreRefused
from catena.formats import manifest, sealed_json
from catena.formats.manifest import Cleaning, Manifest
from catena.formats.segment import SegmentInfo
from catena.types import TopicId
from tests.formats.independent import crc32c_by_definition

WHAT = "object llog/manifests/1"


def info(base: int, end: int, **changes: Any) -> SegmentInfo:
    fields: dict[str, Any] = {
        "key": f"llog/segments/{base}",
        "base": base,
        "end": end,
        "size": 1000,
        "body_at": 300,
        "index_at": 900,
        "index_length": 64,
        "index_crc": 77,
        "max_timestamp": 20,
        "min_timestamp": 10,
        "batches": 2,
        "created_at_ms": 5,
        "appended_at_ms": 4,
        "compaction_id": "job-1",
    }
    return SegmentInfo(**(fields | changes))


def manifest_of(*segments: SegmentInfo, **changes: Any) -> Manifest:
    fields: dict[str, Any] = {
        "cluster_id": "cluster-1",
        "topic": "orders",
        "topic_id": TopicId("a" * 32),
        "partition": 3,
        "base": segments[0].base if segments else 0,
        "end": segments[-1].end if segments else 0,
        "segments": segments,
    }
    return Manifest(**(fields | changes))


SMALL = manifest_of(info(0, 4), info(4, 10))
SMALL_BYTES = manifest.encode(SMALL)


def sealed(value: object) -> bytes:
    return sealed_json.sealed(msgspec.json.encode(value), "crc32c")


def test_known_bytes() -> None:
    covered = (
        b'{"version":1,"cluster_id":"cluster-1","topic":"orders","topic_id":"aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa",'
        b'"partition":3,"base":0,"end":4,"segments":[{"key":"llog/segments/0","base":0,"end":4,"size":1000,'
        b'"body_at":300,"index_at":900,"index_length":64,"index_crc":77,"max_timestamp":20,"min_timestamp":10,'
        b'"batches":2,"created_at_ms":5,"appended_at_ms":4,"compaction_id":"job-1"}]'
    )
    assert manifest.encode(manifest_of(info(0, 4))) == b'%s,"crc32c":"%08x"}' % (covered, crc32c_by_definition(covered))
    assert list(json.loads(SMALL_BYTES))[-1] == "crc32c"


@st.composite
def manifests(draw: st.DrawFn) -> Manifest:
    base = draw(st.integers(0, 2**62))
    segments = []
    at = base
    for count in draw(st.lists(st.integers(1, 2**40), max_size=5)):
        body_at = draw(st.integers(1, 1000))
        index_at = body_at + draw(st.integers(1, 2**40))
        length = draw(st.integers(1, 2**31))
        segments.append(
            info(
                at,
                at + count,
                key=draw(st.text(max_size=20)),
                body_at=body_at,
                index_at=index_at,
                index_length=length,
                size=index_at + length + 1,
                max_timestamp=draw(st.integers(-1, 2**62)),
            )
        )
        at += count
    return manifest_of(*segments, base=base, end=at, topic=draw(st.text(max_size=10)))


@given(manifests())
def test_round_trip(given_manifest: Manifest) -> None:
    assert manifest.decode(manifest.encode(given_manifest), WHAT) == given_manifest


@given(manifests(), st.data())
def test_every_offset_is_in_the_segment_that_is_found(given_manifest: Manifest, data: st.DataObject) -> None:
    segments = given_manifest.segments
    offset = data.draw(st.integers(max(0, given_manifest.base - 5), given_manifest.end + 5))
    found = given_manifest.segment_at(offset)
    if offset >= given_manifest.end:
        assert found == len(segments)
    elif offset < given_manifest.base:
        assert found == 0
    else:
        assert segments[found].base <= offset < segments[found].end


def test_edges_of_segments() -> None:
    assert [SMALL.segment_at(offset) for offset in (0, 3, 4, 9, 10, 99)] == [0, 0, 1, 1, 2, 2]


def test_any_flipped_bit_is_detected() -> None:
    for at in range(len(SMALL_BYTES)):
        for bit in range(8):
            flipped = bytearray(SMALL_BYTES)
            flipped[at] ^= 1 << bit
            with pytest.raises(Corrupt, match=rf"byte \d+ of {WHAT}: bytes 0 to \d+ give"):
                manifest.decode(flipped, WHAT)


def test_any_missing_or_added_byte_is_detected() -> None:
    for at in range(len(SMALL_BYTES)):
        for damaged in (
            SMALL_BYTES[:at] + SMALL_BYTES[at + 1 :],
            SMALL_BYTES[:at] + b" " + SMALL_BYTES[at:],
            SMALL_BYTES[:at],
        ):
            with pytest.raises(Corrupt, match=rf"byte \d+ of {WHAT}"):
                manifest.decode(damaged, WHAT)
    with pytest.raises(Corrupt, match=rf"byte \d+ of {WHAT}"):
        manifest.decode(SMALL_BYTES + b"\n", WHAT)


@pytest.mark.parametrize(
    ("broken", "because"),
    [
        (manifest_of(info(0, 4), info(5, 10)), "segment 1 holds offsets 5 to 10, and those before it end at 4"),
        (manifest_of(info(0, 4), info(3, 10)), "segment 1 holds offsets 3 to 10, and those before it end at 4"),
        (manifest_of(info(0, 4), info(4, 4)), "segment 1 holds offsets 4 to 4"),
        (manifest_of(info(0, 4), info(4, 2)), "segment 1 holds offsets 4 to 2"),
        (manifest_of(info(4, 10), info(0, 4)), "segment 1 holds offsets 0 to 4"),
        (manifest_of(info(1, 4), base=0), "segment 0 holds offsets 1 to 4, and those before it end at 0"),
        (manifest_of(info(0, 4), end=5), "it ends at offset 5, and its segments at 4"),
        (manifest_of(base=3, end=4), "it ends at offset 4, and its segments at 3"),
        (manifest_of(info(0, 4, index_at=300)), "segment 0, object llog/segments/0: the places"),
        (manifest_of(info(0, 4, body_at=0)), "the places"),
        (manifest_of(info(0, 4, index_length=0)), "the places"),
        (manifest_of(info(0, 4, size=964)), "the places"),
    ],
)
def test_segments_that_do_not_meet_are_neither_written_nor_read(broken: Manifest, because: str) -> None:
    with pytest.raises(ValueError, match=because):
        manifest.encode(broken)
    with pytest.raises(Corrupt, match=f"{WHAT}: {because}" if because[0] != "t" else because):
        manifest.decode(sealed(broken), WHAT)


@pytest.mark.parametrize("changes", [{"version": 0}, {"base": -1}, {"segments": {}}, {"partition": "3"}])
def test_what_cannot_be_is_corrupt_even_if_its_crc_is_right(changes: dict[str, Any]) -> None:
    with pytest.raises(Corrupt, match=f"byte 0 of {WHAT}: "):
        manifest.decode(sealed(msgspec.to_builtins(SMALL) | changes), WHAT)


def test_fields_that_are_not_known_are_taken() -> None:
    assert manifest.decode(sealed(msgspec.to_builtins(SMALL) | {"colour": "blue"}), WHAT) == SMALL


def test_a_newer_version_is_refused() -> None:
    for value in (msgspec.to_builtins(SMALL) | {"version": 3}, {"version": 7}):
        with pytest.raises(StoreRefused, match=rf"{WHAT} is of version [37]; this release reads up to 2"):
            manifest.decode(sealed(value), WHAT)


class TestCompacted:
    CLEANINGS = (Cleaning(4, 1000), Cleaning(10, 2000))

    def compacted(self, *segments: SegmentInfo, **changes: Any) -> Manifest:
        fields = {"version": 2, "cleanings": self.CLEANINGS} | changes
        return manifest_of(*(segments or (info(0, 4, records=1), info(4, 10))), **fields)

    def test_round_trip(self) -> None:
        found = manifest.decode(manifest.encode(self.compacted()), WHAT)
        assert found == self.compacted()
        assert [(each.is_compacted, each.record_count) for each in found.segments] == [(True, 1), (False, 6)]
        assert (found.cleaned, found.cleaned_up_to) == (self.CLEANINGS, 10)

    def test_a_release_that_does_not_know_of_it_refuses(self) -> None:
        assert json.loads(manifest.encode(self.compacted()))["version"] == 2
        assert manifest.version_of(()) == 2
        assert manifest.version_of(UNSET) == SMALL.version == 1

    def test_what_was_never_compacted_is_not_clean(self) -> None:
        assert (SMALL.cleaned, SMALL.cleaned_up_to) == ((), 0)
        assert self.compacted(cleanings=()).cleaned_up_to == 0
        low = self.compacted(info(20, 30), cleanings=(Cleaning(4, 1),))
        assert low.cleaned_up_to == 20

    @pytest.mark.parametrize(
        ("changes", "because"),
        [
            ({"version": 1}, "version 1 can't have cleanings"),
            ({"cleanings": UNSET}, "version 2 can't have cleanings UNSET"),
            ({"cleanings": CLEANINGS[::-1]}, "don't follow each other"),
            ({"cleanings": (Cleaning(4, 1), Cleaning(4, 2))}, "don't follow each other"),
            ({"segments": (info(0, 4, records=5), info(4, 10))}, "segment 0, object .* 5 records can't be"),
            ({"segments": (info(0, 4, records=1),), "end": 4, "version": 1, "cleanings": UNSET}, "1 records can't be"),
        ],
    )
    def test_what_cannot_be_is_neither_written_nor_read(self, changes: dict[str, Any], because: str) -> None:
        broken = self.compacted(**changes)
        with pytest.raises(ValueError, match=because):
            manifest.encode(broken)
        with pytest.raises(Corrupt, match=because):
            manifest.decode(sealed(broken), WHAT)


@given(st.binary(max_size=200))
def test_noise_is_refused(data: bytes) -> None:
    with pytest.raises(Corrupt):
        manifest.decode(data, WHAT)
