"""Every engine that docs/tables.md names reads the same rows, also after columns were added and files made fewer."""

from __future__ import annotations

import importlib.util

import pytest

from tests.tables.engines import ENGINES
from tests.tables.world import HOUR_MS, START_MS, World

SCHEMA = '{"properties": {"n": {"type": "integer"}}}'
WIDER = '{"properties": {"n": {"type": "integer"}, "note": {"type": "string"}}}'
EXPECTED = [("2023-11-14", 30, 435), ("2023-11-15", 5, 500)]


async def fill(world: World, kind: str) -> None:
    await world.create(2, format=kind, value_format="json", value_schema=SCHEMA)
    for number in range(30):
        await world.append([f'{{"n": {number}}}'], number % 2)
    await world.build(world.driver(max_records=15))
    await world.configure(value_schema=WIDER)
    await world.append(['{"n": 100, "note": "later"}'] * 5 + ["poison"], at_ms=START_MS + 2 * HOUR_MS)
    report = await world.build()
    assert (report.rows, report.dead_letters) == (5, 1)


@pytest.mark.parametrize("kind", ENGINES)
async def test_the_same_query_gives_the_same_rows(world: World, kind: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("POLARS_ICEBERG_PLANNER", "pyiceberg")
    for library in ("polars", "duckdb"):
        if importlib.util.find_spec(library) is None:
            pytest.skip(f"{library} is not installed")
    await fill(world, kind)
    uri = (await world.opened()).table.uri
    for _ in range(2):
        assert {engine.__name__: engine(uri, world.settings) for engine in ENGINES[kind]} == {
            engine.__name__: EXPECTED for engine in ENGINES[kind]
        }
        await world.keep_up(small_files=2, grace_ms=HOUR_MS)
    rows = await world.rows()
    assert sorted(set(rows["note"].to_pylist()), key=str) == [None, "later"]
    letters = await world.rows(letters=True)
    assert letters["value"].to_pylist() == [b"poison"]
    assert "malformed" in letters["reason"][0].as_py()
