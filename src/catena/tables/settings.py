"""What a topic's configs say of its table, and the settings of those who keep tables."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Literal, TypeAlias

import msgspec

from catena.virtual_log.topic_configs import CATALOGUE

TableFormat: TypeAlias = Literal["delta", "iceberg"]
ValueFormat: TypeAlias = Literal["raw", "json", "avro", "protobuf"]


class TableConfig(msgspec.Struct, frozen=True):
    """The configs of one topic."""

    enable: bool = False
    format: TableFormat = "delta"
    value_format: ValueFormat = "raw"
    value_schema: str = ""
    schemas: dict[int, str] = {}
    """By the id that values carry."""
    commit_interval_ms: int = 60_000
    retention_ms: int | None = None
    """None: for ever."""
    target_file_bytes: int = 128 << 20

    @classmethod
    def of(cls, configs: Mapping[str, str]) -> TableConfig:
        """What a newer version stored and this one can't read is not set, as with a topic's other configs."""

        def value(name: str) -> Any:
            config = CATALOGUE[name]
            try:
                return config.parse(configs.get(name, config.default))
            except ValueError:
                return config.parse(config.default)

        retention_ms = value("table.retention.ms")
        return cls(
            enable=value("table.enable"),
            format=value("table.format"),
            value_format=value("table.value.format"),
            value_schema=value("table.value.schema"),
            schemas=_schemas(value("table.schemas")),
            commit_interval_ms=value("table.commit.interval.ms"),
            retention_ms=None if retention_ms < 0 else retention_ms,
            target_file_bytes=value("table.target.file.bytes"),
        )


def _schemas(text: str) -> dict[int, str]:
    """Each as text, also if it was given as JSON within JSON."""
    found = msgspec.json.decode(text or "{}", type=dict[int, Any], strict=False)
    return {
        number: schema if isinstance(schema, str) else msgspec.json.encode(schema).decode()
        for number, schema in found.items()
    }
