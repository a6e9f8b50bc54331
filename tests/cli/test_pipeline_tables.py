"""What `catena pipeline tables` prints. That it works on Spark is shown in tests/tables."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

import catena as api
from catena.cli.pipeline_tables import print_tables
from catena.tables.report import TableReport, TablesReport, UpkeepReport
from tests.cli.conftest import Catena


def produce(folder: Path) -> None:
    async def append() -> None:
        async with api.open(folder) as log:
            await log.append("orders", "x")

    asyncio.run(append())


def test_plans(catena: Catena, tmp_path: Path) -> None:
    pytest.importorskip("deltalake")
    catena("topic", "create", "orders")
    none = catena("pipeline", "tables", "--dry-run")
    assert (none.code, none.out) == (0, "")
    assert "no topic has a table; `catena topic config TOPIC table.enable=true`" in none.err
    catena("topic", "config", "orders", "table.enable=true")
    for _ in range(2):
        produce(tmp_path / "log")
    header, row, place, _ = catena("pipeline", "tables", "--dry-run").out.splitlines()
    assert header.split() == ["TOPIC", "FORMAT", "OUTCOME", "ROWS", "DEAD", "LETTERS", "FILES", "BYTES", "BEHIND"]
    assert row.split() == ["orders", "delta", "planned", "0", "0", "0", "0", "2"]
    assert place.endswith("/objects/tables/delta/orders")
    planned = catena("pipeline", "tables", "--dry-run", "--json", "--topic", "orders").json
    assert (planned["job"], planned["tables"][0]["records_behind"]) == ("tables", 2)


def test_what_is_said_of_a_run(capsys: pytest.CaptureFixture[str]) -> None:
    table = TableReport(
        topic="a", table="at/a", format="delta", outcome="failed", rows=1000, losses=("gone",), error="no luck"
    )
    upkeep = UpkeepReport(table="at/a", compacted=8, compacted_into=1, dropped=2, expired=3, orphans=1)
    broken = UpkeepReport(table="at/b", error="nor here")
    print_tables(
        TablesReport(started_at_ms=0, duration_ms=1500, dry_run=False, tables=(table,), upkeep=(upkeep, broken))
    )
    said = capsys.readouterr()
    assert "at/a: 8 files became 1, 2 dropped, 3 expired, 1 orphan deleted" in said.out
    assert said.out.endswith("1,000 records in 1.5 s by 0 executors\n")
    assert said.err.splitlines() == ["a: gone", "a: no luck", "at/b: nor here"]
