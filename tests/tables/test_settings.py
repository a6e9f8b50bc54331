"""A topic's configs, as its table has them."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from typer.testing import CliRunner

from catena.cli.app import app
from catena.errors import ConfigError
from catena.tables.settings import TableConfig
from catena.virtual_log.topic_configs import MAX_SCHEMA_CHARS
from tests.tables.world import World


def test_defaults() -> None:
    assert TableConfig.of({}) == TableConfig()


def test_what_is_set() -> None:
    config = TableConfig.of(
        {
            "table.enable": "true",
            "table.format": "iceberg",
            "table.retention.ms": "5",
            "table.schemas": '{"1": {"type": "string"}, "2": "syntax"}',
            "table.commit.interval.ms": "7",
        }
    )
    assert (config.enable, config.format, config.retention_ms, config.commit_interval_ms) == (True, "iceberg", 5, 7)
    assert config.schemas == {1: '{"type":"string"}', 2: "syntax"}


def test_what_a_newer_version_has_set_is_not_set() -> None:
    assert TableConfig.of({"table.format": "hudi", "table.enable": "true"}).format == "delta"


async def test_how_large_schemas_may_be(world: World) -> None:
    await world.create()
    await world.configure(
        value_schema="x" * MAX_SCHEMA_CHARS, schemas=json.dumps({"1": "x" * (MAX_SCHEMA_CHARS - 100)})
    )
    with pytest.raises(ConfigError, match=r"table\.value\.schema: .* has more than 100000 characters"):
        await world.configure(value_schema="x" * (MAX_SCHEMA_CHARS + 1))


def test_a_schema_that_makes_no_sense_is_refused_where_it_is_set(tmp_path: Path) -> None:
    def run(*words: str) -> tuple[int, str]:
        result = CliRunner().invoke(app, ["--data", str(tmp_path), "topic", *words])
        return result.exit_code, result.stderr

    def set_schema(kind: str, schema: str) -> tuple[int, str]:
        return run("config", "orders", f"table.value.format={kind}", f"table.value.schema={schema}")

    assert run("create", "orders") == (0, "")
    assert run("config", "orders", "table.value.format=json") == (0, ""), "a schema may follow"
    code, told = set_schema("avro", '{"type": "bytes", "logicalType": "decimal"}')
    assert (code != 0, "topic config table.value.schema" in told) == (True, True)
    assert set_schema("avro", '"string"') == (0, "")
    code, told = run("config", "orders", "table.value.format=protobuf")
    assert (code != 0, "is no .proto" in told or "of the .proto" in told) == (True, True)
