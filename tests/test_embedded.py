"""The Python API on the embedded default: append, read, follow, seal, trim; and when things change underneath."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

import catena
from catena.errors import (
    ConfigError,
    InvalidBatch,
    LogSealed,
    OffsetOutOfRange,
    StoreRefused,
    StoreUnavailable,
    TopicExists,
    UnknownPartition,
    UnknownTopic,
)


@pytest.fixture
async def log(tmp_path: Path) -> AsyncIterator[catena.Log]:
    """With topic `t` of two partitions."""
    async with catena.open(tmp_path / "log") as log:
        await log.create_topic("t", 2)
        yield log


async def values(log: catena.Log, *args: Any, **kwargs: Any) -> list[bytes | None]:
    return [record.value async for record in log.read(*args, **kwargs)]


async def take(records: AsyncIterator[catena.Record], count: int) -> list[bytes | None]:
    taken = []
    async for record in records:
        taken.append(record.value)
        if len(taken) == count:
            break
    return taken


async def test_the_example_of_the_package(tmp_path: Path) -> None:
    async with catena.open(tmp_path) as log:
        await log.create_topic("greetings")
        assert await log.append("greetings", "hello") == 0
        assert [(record.offset, record.value) async for record in log.read("greetings")] == [(0, b"hello")]
    async with catena.open(str(tmp_path)) as log:
        assert await values(log, "greetings") == [b"hello"]


async def test_a_record_has_what_was_given(log: catena.Log) -> None:
    await log.append("t", "välue", key=b"\xff", headers={"a": "b", "none": None}, timestamp_ms=7)
    await log.append("t", None, headers=[("twice", b"1"), ("twice", b"2")])
    first, second = [record async for record in log.read("t")]
    assert first == catena.Record(0, 7, b"\xff", "välue".encode(), (("a", b"b"), ("none", None)))
    assert (second.key, second.value, second.headers) == (None, None, (("twice", b"1"), ("twice", b"2")))
    assert second.timestamp > 1_600_000_000_000


@pytest.mark.parametrize("compression", ["none", "gzip", "snappy", "lz4", "zstd"])
async def test_a_batch(log: catena.Log, compression: Any) -> None:
    given = ["a", b"b", None, catena.Message("c", key="k")]
    assert await log.append_batch("t", given, partition=1, compression=compression) == range(4)
    found = [record async for record in log.read("t", 1)]
    assert [(record.key, record.value) for record in found] == [(None, b"a"), (None, b"b"), (None, None), (b"k", b"c")]


async def test_what_can_not_be_a_record(log: catena.Log) -> None:
    with pytest.raises(InvalidBatch, match="nothing to append"):
        await log.append_batch("t", [])
    with pytest.raises(ValueError, match="'rar' is no compression"):
        await log.append_batch("t", "a", compression="rar")  # type: ignore[arg-type]
    with pytest.raises(InvalidBatch, match="not a timestamp"):
        await log.append("t", "x", timestamp_ms=-5)
    with pytest.raises(InvalidBatch, match="not Unicode"):
        await log.append("t", "\ud800")
    with pytest.raises(TypeError, match="value is bytes, text or None, not int"):
        await log.append("t", 5)  # type: ignore[arg-type]
    with pytest.raises(TypeError, match="name of a header is text"):
        await log.append("t", "x", headers={b"name": b"value"})  # type: ignore[arg-type]
    assert await log.tail("t") == 0


async def test_many_appends_at_once_keep_the_order_of_the_calls(log: catena.Log) -> None:
    offsets = await asyncio.gather(*(log.append("t", str(number)) for number in range(1_000)))
    assert offsets == list(range(1_000))
    assert await values(log, "t") == [str(number).encode() for number in range(1_000)]


async def test_reading_from_somewhere(log: catena.Log) -> None:
    await log.append_batch("t", "abcde")
    assert await values(log, "t", start=3) == [b"d", b"e"]
    assert await values(log, "t", start="latest") == []
    assert await values(log, "t", start="earliest", limit=2) == [b"a", b"b"]
    assert await values(log, "t", start=5) == []
    assert await values(log, "t", 1) == []
    for start in (-1, 6):
        with pytest.raises(OffsetOutOfRange, match="holds 0 up to"):
            await values(log, "t", start=start)
    with pytest.raises(TypeError, match="'earliest' or 'latest', not 'first'"):
        await values(log, "t", start="first")


async def test_reading_ends_where_the_log_ended_when_it_began(log: catena.Log) -> None:
    await log.append_batch("t", "ab")
    seen = []
    async for record in log.read("t"):
        seen.append(record.value)
        await log.append("t", "later")
    assert seen == [b"a", b"b"]


async def test_following_sees_what_comes(log: catena.Log) -> None:
    await log.append_batch("t", "ab")
    from_the_start = asyncio.ensure_future(take(log.follow("t", start="earliest"), 4))
    from_now_on = asyncio.ensure_future(anext(log.follow("t")))
    while not from_now_on.done():
        await log.append("t", "new")
    assert await from_the_start == [b"a", b"b", b"new", b"new"]
    assert (await from_now_on).offset >= 2


async def test_following_what_another_process_appends(log: catena.Log, tmp_path: Path) -> None:
    following = asyncio.ensure_future(take(log.follow("t", start=0), 2))
    async with catena.open(tmp_path / "log") as other:
        await other.append_batch("t", "xy")
        assert await following == [b"x", b"y"]


async def test_following_stops_at_a_limit(log: catena.Log) -> None:
    batches = log.read_batches("t", limit=3, follow=True)
    following = asyncio.ensure_future(anext(batches))
    await log.append_batch("t", "ab")
    assert [record.value for record in await following] == [b"a", b"b"]
    await log.append_batch("t", "cd")
    assert [[record.value for record in records] async for records in batches] == [[b"c"]]


async def test_sealed_and_reopened(log: catena.Log) -> None:
    await log.append("t", "a")
    following = asyncio.ensure_future(take(log.follow("t", start="earliest"), 2))
    assert await log.seal("t") == 1
    assert await log.seal("t") == 1
    with pytest.raises(LogSealed):
        await log.append("t", "b")
    assert (await log.reopen("t")).last.is_open
    links = (await log.reopen("t")).links
    assert len(links) == 2
    assert await log.append("t", "b") == 1
    assert await following == [b"a", b"b"]


async def test_trimmed(log: catena.Log) -> None:
    await log.append_batch("t", "abc")
    assert await log.trim("t", 2) == 2
    assert await log.start("t") == 2
    assert await values(log, "t") == [b"c"]
    with pytest.raises(OffsetOutOfRange, match="holds 2 up to"):
        await values(log, "t", start=0)
    with pytest.raises(OffsetOutOfRange):
        await log.trim("t", 4)


async def test_found_by_time(log: catena.Log) -> None:
    await log.append_batch("t", [catena.Message("x", timestamp_ms=time) for time in (100, 200, 300)])
    assert [await log.find_time("t", time) for time in (0, 101, 300, 301)] == [0, 1, 2, None]


async def test_moved_while_it_is_used(log: catena.Log) -> None:
    async def produce() -> None:
        for number in range(100):
            await log.append("t", str(number))

    async def move() -> None:
        for kind in ("memory", "diskless", "memory"):
            await log.reconfigure("t", kind=kind)

    await asyncio.gather(produce(), move())
    assert await values(log, "t") == [str(number).encode() for number in range(100)]
    assert (await log.chain("t")).last.kind == "memory"
    with pytest.raises(ConfigError, match="no loglet of kind 'paper'"):
        await log.reconfigure("t", kind="paper")


async def test_what_a_memory_link_held_is_gone_with_its_process(tmp_path: Path) -> None:
    async with catena.open(tmp_path) as log:
        await log.create_topic("t")
        await log.reconfigure("t", kind="memory")
        await log.append("t", "gone")
        await log.reconfigure("t", kind="diskless")
        await log.append("t", "kept")
    async with catena.open(tmp_path) as log:
        with pytest.raises(StoreRefused, match="in the memory of another process"):
            await values(log, "t")
        await log.trim("t", 1)
        assert await values(log, "t") == [b"kept"]


async def test_topics(log: catena.Log) -> None:
    with pytest.raises(TopicExists):
        await log.create_topic("t")
    await log.create_topic("a")
    assert [(topic.name, topic.partitions) for topic in await log.topics()] == [("a", 1), ("t", 2)]
    assert (await log.topic("t")).partitions == 2
    await log.delete_topic("t")
    assert [topic.name for topic in await log.topics()] == ["a"]
    for asked in (log.append("t", "x"), log.tail("t"), values(log, "t"), log.topic("t"), log.delete_topic("t")):
        with pytest.raises(UnknownTopic):
            await asked
    with pytest.raises(UnknownPartition, match="partitions 0 to 0, not 1"):
        await log.append("a", "x", partition=1)


async def test_a_topic_that_another_process_made_anew(log: catena.Log, tmp_path: Path) -> None:
    await log.append("t", "old")
    await log.append("t", "old", partition=1)
    async with catena.open(tmp_path / "log") as other:
        await other.delete_topic("t")
        await other.create_topic("t", 3)
        assert await log.append("t", "new") == 0
        assert await values(log, "t") == [b"new"]
        assert await log.tail("t", 1) == 0
        assert await log.append("t", "new", partition=2) == 0
        assert await values(other, "t") == [b"new"]


async def test_a_reader_of_a_deleted_topic_does_not_go_on_in_the_new_one(log: catena.Log, tmp_path: Path) -> None:
    await log.append_batch("t", "ab")
    reading = log.follow("t", start=0)
    assert await take(reading, 1) == [b"a"]
    following = log.follow("t", start=2)
    waiting = asyncio.ensure_future(anext(following))
    async with catena.open(tmp_path / "log") as other:
        await other.delete_topic("t")
        await other.create_topic("t")
        await other.append_batch("t", "xyz")
    with pytest.raises(UnknownTopic):
        await waiting


async def test_leaving_answers_what_was_appended(tmp_path: Path) -> None:
    async with catena.open(tmp_path) as log:
        await log.create_topic("t")
        appends = [asyncio.ensure_future(log.append("t", str(number))) for number in range(100)]
        await asyncio.sleep(0)
    assert await asyncio.gather(*appends) == list(range(100))
    with pytest.raises(StoreUnavailable, match="closed"):
        await log.append("t", "too late")


async def test_settings(tmp_path: Path) -> None:
    file = tmp_path / "catena.toml"
    file.write_text('objects = "memory:"\nmeta = "memory:"\n')
    async with catena.open(config=file, diskless={"writer": {"uploads_in_flight": 1}}) as log:
        await log.create_topic("t")
        assert await log.append("t", "x") == 0
    with pytest.raises(ConfigError, match="unheard_of"):
        catena.open(tmp_path, unheard_of=1)
    assert not (tmp_path / "objects").exists()
