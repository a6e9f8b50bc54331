"""A topic's configs, as its table has them."""

from __future__ import annotations

from catena.tables.settings import TableConfig


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
