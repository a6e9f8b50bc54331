"""The configs that a topic can have, under Kafka's names: what they mean here, and what the hot path makes of them.

A config is a promise. One that Catena acts by is obeyed; one whose promise holds here whatever its value is (there are
no segment files to roll, nothing is acked before it is durable) is taken and shown, so that tools which set it work;
one that can't be kept is refused, with the reason, and so is a name that nobody knows. Nothing is taken and ignored.

Defaults are those of Kafka 4. A topic's record holds what was set, as text; `settings_of` makes typed settings of it.
"""

from __future__ import annotations

import enum
import re
from collections.abc import Callable, Mapping
from functools import lru_cache
from typing import Any, NamedTuple

import msgspec

from catena.errors import ConfigError
from catena.formats.compression import Compression

MAX_MESSAGE_BYTES = 100 << 20
INT32_MAX = 2**31 - 1
INT64_MAX = 2**63 - 1
DAY_MS = 24 * 60 * 60 * 1000
MAX_VALUE_CHARS = 10_000
MAX_SCHEMA_CHARS = 100_000
_SCHEMAS = ("table.schemas", "table.value.schema")
CACHED_SETTINGS = 4096

COMPRESSIONS: Mapping[str, Compression | None] = {
    "producer": None,
    "uncompressed": Compression.NONE,
    "gzip": Compression.GZIP,
    "snappy": Compression.SNAPPY,
    "lz4": Compression.LZ4,
    "zstd": Compression.ZSTD,
}
_replicas = re.compile(r"\*|\d+:\d+(,\d+:\d+)*|")


class ConfigType(enum.IntEnum):
    """As DescribeConfigs says it."""

    BOOLEAN = 1
    STRING = 2
    INT = 3
    SHORT = 4
    LONG = 5
    DOUBLE = 6
    LIST = 7
    CLASS = 8
    PASSWORD = 9


class Kept(enum.Enum):
    """How the promise of a config is kept."""

    ACTS = "Catena acts by it"
    HOLDS = "it holds here whatever its value is"
    ONLY = "it is taken with one value only, as no other could be obeyed"


class TopicConfig(NamedTuple):
    name: str
    type: ConfigType
    default: str
    kept: Kept
    doc: str
    parse: Callable[[str], Any]
    """Text to value; ValueError, with the reason, for what can't be."""


class TopicSettings(msgspec.Struct, frozen=True):
    """What the configs of a topic say, for those who act by them."""

    max_message_bytes: int
    """Of a batch, as it came from the producer."""
    compression: Compression | None
    """What batches are stored with; None: as the producer sent them."""
    log_append_time: bool
    timestamp_before_max_ms: int | None
    """How far the time of a record may lie behind the clock; None: as far as it likes."""
    timestamp_after_max_ms: int | None
    compact: bool
    delete_retention_ms: int
    """How long a compacted log keeps the mark of a deleted key after it was first cleaned."""
    min_compaction_lag_ms: int
    max_compaction_lag_ms: int | None
    min_dirty_ratio: float
    retention_ms: int | None
    """None: for ever. So it is also if the cleanup policy does not say `delete`."""
    retention_bytes: int | None
    """Of one partition; None: any number."""
    min_insync_replicas: int


def validate(configs: Mapping[str, str]) -> dict[str, str]:
    """What to store; ConfigError for the first that is unknown, makes no sense or can't be obeyed."""
    return {name: _checked(name, value) for name, value in configs.items()}


def altered(configs: Mapping[str, str], change: Mapping[str, str | None]) -> dict[str, str]:
    """`configs` with each of `change` set, or, where it is None, back at its default. Only the change is checked."""
    result = dict(configs)
    for name, value in change.items():
        if value is not None:
            result[name] = _checked(name, value)
        else:
            _find(name)
            result.pop(name, None)
    return result


def settings_of(configs: Mapping[str, str]) -> TopicSettings:
    """The settings of a topic with these configs; what a newer version stored and this one can't read is not set."""
    return _settings(tuple(configs.items()))


@lru_cache(CACHED_SETTINGS)
def _settings(configs: tuple[tuple[str, str], ...]) -> TopicSettings:
    given = dict(configs)

    def value(name: str) -> Any:
        config = CATALOGUE[name]
        try:
            return config.parse(given.get(name, config.default))
        except ValueError:
            return config.parse(config.default)

    policies = value("cleanup.policy")
    deletes = "delete" in policies
    return TopicSettings(
        max_message_bytes=value("max.message.bytes"),
        compression=COMPRESSIONS[value("compression.type")],
        log_append_time=value("message.timestamp.type") == "LogAppendTime",
        timestamp_before_max_ms=_bound(value("message.timestamp.before.max.ms")),
        timestamp_after_max_ms=_bound(value("message.timestamp.after.max.ms")),
        compact="compact" in policies,
        delete_retention_ms=value("delete.retention.ms"),
        min_compaction_lag_ms=value("min.compaction.lag.ms"),
        max_compaction_lag_ms=_bound(value("max.compaction.lag.ms")),
        min_dirty_ratio=value("min.cleanable.dirty.ratio"),
        retention_ms=_bound(value("retention.ms")) if deletes else None,
        retention_bytes=_bound(value("retention.bytes")) if deletes else None,
        min_insync_replicas=value("min.insync.replicas"),
    )


def _bound(value: int) -> int | None:
    return value if 0 <= value < INT64_MAX else None


def _find(name: str) -> TopicConfig:
    config = CATALOGUE.get(name)
    if config is None:
        raise ConfigError(f"there is no topic config {name!r}")
    return config


def _checked(name: str, value: str) -> str:
    config = _find(name)
    value = value.strip()
    try:
        limit = MAX_SCHEMA_CHARS if name in _SCHEMAS else MAX_VALUE_CHARS
        if len(value) > limit:
            raise ValueError(f"has more than {limit} characters")
        config.parse(value)
    except ValueError as error:
        shown = value if len(value) <= 100 else value[:100] + "..."
        raise ConfigError(f"topic config {name}: {shown!r} {error}") from None
    return value


def _number(low: int, high: int) -> Callable[[str], int]:
    def parse(text: str) -> int:
        if not re.fullmatch(r"[+-]?[0-9]{1,19}", text):
            raise ValueError("is no whole number")
        if not low <= int(text) <= high:
            raise ValueError(f"is not between {low} and {high}")
        return int(text)

    return parse


def _fraction(text: str) -> float:
    if not re.fullmatch(r"[+-]?([0-9]+\.?[0-9]*|\.[0-9]+)([eE][+-]?[0-9]+)?", text):
        raise ValueError("is no number")
    if not 0 <= float(text) <= 1:
        raise ValueError("is not between 0 and 1")
    return float(text)


def _boolean(text: str) -> bool:
    if text.lower() not in ("true", "false"):
        raise ValueError("is neither true nor false")
    return text.lower() == "true"


def _one_of(*words: str) -> Callable[[str], str]:
    def parse(text: str) -> str:
        if text not in words:
            raise ValueError(f"is none of {', '.join(words)}")
        return text

    return parse


def _policies(text: str) -> tuple[str, ...]:
    words = tuple(word.strip() for word in text.split(","))
    if not set(words) <= {"delete", "compact"}:
        raise ValueError("is not delete, compact or compact,delete")
    return words


def _throttled(text: str) -> str:
    if not _replicas.fullmatch(text):
        raise ValueError("is neither * nor a list of partition:broker")
    return text


def _only(parse: Callable[[str], Any], taken: Any, reason: str) -> Callable[[str], Any]:
    def parse_only(text: str) -> Any:
        if parse(text) != taken:
            raise ValueError(f"can't be obeyed: {reason}")
        return taken

    return parse_only


def _schemas(text: str) -> str:
    try:
        found = msgspec.json.decode(text or "{}", type=dict[int, Any], strict=False)
    except msgspec.MsgspecError:
        raise ValueError("is no JSON object of schema ids and schemas") from None
    if any(not isinstance(schema, str | dict) for schema in found.values()):
        raise ValueError("has a schema that is neither a text nor a JSON object")
    return text


_LONG = _number(0, INT64_MAX)
_LONG_FROM_1 = _number(1, INT64_MAX)
_NO_TIER = "a diskless log is in the object store from the start, so there is nothing to move there"
_NO_LEVELS = "batches are compressed at Catena's own level"
_T = ConfigType

# fmt: off
CATALOGUE: Mapping[str, TopicConfig] = {
    config.name: config
    for config in (
        TopicConfig(
            "cleanup.policy", _T.LIST, "delete", Kept.ACTS,
            "What becomes of old records: delete removes them by retention.ms and retention.bytes; compact keeps the "
            "last record of each key, once catena pipeline has tiered and compacted them.",
            _policies,
        ),
        TopicConfig(
            "compression.gzip.level", _T.INT, "-1", Kept.ONLY,
            "The level of gzip where compression.type says gzip.",
            _only(_number(-1, 9), -1, _NO_LEVELS),
        ),
        TopicConfig(
            "compression.lz4.level", _T.INT, "9", Kept.ONLY,
            "The level of lz4 where compression.type says lz4.",
            _only(_number(1, 17), 9, _NO_LEVELS),
        ),
        TopicConfig(
            "compression.type", _T.STRING, "producer", Kept.ACTS,
            "How batches are stored: as the producer sent them (producer), or compressed anew when they are appended, "
            "which costs the broker's CPU.",
            _one_of(*COMPRESSIONS),
        ),
        TopicConfig(
            "compression.zstd.level", _T.INT, "3", Kept.ONLY,
            "The level of zstd where compression.type says zstd.",
            _only(_number(-131072, 22), 3, _NO_LEVELS),
        ),
        TopicConfig(
            "delete.retention.ms", _T.LONG, str(DAY_MS), Kept.ACTS,
            "How long a compacted log keeps the mark of a deleted key at least, from its first compaction on.",
            _LONG,
        ),
        TopicConfig(
            "diskless.enable", _T.BOOLEAN, "true", Kept.ONLY,
            "Whether the topic is in object storage, without leaders.",
            _only(_boolean, True, "classic topics, on the disks of brokers, come with a later version"),
        ),
        TopicConfig(
            "file.delete.delay.ms", _T.LONG, "60000", Kept.HOLDS,
            "How long a file that is not needed any more is kept at least. Objects are collected far later.",
            _LONG,
        ),
        TopicConfig(
            "flush.messages", _T.LONG, str(INT64_MAX), Kept.HOLDS,
            "After how many records the log is flushed at the latest. None is acked before it is durable.",
            _LONG_FROM_1,
        ),
        TopicConfig(
            "flush.ms", _T.LONG, str(INT64_MAX), Kept.HOLDS,
            "After how long the log is flushed at the latest. No record is acked before it is durable.",
            _LONG,
        ),
        TopicConfig(
            "follower.replication.throttled.replicas", _T.LIST, "", Kept.HOLDS,
            "Replicas whose copying is throttled on the follower. Diskless logs are not copied between brokers.",
            _throttled,
        ),
        TopicConfig(
            "index.interval.bytes", _T.INT, "4096", Kept.HOLDS,
            "How many bytes of a log lie between two entries of its offset index. There are no index files; any offset "
            "is found by one lookup.",
            _number(0, INT32_MAX),
        ),
        TopicConfig(
            "leader.replication.throttled.replicas", _T.LIST, "", Kept.HOLDS,
            "Replicas whose copying is throttled on the leader. Diskless logs are not copied between brokers.",
            _throttled,
        ),
        TopicConfig(
            "local.retention.bytes", _T.LONG, "-2", Kept.ONLY,
            "How many bytes of a tiered log stay on the brokers' disks; -2: as retention.bytes says.",
            _only(_number(-2, INT64_MAX), -2, _NO_TIER),
        ),
        TopicConfig(
            "local.retention.ms", _T.LONG, "-2", Kept.ONLY,
            "How long records of a tiered log stay on the brokers' disks; -2: as retention.ms says.",
            _only(_number(-2, INT64_MAX), -2, _NO_TIER),
        ),
        TopicConfig(
            "max.compaction.lag.ms", _T.LONG, str(INT64_MAX), Kept.ACTS,
            "After how long a record is subject to compaction at the latest, whatever min.cleanable.dirty.ratio says; "
            "catena pipeline has to have tiered it, and looks every few minutes.",
            _LONG_FROM_1,
        ),
        TopicConfig(
            "max.message.bytes", _T.INT, "1048588", Kept.ACTS,
            "The largest batch that the topic takes, compressed as the producer sent it.",
            _number(0, MAX_MESSAGE_BYTES),
        ),
        TopicConfig(
            "message.downconversion.enable", _T.BOOLEAN, "true", Kept.HOLDS,
            "Whether batches may be converted for clients of Kafka before 0.11. No such client is served.",
            _boolean,
        ),
        TopicConfig(
            "message.timestamp.after.max.ms", _T.LONG, "3600000", Kept.ACTS,
            "How far the time of a record may lie ahead of the broker's clock, where times are those of producers.",
            _LONG,
        ),
        TopicConfig(
            "message.timestamp.before.max.ms", _T.LONG, str(INT64_MAX), Kept.ACTS,
            "How far the time of a record may lie behind the broker's clock, where times are those of producers. Where "
            "it is set, the broker reads every record that is appended, which costs CPU.",
            _LONG,
        ),
        TopicConfig(
            "message.timestamp.type", _T.STRING, "CreateTime", Kept.ACTS,
            "Whose time a record has: the producer's (CreateTime), or that of the append (LogAppendTime).",
            _one_of("CreateTime", "LogAppendTime"),
        ),
        TopicConfig(
            "min.cleanable.dirty.ratio", _T.DOUBLE, "0.5", Kept.ACTS,
            "How much of what is tiered has to be new before it is compacted.",
            _fraction,
        ),
        TopicConfig(
            "min.compaction.lag.ms", _T.LONG, "0", Kept.ACTS,
            "How long a record is safe from compaction at least.",
            _LONG,
        ),
        TopicConfig(
            "min.insync.replicas", _T.INT, "1", Kept.HOLDS,
            "How many replicas must have a record before it is acked with acks=all. An ack means, with any acks but 0, "
            "that the object store has it for good; how many copies that keeps is the store's own affair.",
            _number(1, INT32_MAX),
        ),
        TopicConfig(
            "preallocate", _T.BOOLEAN, "false", Kept.HOLDS,
            "Whether a new segment file is given its room on the disk in advance. There are no segment files.",
            _boolean,
        ),
        TopicConfig(
            "remote.log.copy.disable", _T.BOOLEAN, "false", Kept.ONLY,
            "Whether a tiered log is copied to remote storage no longer.",
            _only(_boolean, False, _NO_TIER),
        ),
        TopicConfig(
            "remote.log.delete.on.disable", _T.BOOLEAN, "false", Kept.ONLY,
            "Whether what is in remote storage is deleted when tiering ends.",
            _only(_boolean, False, _NO_TIER),
        ),
        TopicConfig(
            "remote.storage.enable", _T.BOOLEAN, "false", Kept.ONLY,
            "Whether old segments move from the brokers' disks to remote storage.",
            _only(_boolean, False, _NO_TIER),
        ),
        TopicConfig(
            "retention.bytes", _T.LONG, "-1", Kept.ACTS,
            "How large a partition may become before its oldest records are deleted; -1: any size.",
            _number(-1, INT64_MAX),
        ),
        TopicConfig(
            "retention.ms", _T.LONG, str(7 * DAY_MS), Kept.ACTS,
            "How old records may become before they are deleted; -1: any age.",
            _number(-1, INT64_MAX),
        ),
        TopicConfig(
            "segment.bytes", _T.INT, str(1 << 30), Kept.HOLDS,
            "How large a segment file may become. There are none; retention does not wait for one to be full.",
            _number(14, INT32_MAX),
        ),
        TopicConfig(
            "segment.index.bytes", _T.INT, str(10 << 20), Kept.HOLDS,
            "How large an index file may become. There are none.",
            _number(4, INT32_MAX),
        ),
        TopicConfig(
            "segment.jitter.ms", _T.LONG, "0", Kept.HOLDS,
            "How much is taken from segment.ms at random. There are no segment files.",
            _LONG,
        ),
        TopicConfig(
            "segment.ms", _T.LONG, str(7 * DAY_MS), Kept.HOLDS,
            "How old a segment file may become. There are none; retention does not wait for one to be closed.",
            _LONG_FROM_1,
        ),
        TopicConfig(
            "table.commit.interval.ms", _T.LONG, "60000", Kept.ACTS,
            "How long after its append a record is in the topic's table at the latest, where the pipeline runs.",
            _LONG_FROM_1,
        ),
        TopicConfig(
            "table.enable", _T.BOOLEAN, "false", Kept.ACTS,
            "Whether the pipeline keeps a table of the topic's records, which outlives them.",
            _boolean,
        ),
        TopicConfig(
            "table.format", _T.STRING, "delta", Kept.ACTS,
            "What the table is: delta or iceberg. Another one begins a new table.",
            _one_of("delta", "iceberg"),
        ),
        TopicConfig(
            "table.retention.ms", _T.LONG, "-1", Kept.ACTS,
            "How old a day of the table may become before it is dropped, whatever the topic keeps; -1: any age.",
            _number(-1, INT64_MAX),
        ),
        TopicConfig(
            "table.schemas", _T.STRING, "", Kept.ACTS,
            "Schemas by id, as a JSON object, for values that begin with a schema registry's id.",
            _schemas,
        ),
        TopicConfig(
            "table.target.file.bytes", _T.LONG, str(128 << 20), Kept.ACTS,
            "How large the table's files become; smaller ones are made into larger ones.",
            _number(1, 1 << 30),
        ),
        TopicConfig(
            "table.value.format", _T.STRING, "raw", Kept.ACTS,
            "What values are: raw bytes in one column, or json, avro or protobuf, with a column for each field.",
            _one_of("raw", "json", "avro", "protobuf"),
        ),
        TopicConfig(
            "table.value.schema", _T.STRING, "", Kept.ACTS,
            "The schema of values that do not name one themselves: a JSON schema, an Avro schema, a .proto file.",
            lambda text: text,
        ),
        TopicConfig(
            "unclean.leader.election.enable", _T.BOOLEAN, "false", Kept.HOLDS,
            "Whether a replica that lags may become the leader, and records be lost. No node owns a diskless log.",
            _boolean,
        ),
    )
}
# fmt: on
