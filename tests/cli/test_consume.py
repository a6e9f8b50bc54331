"""Records come out: from where to where, of which partitions, as text, base64 and JSON."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path

import pytest

import catena as api
from tests.cli.conftest import Catena


@pytest.fixture
def stocked(catena: Catena, tmp_path: Path) -> None:
    """Topic `t`, whose partition 0 has a0 to a4, and 1 has b0 to b2."""

    async def fill() -> None:
        async with api.open(tmp_path / "log") as log:
            await log.create_topic("t", 2)
            await log.append_batch("t", [f"a{n}" for n in range(5)])
            await log.append_batch("t", [f"b{n}" for n in range(3)], partition=1)

    asyncio.run(fill())


@pytest.mark.parametrize(
    ("arguments", "values"),
    [
        ("", "a0 a1 a2 a3 a4 b0 b1 b2"),
        ("--from earliest --to latest", "a0 a1 a2 a3 a4 b0 b1 b2"),
        ("--from latest", ""),
        ("--partition 1", "b0 b1 b2"),
        ("--partition 0 --from 3", "a3 a4"),
        ("--partition 0 --from 1 --to 3", "a1 a2"),
        ("--partition 0 --to 2", "a0 a1"),
        ("--partition 0 --from 5", ""),
        ("--partition 0 --from 2 --to 2", ""),
        ("--partition 0 --follow --from 3 --to 5", "a3 a4"),
        ("--follow --to earliest", ""),
    ],
)
@pytest.mark.usefixtures("stocked")
def test_positions(catena: Catena, arguments: str, values: str) -> None:
    ran = catena("consume", "t", *arguments.split())
    assert (ran.code, ran.err) == (0, "")
    assert ran.out.split() == values.split()


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        ("--partition 0 --from 6", "offset 6 is outside the log, which holds 0 up to (not including) 5; choose"),
        ("--partition 0 --to 6", "offset 6 is outside the log"),
        ("--partition 0 --from 4 --to 2", "before --from 4"),
        ("--from 2", "an offset belongs to one partition: add --partition"),
        ("--partition 2", "partitions 0 to 1, not 2"),
        ("--from -1", "not `earliest`, `latest` or an offset"),
        ("--from first", "not `earliest`, `latest` or an offset"),
        ("--partition x", "--partition"),
    ],
)
@pytest.mark.usefixtures("stocked")
def test_positions_that_can_not_be(catena: Catena, arguments: str, says: str) -> None:
    ran = catena("consume", "t", *arguments.split())
    assert (ran.code, ran.out) == (2, "")
    assert says in " ".join(ran.err.replace("│", " ").split())


def test_bytes_are_not_changed(catena: Catena, tmp_path: Path) -> None:
    async def fill() -> None:
        async with api.open(tmp_path / "log") as log:
            await log.create_topic("t")
            await log.append_batch("t", [b"\x00\xff\r", None, "é", api.Message("v", "k", {"h": b"\xff", "n": None}, 7)])

    asyncio.run(fill())
    assert catena("consume", "t", "--base64").out.splitlines() == ["AP8N", "", "w6k=", "dg=="]
    binary, null, text, whole = (json.loads(line) for line in catena("consume", "t", "--json").out.splitlines())
    assert (binary["value_base64"], "value" in binary) == ("AP8N", False)
    assert (null["value"], text["value"]) == (None, "é")
    assert whole == {
        "partition": 0,
        "offset": 3,
        "timestamp": 7,
        "key": "k",
        "value": "v",
        "headers": [{"name": "h", "value_base64": "/w=="}, {"name": "n", "value": None}],
    }
    always = json.loads(catena("consume", "t", "--json", "--base64").out.splitlines()[2])
    assert (always["value_base64"], always["key"]) == ("w6k=", None)


def test_what_was_trimmed_is_not_there(catena: Catena, tmp_path: Path) -> None:
    async def fill() -> None:
        async with api.open(tmp_path / "log") as log:
            await log.create_topic("t")
            await log.append_batch("t", "abcde")
            await log.trim("t", 3)

    asyncio.run(fill())
    assert catena("consume", "t").out == "d\ne\n"
    assert "holds 3 up to (not including) 5" in catena("consume", "t", "--from", "1").err
