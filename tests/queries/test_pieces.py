"""Pieces of a log, for threads: bounded, found again when they have moved, and let go of."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from catena.errors import DataLoss, ObjectMissing
from catena.queries import pieces
from catena.queries.fresh import look
from catena.queries.pieces import PieceReader, Stopped, pieces_of
from catena.runtime import Disk
from catena.source import reading
from catena.source.splitting import Split
from catena.testing.faults import Fail, Faults, Stall
from tests.tables.world import World, opened_world


@pytest.fixture
async def world(tmp_path: Path) -> AsyncIterator[World]:
    async with opened_world(tmp_path) as opened:
        yield opened


@pytest.fixture
async def disk() -> AsyncIterator[Disk]:
    disk = Disk(2)
    yield disk
    disk.close()


async def splits_of(world: World) -> list[Split]:
    driver = world.driver()
    return list((await look(driver.node, driver.opener, await world.topic())).splits)


async def reader_of(world: World, faults: Faults) -> PieceReader:
    return PieceReader(world.log.node, world.driver(faults).objects, await world.topic())


def offsets(reader: PieceReader, piece: Split) -> list[int]:
    return [offset for batch in reader.read(piece, ["offset"]) for offset in batch["offset"].to_pylist()]


async def test_pieces_are_bounded(world: World, disk: Disk, monkeypatch: pytest.MonkeyPatch) -> None:
    await world.create()
    for number in range(5):
        await world.append([str(number)] * 2)
    monkeypatch.setattr(reading.group, "__defaults__", (reading.GROUP_BYTES, 2))
    found = pieces_of(await splits_of(world))
    assert [(piece.start, piece.end, len(piece.extents)) for piece in found] == [(0, 4, 2), (4, 8, 2), (8, 10, 1)]
    reader = await reader_of(world, Faults())
    assert await disk.run(lambda: [offsets(reader, piece) for piece in found]) == [
        [0, 1, 2, 3],
        [4, 5, 6, 7],
        [8, 9],
    ]


async def test_what_has_moved_is_found_again(world: World, disk: Disk) -> None:
    await world.create()
    await world.append([b"1", b"2"])
    (piece,) = pieces_of(await splits_of(world))
    faults = Faults()
    for nth in range(1, pieces.LOOKS):
        faults.at("blob get_ranges", Fail(ObjectMissing("x")), nth=nth)
    assert await disk.run(offsets, await reader_of(world, faults), piece) == [0, 1]
    faults = Faults()
    for nth in range(1, pieces.LOOKS + 1):
        faults.at("blob get_ranges", Fail(ObjectMissing("x")), nth=nth)
    with pytest.raises(DataLoss, match="ask again"):
        await disk.run(offsets, await reader_of(world, faults), piece)


async def test_what_was_trimmed_meanwhile_is_lost(world: World, disk: Disk) -> None:
    await world.create()
    await world.append([b"1"])
    await world.append([b"2"])
    (piece,) = pieces_of(await splits_of(world))
    await world.log.trim("orders", 1)
    faults = Faults()
    faults.at("blob get_ranges", Fail(ObjectMissing("x")))
    with pytest.raises(DataLoss, match="topic orders"):
        await disk.run(offsets, await reader_of(world, faults), piece)


async def test_who_waits_is_let_go(world: World, disk: Disk) -> None:
    await world.create()
    await world.append([b"1"])
    (piece,) = pieces_of(await splits_of(world))
    faults = Faults()
    asleep = faults.at("blob get_ranges", Stall())
    reader = await reader_of(world, faults)
    waiting = asyncio.create_task(disk.run(offsets, reader, piece))
    await asleep.reached.wait()
    reader.stop()
    with pytest.raises(Stopped):
        await waiting
    asleep.let_go()
    with pytest.raises(Stopped):
        await disk.run(offsets, reader, piece)
