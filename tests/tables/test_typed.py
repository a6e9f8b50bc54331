"""Typed tables from end to end: Avro and Protobuf, framed and not, nested as they come, before and after compaction."""

from __future__ import annotations

import datetime
import json
from typing import Any

import pytest

from catena.tables.values.protobuf import ProtobufSchema
from tests.tables.test_values import AVRO, ORDER, PROTO, as_avro, framed
from tests.tables.world import World


@pytest.fixture(params=["delta", "iceberg"])
def kind(request: pytest.FixtureRequest) -> str:
    return str(request.param)


async def both_ways(world: World, expected: list[dict[str, Any]]) -> None:
    """As it was committed, and as it is compacted."""
    for compacted in (2, 0):
        rows = (await world.rows()).drop_columns(["_catena", "key", "day"]).to_pylist()
        assert [{name: plain(row[name]) for name in row} for row in rows] == expected
        reports = await world.keep_up(small_files=2)
        assert [report.error for report in reports] == ["", ""]
        assert reports[0].compacted == compacted


def plain(value: Any) -> Any:
    """Deltalake gives maps as lists of pairs, and times in a zone of its own."""
    if isinstance(value, datetime.datetime):
        return value.astimezone(datetime.UTC)
    return value


async def test_avro(world: World, kind: str) -> None:
    newer = {**AVRO, "fields": [*AVRO["fields"], {"name": "added", "type": "float"}]}
    await world.create(format=kind, value_format="avro", value_schema=json.dumps(AVRO))
    await world.append([as_avro(ORDER), as_avro(ORDER)[:-2]])
    assert (await world.build()).dead_letters == 1
    await world.configure(schemas=json.dumps({"7": newer}))
    await world.append([framed(7, as_avro({**ORDER, "added": 0.5}, newer))])
    report = await world.build()
    assert (report.rows, report.dead_letters, report.error) == (1, 0, "")
    row = {
        **ORDER,
        "mixed": "7",
        "tags": [("a", 1), ("b", None)],
        "lines": [{"sku": "00000000-0000-0000-0000-000000000005", "kind": "B"}],
        "added": None,
    }
    await both_ways(world, [row, {**row, "added": 0.5}])
    (letter,) = (await world.rows(letters=True)).to_pylist()
    assert (letter["_catena"]["offset"], letter["value"]) == (1, as_avro(ORDER)[:-2])


async def test_protobuf(world: World, kind: str) -> None:
    await world.create(format=kind, value_format="protobuf", value_schema=PROTO)
    message = ProtobufSchema(PROTO).new_message()
    message.id, message.big = 5, 2**64 - 1
    message.tags["a"] = 1
    message.by_number[3].sku = "z"
    message.at.seconds = 1_700_000_000
    body = message.SerializeToString()
    await world.append([body])
    await world.build()
    await world.append([framed(9, body, b"\0"), b"\xff"])
    report = await world.build()
    assert (report.rows, report.dead_letters, report.error) == (1, 1, "")
    rows = (await world.rows()).to_pylist()
    assert [row["_catena"]["offset"] for row in rows] == [0, 1]
    for row in rows:
        assert (row["id"], int(row["big"]), row["tags"]) == (5, 2**64 - 1, [("a", 1)])
        assert row["by_number"] == [(3, {"sku": "z", "size": "S"})]
        assert row["at"].astimezone(datetime.UTC) == datetime.datetime(2023, 11, 14, 22, 13, 20, tzinfo=datetime.UTC)
    reports = await world.keep_up(small_files=2)
    assert (reports[0].compacted, reports[0].error) == (2, "")
    assert (await world.rows()).to_pylist() == rows
