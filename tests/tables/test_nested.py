"""Fields that appear within structs, lists and maps come into the table, whatever the format, and every engine reads
them; what has changed its type is a dead letter still."""

from __future__ import annotations

import importlib.util
import json
from collections.abc import Callable
from typing import Any, NamedTuple

import pytest

from catena.config import Settings
from catena.jobs.querying import query
from catena.queries.duck import Answer
from catena.tables.values.protobuf import ProtobufSchema
from tests.tables.engines import opened
from tests.tables.test_values import as_avro, framed
from tests.tables.world import World, read_table, sorted_rows


class Generation(NamedTuple):
    schema: str
    values: list[bytes]


def json_generations() -> list[Generation]:
    def schema(**more: Any) -> str:
        inner = {"type": "object", "properties": {"a": {"type": "integer"}, **more}}
        outer = {"x": inner, "l": {"type": "array", "items": inner}}
        return json.dumps({"properties": {**outer, "d": {"type": "object", "properties": outer}}})

    def value(inner: dict[str, Any]) -> bytes:
        return json.dumps({"x": inner, "l": [inner, None], "d": {"x": inner, "l": [inner]}}).encode()

    text = {"type": "string"}
    return [
        Generation(schema(), [value({"a": 1})]),
        Generation(schema(**{"b b": text}), [value({"a": 2, "b b": "x"})]),
        Generation(schema(a=text), [value({"a": "3"}), b"{}"]),
    ]


def avro_generations() -> list[Generation]:
    def schema(kind: str, *more: dict[str, Any]) -> dict[str, Any]:
        inner = {"type": "record", "name": "Inner", "fields": [{"name": "a", "type": kind}, *more]}
        fields = [
            {"name": "x", "type": inner},
            {"name": "l", "type": {"type": "array", "items": ["null", "Inner"]}},
            {"name": "m", "type": {"type": "map", "values": "Inner"}},
        ]
        return {"type": "record", "name": "Outer", "fields": fields}

    def made(schema: dict[str, Any], *inners: dict[str, Any]) -> Generation:
        values = [as_avro({"x": inner, "l": [inner, None], "m": {"k": inner}}, schema) for inner in inners]
        return Generation(json.dumps(schema), values)

    more = {"name": "b_b", "type": ["null", "string"], "default": None}
    return [
        made(schema("long"), {"a": 1}),
        made(schema("int", more), {"a": 2, "b_b": "x"}),
        made(schema("string"), {"a": "3"}),
    ]


def protobuf_generations() -> list[Generation]:
    def made(inner: str, **fields: Any) -> Generation:
        outer = "message Outer { Inner x = 1; repeated Inner l = 2; map<string, Inner> m = 3; }"
        schema = f"{outer} message Inner {{ {inner} }}"
        message = ProtobufSchema(schema).new_message()
        for each in (message.x, message.l.add(), message.m["k"]):
            for name, value in fields.items():
                setattr(each, name, value)
        return Generation(schema, [message.SerializeToString()])

    return [
        made("optional int64 a = 1;", a=1),
        made("optional int32 a = 1; optional string b_b = 2;", a=2, b_b="x"),
        made("optional string a = 1;", a="3"),
    ]


GENERATIONS: dict[str, Callable[[], list[Generation]]] = {
    "json": json_generations,
    "avro": avro_generations,
    "protobuf": protobuf_generations,
}


def by_polars(uri: str, settings: Settings, kind: str) -> list[dict[str, Any]]:
    import polars as pl

    if kind == "delta":
        return list(pl.scan_delta(uri).select("x", "l").collect().to_dicts())
    with opened(uri, settings) as table:
        return list(pl.scan_iceberg(table).select("x", "l").collect().to_dicts())


def by_duckdb(uri: str, settings: Settings, kind: str) -> list[dict[str, Any]]:
    import duckdb
    from deltalake import DeltaTable

    with duckdb.connect() as connection:
        if kind == "delta":
            connection.register("orders", DeltaTable(uri).to_pyarrow_dataset())
        else:
            with opened(uri, settings) as table:
                connection.register("orders", table.scan().to_arrow())
        return list(connection.sql("select x, l from orders").to_arrow_table().to_pylist())


def rows_of(answer: Answer) -> list[dict[str, Any]]:
    return [row for batch in answer.batches for row in batch.to_pylist()]


@pytest.mark.parametrize("kind", ["delta", "iceberg"])
@pytest.mark.parametrize("values", GENERATIONS)
async def test_nested_fields_appear(world: World, kind: str, values: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("POLARS_ICEBERG_PLANNER", "pyiceberg")
    generations = GENERATIONS[values]()
    first, second, third = generations
    await world.create(format=kind, value_format=values, value_schema=first.schema)
    await world.append(first.values)
    assert (await world.build()).rows == 1
    await world.configure(value_schema=second.schema)
    await world.append(second.values)
    tail = await query(world.settings, "select x.a, x.b_b from orders order by 1", rows_of)
    assert tail == [{"a": 1, "b_b": None}, {"a": 2, "b_b": "x"}], "before it is in the table"
    report = await world.build()
    assert (report.rows, report.dead_letters, report.error) == (1, 0, "")
    old, new = {"a": 1, "b_b": None}, {"a": 2, "b_b": "x"}
    expected = [{"x": each, "l": [each] if values == "protobuf" else [each, None]} for each in (old, new)]
    uri = (await world.opened()).table.uri
    for _ in range(2):
        stored = sorted_rows(read_table(world.settings, uri, kind))
        rows = stored.select(["x", "l"]).to_pylist()
        assert rows == expected
        if values == "json":
            assert stored["d"].to_pylist() == [{"x": each, "l": [each]} for each in (old, new)]
        else:
            assert stored["m"].to_pylist() == [[("k", each)] for each in (old, new)]
        assert by_key(await query(world.settings, "select x, l from orders", rows_of)) == expected
        for library, engine in (("polars", by_polars), ("duckdb", by_duckdb)):
            if importlib.util.find_spec(library) is not None:
                assert by_key(engine(uri, world.settings, kind)) == expected, library
        reports = await world.keep_up(small_files=2)
        assert [each.error for each in reports] == [""] * len(reports)
    await world.configure(value_schema=third.schema)
    await world.append(third.values)
    await world.build()
    letters = (await world.rows(letters=True)).to_pylist()
    assert [letter["value"] for letter in letters] == third.values[:1]
    assert "a is string, not int64" in letters[0]["reason"]


def by_key(rows: list[dict[str, Any]]) -> list[dict[str, Any]]:
    return sorted(rows, key=lambda row: row["x"]["a"])


async def test_schemas_by_id_with_other_fields_within(world: World) -> None:
    """Values of an old schema go on coming: what they lack is null, and none is read one by one."""
    first, second, _ = json_generations()
    schemas = {"1": json.loads(first.schema), "2": json.loads(second.schema)}
    await world.create(value_format="json", schemas=json.dumps(schemas))
    await world.append([framed(2, second.values[0]), framed(1, first.values[0])])
    report = await world.build()
    assert (report.rows, report.dead_letters, report.error) == (2, 0, "")
    assert (await world.rows())["x"].to_pylist() == [{"a": 2, "b_b": "x"}, {"a": 1, "b_b": None}]
