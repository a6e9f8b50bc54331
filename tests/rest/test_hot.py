"""What came in over HTTP and is asked for at once: kept as it was, known by its checksum, bounded."""

from __future__ import annotations

import json

import pytest

from catena.formats.compression import Compression
from catena.loglets.base import Batch
from catena.rest.bodies import GivenRecord
from catena.rest.encoding import contents_of, entry_of
from catena.rest.hot import BATCH_BYTES, HotRecords, Text, text_of
from catena.types import TopicId, TopicPartition
from tests.rest.conftest import Api, serving

TP = TopicPartition("t", TopicId("0" * 32), 0)
OTHER = TopicPartition("t", TopicId("1" * 32), 0)


def batch(offset: int, *texts: str, time_ms: int = 1) -> Batch:
    entry = entry_of(contents_of(texts, ""), Compression.NONE, time_ms, log_append_time=False)
    return Batch(offset, len(texts), memoryview(entry.data))


def text(*texts: str) -> Text:
    made = text_of(texts, is_plain=False)
    assert made is not None
    return made


def kept(hot: HotRecords, *batches: Batch) -> list[str] | None:
    found = hot.find(TP, batches)
    return None if found is None else found.listed()


def test_what_is_kept_is_found() -> None:
    hot = HotRecords(1 << 20)
    first, second = batch(5, "a", "b"), batch(7, "cc")
    hot.add(TP, 5, bytes(first.data), text("a", "b"))
    hot.add(TP, 7, bytes(second.data), text("cc"))
    assert hot.find(TP, [first, second]) == (b'"a","b","cc"', 3, 4)
    assert kept(hot, first) == ["a", "b"], "and stays as it was"


def test_all_or_nothing() -> None:
    hot = HotRecords(1 << 20)
    first = batch(0, "a")
    hot.add(TP, 0, bytes(first.data), text("a"))
    assert kept(hot, first, batch(1, "b")) is None
    assert hot.find(OTHER, [first]) is None


def test_another_batch_at_the_same_place_is_another() -> None:
    hot = HotRecords(1 << 20)
    hot.add(TP, 0, bytes(batch(0, "a").data), text("a"))
    assert kept(hot, batch(0, "a", time_ms=2)) is None


def test_what_is_too_large_is_not_kept() -> None:
    hot = HotRecords(BATCH_BYTES + 3)
    large, fits = batch(0, "aa"), batch(2, "a")
    hot.add(TP, 0, bytes(large.data), text("aa"))
    hot.add(TP, 2, bytes(fits.data), text("a"))
    assert (kept(hot, large), kept(hot, fits)) == (None, ["a"])
    assert (hot.takes(3), hot.takes(4)) == (True, False)


@pytest.mark.parametrize("records", [["", "a", "", "bb"], ["plain"], ["ü", '"', "a\\\n\u0001\x7f"], ["\U0001f600", ""]])
def test_the_text_of_strings(records: list[str]) -> None:
    made = text_of(records, is_plain=False)
    assert made is not None
    assert json.loads(b"[%b]" % made.json) == made.listed() == records
    assert (made.records, made.size) == (len(records), sum(len(record.encode()) for record in records))


@pytest.mark.parametrize("records", [[""], ["", "a", "", "bb"], ["plain", "~ \x7f"]])
def test_that_of_plain_ones_is_the_same(records: list[str]) -> None:
    assert text_of(records, is_plain=True) == text_of(records, is_plain=False)


def test_of_what_is_more_than_strings_there_is_none() -> None:
    assert text_of(["a", GivenRecord(value="b")], is_plain=True) is None
    assert text_of([GivenRecord(value="b")], is_plain=False) is None


def test_the_oldest_make_room() -> None:
    hot = HotRecords(3 * (BATCH_BYTES + len('"a"')))
    batches = [batch(number, "a") for number in range(5)]
    for each in batches:
        for _ in range(2):  # the same again takes no more room
            hot.add(TP, each.offset, bytes(each.data), text("a"))
    assert [kept(hot, each) is not None for each in batches] == [False, False, True, True, True]


async def test_answers_are_the_same_with_and_without() -> None:
    answers = []
    for size in (0, 1 << 20):
        async with serving(http={"hot_records_bytes": size}) as api:
            answers.append(await told(api))
    assert answers[0] == answers[1]


async def told(api: Api) -> list[object]:
    for records in (["a", "b", "c"], ["d", "é"], ["e"] * 30, ['"', "\\", "ü\n"]):
        assert (await api.produce(*records)).status == 200
    asked = [await api.read(offset) for offset in (0, 1, 3, 5, 34, 35, 36, 38)]
    bounds = [
        await api.read(start, partition_max_bytes=size)
        for start in (0, 1, 4, 6, 7, 35)
        for size in (0, 1, 2, 3, 10, 29)
    ]
    return [*asked, *bounds, await api.read(0, max_bytes=2)]
