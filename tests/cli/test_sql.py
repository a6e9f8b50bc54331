"""Questions by hand: for people, for programs, and wrong ones."""

from __future__ import annotations

import importlib.util
import json
import os
from pathlib import Path

import pytest

from tests.cli.conftest import Catena

needs_duckdb = pytest.mark.skipif(
    importlib.util.find_spec("duckdb") is None and "tables" not in os.environ.get("CATENA_REQUIRE", "").split(","),
    reason="duckdb is not installed: pip install 'catena-log[sql]'",
)


@pytest.fixture
def orders(catena: Catena, tmp_path: Path) -> Catena:
    catena("topic", "create", "orders", "--partitions", "2")
    (tmp_path / "lines").write_text("one\ntwo\n")
    catena("produce", "orders", tmp_path / "lines", "--partition", "1")
    return catena


@needs_duckdb
def test_for_people(orders: Catena) -> None:
    found = orders("sql", 'select _catena.offset as "at", value, key from orders order by 1')
    assert [line.split() for line in found.out.splitlines()] == [
        ["at", "value", "key"],
        ["0", "one"],
        ["1", "two"],
        ["2", "rows"],
    ]
    some = orders("sql", "select value from orders", "--max-rows", "1")
    assert some.out.splitlines()[-1] == "2 rows, 1 of them shown (--max-rows)"


@needs_duckdb
def test_for_programs(orders: Catena, tmp_path: Path) -> None:
    lines = orders("sql", "select * from orders order by _catena.offset", "--json").out.splitlines()
    rows = [json.loads(line) for line in lines]
    assert [(row["value"], row["key"], row["_catena"]["partition"]) for row in rows] == [
        ("one", None, 1),
        ("two", None, 1),
    ]
    orders("produce", "orders", tmp_path / "lines")
    assert orders("sql", "select count(*) as n from orders", "--json").json == {"n": 4}


@needs_duckdb
def test_columns_of_the_same_name_and_odd_values(orders: Catena) -> None:
    both = "select 1 as a, 2 as a, 3 as a_1"
    assert orders("sql", both, "--json").json == {"a": 1, "a_1": 2, "a_1_1": 3}
    assert orders("sql", both).out.splitlines()[1].split() == ["1", "2", "3"]
    times = "'infinity'::timestamp as t, {'t': '294246-01-01'::timestamp} as n"
    odd = f"select sum(1) as s, map {{'k': 1}} as m, 1.5::decimal(3,1) as d, {times}"
    found = orders("sql", odd, "--json").json
    assert (found["s"], found["m"], found["d"]) == (1, [["k", 1]], "1.5")
    assert isinstance(found["t"], int)
    assert isinstance(found["n"]["t"], int)
    assert "…" not in orders("sql", "explain select * from orders").out


@needs_duckdb
def test_wrong_ones(orders: Catena) -> None:
    wrong = orders("sql", "select * from order_lines")
    assert wrong.code == 2
    assert wrong.err.startswith("catena: there is no topic 'order_lines'; `catena topic list` shows what there is")
    assert "Parser Error" in orders("sql", "selekt").err
    for change in ("drop table orders", "insert into orders values (1)"):
        wrong = orders("sql", change)
        assert wrong.code == 2
        assert "topics are only read, by select" in wrong.err


@needs_duckdb
def test_bytes_that_are_no_text(orders: Catena) -> None:
    some = r"select '\xff\x00'::blob as b, ['\xff'::blob] as l, '0xff00' as t"
    assert orders("sql", some, "--json").json == {"b": {"base64": "/wA="}, "l": [{"base64": "/w=="}], "t": "0xff00"}
    assert orders("sql", some).out.splitlines()[1].split() == ["0xff00", "['0xff']", "0xff00"]


@pytest.mark.skipif(importlib.util.find_spec("duckdb") is not None, reason="duckdb is installed")
def test_without_duckdb(orders: Catena) -> None:
    without = orders("sql", "select 1")
    assert without.code == 2
    assert "pip install 'catena-log[sql]'" in without.err
