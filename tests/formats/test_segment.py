from __future__ import annotations

import json
import struct
from collections.abc import Sequence
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec import UNSET

from catena.errors import Corrupt, StoreRefused
from catena.formats import sealed_json, segment
from catena.formats.batch_scan import Source, Totals
from catena.formats.record_batch import parse_header
from catena.formats.segment import FOOTER_BYTES, INTERVAL_BYTES, Encoded, Interval, SegmentHeader, SegmentIndex
from catena.formats.thinned import gaps
from catena.types import Buffer, Offset, TopicId
from tests.formats.batches import batch, batches
from tests.formats.independent import GOLDEN_BATCH, crc32c_by_definition

KEY = "llog/segments/1"


class Found(msgspec.Struct):
    offset: Offset
    count: int
    data: memoryview


def header(base: Offset, end: Offset, **changes: Any) -> SegmentHeader:
    fields: dict[str, Any] = {
        "cluster_id": "cluster-1",
        "topic": "orders",
        "topic_id": TopicId("a" * 32),
        "partition": 3,
        "base_offset": base,
        "end_offset": end,
        "created_at_ms": 1700000009999,
        "appended_at_ms": 1700000005555,
        "compaction_id": "job-1",
    }
    return SegmentHeader(**(fields | changes))


def count_of(bodies: Sequence[Buffer]) -> int:
    count = 0
    for body in bodies:
        at = 0
        while at < len(body):
            found = parse_header(body, at)
            count, at = count + found.count, at + found.length
    return count


def segment_of(*bodies: Buffer, base: Offset = 100, interval_bytes: int = INTERVAL_BYTES) -> Encoded:
    return segment.encode(KEY, header(base, base + count_of(bodies)), bodies, interval_bytes=interval_bytes)


def bytes_of(encoded: Encoded) -> bytes:
    return b"".join(encoded.buffers)


def index_of(encoded: Encoded) -> SegmentIndex:
    info = encoded.info
    return segment.decode_index(info, bytes_of(encoded)[info.index_at :][: info.index_length])


def intervals_of(encoded: Encoded) -> list[Interval]:
    index = index_of(encoded)
    return [index.interval(number) for number in range(len(index))]


def resealed(data: bytes, at: int, new: bytes) -> bytes:
    """These bytes put there, and the CRCs of index and footer made right."""
    changed = bytearray(data)
    changed[at : at + len(new)] = new
    footer = len(data) - FOOTER_BYTES
    index_at, index_length = struct.unpack_from(">QI", changed, footer)
    index_crc = crc32c_by_definition(bytes(changed[index_at : index_at + index_length]))
    changed[footer + 32 : footer + 36] = index_crc.to_bytes(4, "big")
    changed[footer + 36 : footer + 40] = crc32c_by_definition(bytes(changed[footer : footer + 36])).to_bytes(4, "big")
    return bytes(changed)


SMALL = segment_of(batch(2, 10, time=5), batch(1, 40) + batch(3, 0, time=9), interval_bytes=100)
SMALL_BYTES = bytes_of(SMALL)


class TestWriting:
    def test_known_bytes(self) -> None:
        encoded = segment.encode(KEY, header(40, 46), [GOLDEN_BATCH * 2, GOLDEN_BATCH], (), 2 * len(GOLDEN_BATCH))
        text = (
            b'{"version":1,"cluster_id":"cluster-1","topic":"orders","topic_id":"aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa",'
            b'"partition":3,"base_offset":40,"end_offset":46,"created_at_ms":1700000009999,'
            b'"appended_at_ms":1700000005555,"compaction_id":"job-1"'
        )
        seal_bytes = len(b',"header_crc32c":"xxxxxxxx"}')
        covered = b"CSG1" + (len(text) + seal_bytes).to_bytes(4, "big") + text
        start = covered + b',"header_crc32c":"%08x"}' % crc32c_by_definition(covered)
        body = GOLDEN_BATCH * 3
        newest, at, size = 1700000000250, len(start), len(GOLDEN_BATCH)
        index = struct.pack(
            ">8q",
            *(40, at, newest, crc32c_by_definition(GOLDEN_BATCH * 2)),
            *(44, at + 2 * size, newest, crc32c_by_definition(GOLDEN_BATCH)),
        )
        footer = struct.pack(
            ">QIIqqI", at + 3 * size, len(index), 3, 1700000000000, newest, crc32c_by_definition(index)
        )
        footer += crc32c_by_definition(footer).to_bytes(4, "big") + b"CSG1"
        assert bytes_of(encoded) == start + body + index + footer

    def test_anyone_can_read_the_header_as_json(self) -> None:
        found = json.loads(SMALL_BYTES[8 : SMALL.info.body_at])
        assert (found["cluster_id"], found["topic"], found["partition"]) == ("cluster-1", "orders", 3)
        assert (found["base_offset"], found["end_offset"], found["compaction_id"]) == (100, 106, "job-1")
        assert list(found)[-1] == "header_crc32c"

    def test_bodies_are_not_copied(self) -> None:
        bodies: list[Buffer] = [batch(1, 10), memoryview(batch(2, 70000)), bytearray(batch(3))]
        buffers = segment_of(*bodies).buffers
        assert [id(buffer) for buffer in buffers[1:-1]] == [id(body) for body in bodies]

    def test_an_interval_has_64_kib_at_least_or_is_the_last(self) -> None:
        one = batch(1, 20_000)
        lengths = [interval.length // len(one) for interval in intervals_of(segment_of(*[one] * 10))]
        assert lengths == [4, 4, 2]
        large = batch(1, 3 * INTERVAL_BYTES)
        assert [interval.length for interval in intervals_of(segment_of(large, large))] == [len(large)] * 2

    @pytest.mark.parametrize("end", [99, 100, 101, 102, 104])
    def test_offsets_must_lead_to_the_end(self, end: Offset) -> None:
        message = f"2 batches from offset 100 on end at 103, and the segment {KEY} is to end at {end}"
        with pytest.raises(Corrupt, match=message):
            segment.encode(KEY, header(100, end), [batch(1), batch(2)])

    def test_a_segment_holds_something(self) -> None:
        with pytest.raises(Corrupt, match="0 batches from offset 100 on end at 100"):
            segment.encode(KEY, header(100, 100), [b""])

    def test_an_unsound_batch_is_named_with_where_it_is_from(self) -> None:
        good, bad = batch(2, 10), bytearray(batch(1, 10))
        bad[-1] ^= 1
        place = "object wal/7, the batch at byte {} for offset 102: byte 17: the stored CRC is"
        with pytest.raises(Corrupt, match=place.format(4096 + len(good))):
            segment.encode(KEY, header(100, 103), [b"", good + bad], [Source("wal/6"), Source("wal/7", 4096)])
        with pytest.raises(Corrupt, match="object body 1, the batch at byte 0 for offset 102: "):
            segment.encode(KEY, header(100, 103), [good, bad])

    def test_a_header_that_no_reader_takes_is_not_written(self) -> None:
        with pytest.raises(ValueError, match=f"the header of segment {KEY} has 65"):
            segment.encode(KEY, header(100, 101, topic="t" * segment.MAX_HEADER_BYTES), [batch()])


class TestReading:
    @given(st.lists(st.lists(batches, min_size=1, max_size=4), min_size=1, max_size=6), st.integers(1, 800))
    def test_round_trip(self, given_batches: list[list[bytes]], interval_bytes: int) -> None:
        encoded = segment_of(*(b"".join(body) for body in given_batches), interval_bytes=interval_bytes)
        data = bytes_of(encoded)
        info = segment.check(data, KEY)
        assert info == encoded.info
        assert (info.size, info.end - info.base) == (len(data), count_of([b"".join(body) for body in given_batches]))
        found: list[Found] = []
        for interval in intervals_of(encoded):
            body = data[interval.position :][: interval.length]
            found += segment.decode_interval(KEY, interval, body, Found)
        assert [each for body in given_batches for each in body] == [bytes(each.data) for each in found]
        offset = info.base
        for each in found:
            assert (each.offset, each.count) == (offset, parse_header(each.data).count)
            offset += each.count
        assert offset == info.end
        assert len(found) == info.batches
        index = index_of(encoded)
        for each in found:
            for offset in range(each.offset, each.offset + each.count):
                interval = index.interval(index.find(offset))
                assert interval.offset <= each.offset
                assert each.offset + each.count <= interval.end

    def test_what_is_found_are_views(self) -> None:
        (interval, *_) = intervals_of(SMALL)
        body = SMALL_BYTES[interval.position :][: interval.length]
        for found in segment.decode_interval(KEY, interval, body, Found):
            assert found.data.obj is body

    def test_a_segment_explains_itself(self) -> None:
        """From both of its ends, without a manifest."""
        header_bytes = segment.header_bytes(SMALL_BYTES[:8])
        found = segment.decode_header(SMALL_BYTES[:header_bytes])
        assert found == header(100, 106)
        footer = segment.decode_footer(SMALL_BYTES[-FOOTER_BYTES:], len(SMALL_BYTES))
        assert segment.describe(KEY, len(SMALL_BYTES), header_bytes, found, footer) == SMALL.info

    def test_what_a_manifest_says(self) -> None:
        info = SMALL.info
        assert (info.key, info.base, info.end, info.batches) == (KEY, 100, 106, 3)
        assert (info.min_timestamp, info.max_timestamp) == (0, 9)
        assert (info.created_at_ms, info.appended_at_ms, info.compaction_id) == (1700000009999, 1700000005555, "job-1")
        assert SMALL_BYTES[info.body_at : info.index_at] == b"".join(SMALL.buffers[1:-1])
        assert info.body_bytes == sum(map(len, SMALL.buffers[1:-1]))

    def test_intervals_are_found_by_time(self) -> None:
        index = index_of(segment_of(*(batch(1, time=time) for time in (-1, 30, 10, 30, 20)), interval_bytes=1))
        assert [index.interval(number).max_timestamp for number in range(5)] == [-1, 30, 10, 30, 20]
        assert [index.find_time(time) for time in (-1, 0, 30, 31)] == [0, 1, 1, None]
        assert [index.find_time(15, first) for first in range(6)] == [1, 1, 3, 3, 4, None]
        assert [index.find_max_time(*between) for between in ((0, 5), (2, 5), (2, 3), (4, 5), (3, 3), (4, 2))] == [
            *(1, 3, 2, 4, None, None)
        ]


class TestDamage:
    def test_any_flipped_bit_is_detected(self) -> None:
        for at in range(len(SMALL_BYTES)):
            for bit in range(8):
                flipped = bytearray(SMALL_BYTES)
                flipped[at] ^= 1 << bit
                with pytest.raises(Corrupt, match=rf"bytes? \d+.* {KEY}|object {KEY}.* bytes? \d+"):
                    segment.check(flipped, KEY)

    @given(st.integers(0, len(SMALL_BYTES) - 1), st.integers(1, 255))
    def test_any_changed_byte_is_detected(self, at: int, change: int) -> None:
        changed = bytearray(SMALL_BYTES)
        changed[at] ^= change
        with pytest.raises(Corrupt):
            segment.check(changed, KEY)

    def test_any_missing_or_added_byte_is_detected(self) -> None:
        for at in range(len(SMALL_BYTES)):
            for damaged in (
                SMALL_BYTES[:at] + SMALL_BYTES[at + 1 :],
                SMALL_BYTES[:at] + b"\x00" + SMALL_BYTES[at:],
                SMALL_BYTES[:at],
            ):
                with pytest.raises(Corrupt, match=r"bytes? \d+"):
                    segment.check(damaged, KEY)
        with pytest.raises(Corrupt):
            segment.check(SMALL_BYTES + b"\x00", KEY)

    @given(st.data())
    def test_a_damaged_interval_is_named_by_those_who_read_it(self, data: st.DataObject) -> None:
        first, second = intervals_of(SMALL)
        body = bytearray(SMALL_BYTES[first.position :][: first.length])
        at = data.draw(st.integers(0, len(body) - 1))
        body[at] ^= data.draw(st.integers(1, 255))
        start, offset = (0, 100) if at < len(batch(2, 10)) else (len(batch(2, 10)), 102)
        if at - start < 8 or 12 <= at - start < 16:
            # No batch is wrong by its own CRC: base offset and leader epoch are outside of it.
            place = f"object {KEY}, bytes {first.position} to {second.position - 1} for offset 100: "
        else:
            place = f"object {KEY}, the batch at byte {first.position + start} for offset {offset}: "
        with pytest.raises(Corrupt) as error:
            segment.decode_interval(KEY, first, body, Found)
        assert str(error.value).startswith(place)

    def test_missing_bytes_of_an_interval_are_found(self) -> None:
        for interval in intervals_of(SMALL):
            body = SMALL_BYTES[interval.position :][: interval.length]
            for damaged in (*(body[:length] for length in range(len(body))), body + batch(1)):
                with pytest.raises(Corrupt, match=rf"object {KEY}, .*bytes? \d+ .*for offset \d+: "):
                    segment.decode_interval(KEY, interval, damaged, Found)

    def test_an_index_that_lies_is_found_even_if_its_crc_is_right(self) -> None:
        index_at = SMALL.info.index_at
        (first, second) = intervals_of(SMALL)
        for at, number, because in (
            (0, first.offset + 1, "does not lead from offset 100 at byte"),
            (0, first.offset - 1, "does not lead from offset 100 at byte"),
            (8, first.position + 1, "does not lead from offset 100 at byte"),
            (16, first.max_timestamp + 1, "and greatest time 5 end at offset 103; but by the index"),
            (24, first.crc ^ 1, "but by the index"),
            (32, first.offset, "does not lead"),
            (32, second.offset - 1, "end at offset 103; but by the index .* end at offset 102"),
            (32, 106, "does not lead"),
            (40, second.position - 1, "the batch at byte"),
            (40, first.position, "does not lead"),
            (40, index_at, "does not lead"),
            (56, second.crc | 1 << 40, "but by the index"),
        ):
            with pytest.raises(Corrupt, match=because) as error:
                segment.check(resealed(SMALL_BYTES, index_at + at, struct.pack(">q", number)), KEY)
            assert f"object {KEY}" in str(error.value)

    def test_a_footer_that_lies_is_found_even_if_its_crc_is_right(self) -> None:
        info, footer = SMALL.info, len(SMALL_BYTES) - FOOTER_BYTES
        for at, new, because in (
            (0, struct.pack(">Q", info.index_at - 1), f"byte {footer} of object {KEY}: the footer starts here"),
            (0, struct.pack(">Q", 2**63), "the footer starts here"),
            (8, struct.pack(">I", info.index_length - 32), "the footer starts here"),
            (0, struct.pack(">QI", info.index_at - 32, info.index_length + 32), "does not lead from"),
            (0, struct.pack(">QI", info.index_at + 1, info.index_length - 1), "an index of 63 bytes"),
            (0, struct.pack(">QI", info.index_at + info.index_length, 0), "an index of 0 bytes"),
            (12, struct.pack(">I", 4), f"byte {footer} of object {KEY}: its batches are .*batches=3.*batches=4"),
            (16, struct.pack(">q", 1), "min_timestamp=0.*min_timestamp=1"),
            (24, struct.pack(">q", 10), "max_timestamp=9.*max_timestamp=10"),
        ):
            with pytest.raises(Corrupt, match=because):
                segment.check(resealed(SMALL_BYTES, footer + at, new), KEY)

    def test_the_batches_of_another_segment_are_not_taken(self) -> None:
        other = segment_of(batch(2, 10, time=5), batch(1, 41) + batch(3, 0, time=9), interval_bytes=100)
        (mine, *_), (theirs, *_) = intervals_of(SMALL), intervals_of(other)
        body = bytes_of(other)[theirs.position :][: theirs.length]
        with pytest.raises(Corrupt, match=f"object {KEY}, bytes {mine.position} to"):
            segment.decode_interval(KEY, mine, body, Found)

    def test_an_index_is_held_against_its_manifest(self) -> None:
        info = SMALL.info
        data = SMALL_BYTES[info.index_at :][: info.index_length]
        with pytest.raises(Corrupt, match=f"byte {info.index_at} of object {KEY}: an index of 63 bytes"):
            segment.decode_index(info, data[:-1])
        with pytest.raises(Corrupt, match=f"byte {info.index_at} of object {KEY}: the index, 64 bytes, has CRC"):
            segment.decode_index(info, bytes(64))
        for changes in ({"base": 99}, {"end": 103}, {"body_at": 5}, {"index_at": 10}):
            with pytest.raises(Corrupt, match="the index does not lead from offset"):
                segment.decode_index(msgspec.structs.replace(info, **changes), data)

    def test_batches_that_cannot_be_are_found_even_if_the_crc_of_their_interval_is_right(self) -> None:
        good = batch(2, 10)
        for at, new in (
            (8, b"\xff\xff\xff\xff"),
            (8, b"\xff\xff\xff\xf4"),  # would never come to an end
            (8, b"\x00\x00\x00\x05"),
            (8, b"\x7f\xff\xff\xff"),
            (23, b"\x80"),
        ):
            body = bytearray(good)
            body[at : at + len(new)] = new
            interval = Interval(10, 12, 50, len(body), 0, crc32c_by_definition(bytes(body)))
            with pytest.raises(Corrupt, match=f"object {KEY}, bytes 50 to {49 + len(body)} for offset 10: at byte"):
                segment.decode_interval(KEY, interval, body, Found)
        crc = crc32c_by_definition(good)
        for interval in (
            Interval(10, 13, 50, len(good), 0, crc),
            Interval(10, 12, 50, len(good) + 5, 0, crc32c_by_definition(good + bytes(5))),
        ):
            with pytest.raises(Corrupt, match="for offset 10: at byte"):
                segment.decode_interval(KEY, interval, (good + bytes(5))[: interval.length], Found)


class TestHeaders:
    def test_a_newer_version_is_refused(self) -> None:
        with pytest.raises(StoreRefused, match="version 3; this release reads up to 2"):
            segment.check(b"".join(segment.encode(KEY, header(100, 101, version=3), [batch()]).buffers), KEY)

    def test_fields_that_are_not_known_are_taken(self) -> None:
        text = msgspec.json.encode(header(0, 1))[:-1] + b',"colour":"blue"}'
        assert segment.decode_header(sealed_json.encode_header(segment.MAGIC, text)) == header(0, 1)

    @pytest.mark.parametrize(
        "changes", [{"base_offset": 5}, {"base_offset": -1}, {"partition": -1}, {"topic": 3}, {"version": 0}]
    )
    def test_what_cannot_be_is_corrupt_even_if_its_crc_is_right(self, changes: dict[str, Any]) -> None:
        fields = msgspec.to_builtins(header(0, 5)) | changes
        with pytest.raises(Corrupt, match="byte 8 of the segment: "):
            segment.decode_header(sealed_json.encode_header(segment.MAGIC, msgspec.json.encode(fields)))

    def test_an_object_that_is_no_segment_is_refused(self) -> None:
        for data, because in ((b"", "byte 0"), (b"CSG1", "byte 4"), (b"LLS1" + SMALL_BYTES[4:], "byte 0 .*magic")):
            with pytest.raises(Corrupt, match=because):
                segment.check(data, KEY)
        with pytest.raises(Corrupt, match="byte 10 of the segment: it ends before its footer"):
            segment.decode_footer(b"x" * 10, 10)

    @given(st.binary(max_size=300))
    def test_noise_is_refused(self, data: bytes) -> None:
        for noise in (data, SMALL_BYTES[: SMALL.info.body_at] + data, data + SMALL_BYTES[SMALL.info.index_at :]):
            with pytest.raises(Corrupt):
                segment.check(noise, KEY)


def test_totals_are_held_against_the_footer() -> None:
    segment.check_totals(SMALL.info, Totals(3, 0, 9))
    with pytest.raises(Corrupt, match=f"object {KEY}: its batches are"):
        segment.check_totals(SMALL.info, Totals(2, 0, 9))


class TestCompacted:
    BODY = batch(2, 10, time=5) + gaps(40)[0] + batch(1)

    def encoded(self, **changes: Any) -> Encoded:
        fields = {"version": 2, "records": 3} | changes
        return segment.encode(KEY, header(100, 143, **fields), [self.BODY])

    def test_it_says_how_many_records_are_left(self) -> None:
        found = segment.check(bytes_of(self.encoded()), KEY)
        assert found == self.encoded().info
        assert (found.is_compacted, found.record_count, found.batches) == (True, 3, 3)
        assert not SMALL.info.is_compacted
        assert SMALL.info.record_count == 6

    def test_offsets_follow_from_batches_as_everywhere(self) -> None:
        encoded = self.encoded()
        (interval,) = intervals_of(encoded)
        found = segment.decode_interval(KEY, interval, self.BODY, Found)
        assert [(each.offset, each.count) for each in found] == [(100, 2), (102, 40), (142, 1)]

    def test_another_number_is_not_written(self) -> None:
        with pytest.raises(Corrupt, match=r"3 records for the segment .*, which is to have 4"):
            self.encoded(records=4)

    def test_records_that_are_missing_without_a_word_are_found(self) -> None:
        with pytest.raises(Corrupt, match="has 3 records, and 43 one for each offset"):
            segment.check(bytes_of(self.encoded(version=1, records=UNSET)), KEY)

    @pytest.mark.parametrize("changes", [{"version": 1}, {"records": UNSET}])
    def test_version_and_field_belong_together(self, changes: dict[str, Any]) -> None:
        with pytest.raises(Corrupt, match=r"byte 8 of object .*: version . and records"):
            segment.check(bytes_of(self.encoded(**changes)), KEY)
