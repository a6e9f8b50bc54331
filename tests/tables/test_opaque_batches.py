"""Batches whose CRC is right and whose records nobody can read: each is one dead letter, and all others come in."""

from __future__ import annotations

import logging

import pytest

from catena.formats.record_batch import check_crc, parse_header
from catena.loglets.base import Entry
from catena.tables.columns import DEAD_LETTERS
from tests.columns.nonsense import Fault, nonsense
from tests.pipeline.drivers import Steps
from tests.tables.world import TOPIC, Row, World

JSON = {"value_format": "json", "value_schema": '{"properties": {"n": {"type": "integer"}}}'}


@pytest.fixture(params=["delta", "iceberg"])
def kind(request: pytest.FixtureRequest) -> str:
    return str(request.param)


async def poison(world: World, count: int, fault: Fault = Fault.CUT, partition: int = 0) -> bytes:
    """What a broken producer sends: a node looks at its header and its CRC only, and takes it."""
    data = nonsense(count, fault)
    await world.log.node.open_log(await world.topic(), partition).append(Entry(parse_header(data), data))
    return data


@pytest.mark.parametrize("configs", [{}, JSON], ids=["raw", "json"])
async def test_one_dead_letter_for_a_batch(
    world: World, kind: str, configs: dict[str, str], caplog: pytest.LogCaptureFixture
) -> None:
    await world.create(2, format=kind, **configs)
    await world.append(['{"n": 1}'] * 2)
    sent = [await poison(world, 3), await poison(world, 1, Fault.NOT_COMPRESSED)]
    await world.append(['{"n": 2}'] * 2)
    sent.append(await poison(world, 2, Fault.RANDOM, partition=1))
    with caplog.at_level(logging.WARNING, "catena"):
        report = await world.build()
    assert (report.outcome, report.error, report.records_behind) == ("committed", "", 0)
    assert (report.rows, report.dead_letters, report.opaque_batches) == (4, 3, 3)
    assert "3 batches can't be decoded" in caplog.text
    assert await world.offsets() == [Row(0, 0), Row(0, 1), Row(0, 6), Row(0, 7)]
    letters = (await world.rows(letters=True)).select(DEAD_LETTERS.names).to_pylist()
    assert [(each["_catena"]["partition"], each["_catena"]["offset"]) for each in letters] == [(0, 2), (0, 5), (1, 0)]
    for each, data, last in zip(letters, sent, (4, 5, 1), strict=True):
        first, partition = each["_catena"]["offset"], each["_catena"]["partition"]
        header = parse_header(each["value"])
        check_crc(each["value"], header)
        assert (header.base_offset, each["value"][16:], each["key"]) == (first, data[16:], None)
        assert each["reason"].startswith(f"offsets {first} to {last} are a batch that can't be decoded: ")
        assert f"topic {TOPIC}, partition {partition}, the batch at offset {first}, object " in each["reason"]
    assert (await world.build()).outcome == "idle"
    await world.append(['{"n": 3}'])
    report = await world.build()
    assert (report.error, report.rows, report.dead_letters) == ("", 1, 0)


async def test_once_where_commits_cut_it(world: World, kind: str) -> None:
    """A commit takes so many offsets, and may end within a batch: the one with the last of them has the letter."""
    await world.create(format=kind)
    await world.append(["a"])
    await poison(world, 7)
    await world.append(["b"])
    report = await world.build(world.driver(max_records=2))
    assert (report.error, report.commits, report.rows, report.opaque_batches) == ("", 5, 2, 1)
    assert await world.offsets() == [Row(0, 0), Row(0, 8)]
    assert await world.offsets(letters=True) == [Row(0, 1)]


@pytest.mark.parametrize("kind", ["delta", pytest.param("iceberg", marks=pytest.mark.long)])
async def test_a_driver_that_dies_at_any_step(world: World, kind: str) -> None:
    """With raw values, where there may be no table for dead letters yet."""
    await world.create(format=kind)
    expected, at, is_dead = 0, 0, True
    while is_dead:
        at += 1
        for applied in (False, True):
            await world.append(["a"])
            await poison(world, 2)
            expected += 3
            dying = Steps(at, applied=applied)
            await world.build(world.driver(dying))
            is_dead = len(dying.names) >= at
            assert (await world.build()).error == ""
            rows, letters = await world.offsets(), await world.offsets(letters=True)
            assert rows == [Row(0, offset) for offset in range(0, expected, 3)], f"step {at} of {dying.names}"
            assert letters == [Row(0, offset) for offset in range(1, expected, 3)], f"step {at} of {dying.names}"
    assert at > 6


async def test_damage_is_not_set_aside(world: World) -> None:
    """A wrong CRC is not what a producer has sent: it may be there again when a copy of the object is."""
    await world.create()
    data = bytearray(nonsense(2))
    data[-1] ^= 1
    await world.log.node.open_log(await world.topic(), 0).append(Entry(parse_header(data), bytes(data)))
    report = await world.build()
    assert report.outcome == "failed"
    assert f"topic {TOPIC}, partition 0, the batch at offset 0" in report.error
