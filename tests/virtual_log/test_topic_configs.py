"""Every config is obeyed, holds by itself, or is refused with a reason; none is taken and ignored."""

from __future__ import annotations

import pytest

from catena.errors import ConfigError
from catena.formats.compression import Compression
from catena.virtual_log.topic_configs import (
    CATALOGUE,
    INT64_MAX,
    MAX_MESSAGE_BYTES,
    ConfigType,
    Kept,
    TopicConfig,
    altered,
    settings_of,
    validate,
)

# From the documentation of Kafka 4: what a topic can be given, and what it has if it is not.
KAFKA_DEFAULTS = {
    "cleanup.policy": "delete",
    "compression.gzip.level": "-1",
    "compression.lz4.level": "9",
    "compression.type": "producer",
    "compression.zstd.level": "3",
    "delete.retention.ms": "86400000",
    "file.delete.delay.ms": "60000",
    "flush.messages": "9223372036854775807",
    "flush.ms": "9223372036854775807",
    "follower.replication.throttled.replicas": "",
    "index.interval.bytes": "4096",
    "leader.replication.throttled.replicas": "",
    "local.retention.bytes": "-2",
    "local.retention.ms": "-2",
    "max.compaction.lag.ms": "9223372036854775807",
    "max.message.bytes": "1048588",
    "message.timestamp.after.max.ms": "3600000",
    "message.timestamp.before.max.ms": "9223372036854775807",
    "message.timestamp.type": "CreateTime",
    "min.cleanable.dirty.ratio": "0.5",
    "min.compaction.lag.ms": "0",
    "min.insync.replicas": "1",
    "preallocate": "false",
    "remote.log.copy.disable": "false",
    "remote.log.delete.on.disable": "false",
    "remote.storage.enable": "false",
    "retention.bytes": "-1",
    "retention.ms": "604800000",
    "segment.bytes": "1073741824",
    "segment.index.bytes": "10485760",
    "segment.jitter.ms": "0",
    "segment.ms": "604800000",
    "unclean.leader.election.enable": "false",
}
NOT_IN_KAFKA_4 = {
    "diskless.enable": "true",
    "message.downconversion.enable": "true",
    "table.commit.interval.ms": "60000",
    "table.enable": "false",
    "table.format": "delta",
    "table.retention.ms": "-1",
    "table.schemas": "",
    "table.target.file.bytes": "134217728",
    "table.value.format": "raw",
    "table.value.schema": "",
}

TAKEN = [
    ("cleanup.policy", "compact"),
    ("cleanup.policy", "compact,delete"),
    ("max.compaction.lag.ms", "1"),
    ("cleanup.policy", "delete, compact"),
    *(("compression.type", name) for name in ("uncompressed", "gzip", "snappy", "lz4", "zstd", "producer")),
    ("delete.retention.ms", "0"),
    ("diskless.enable", "TRUE"),
    ("flush.messages", "1"),
    ("flush.ms", "0"),
    ("leader.replication.throttled.replicas", "*"),
    ("follower.replication.throttled.replicas", "0:1,12:3"),
    ("max.message.bytes", "0"),
    ("max.message.bytes", str(MAX_MESSAGE_BYTES)),
    ("message.timestamp.type", "LogAppendTime"),
    ("min.cleanable.dirty.ratio", "0"),
    ("min.cleanable.dirty.ratio", "1e-1"),
    ("min.insync.replicas", "3"),
    ("preallocate", "true"),
    ("retention.bytes", "-1"),
    ("retention.ms", " 1000 "),
    ("segment.bytes", "14"),
    ("table.enable", "true"),
    ("table.format", "iceberg"),
    ("table.schemas", '{"7": {"type": "string"}, "8": "syntax = \\"proto3\\";"}'),
    ("table.value.schema", '{"type": "object"}'),
    ("unclean.leader.election.enable", "true"),
]
SENSELESS = [
    ("cleanup.policy", "", "delete, compact"),
    ("cleanup.policy", "compact,shred", "delete, compact"),
    ("compression.type", "none", "none of producer"),
    ("diskless.enable", "yes", "neither true nor false"),
    ("flush.messages", "0", "not between 1"),
    ("follower.replication.throttled.replicas", "0-1", "partition:broker"),
    ("index.interval.bytes", str(2**31), "not between"),
    ("max.message.bytes", "-1", "not between"),
    ("max.message.bytes", str(MAX_MESSAGE_BYTES + 1), "not between"),
    ("message.timestamp.type", "logappendtime", "none of CreateTime"),
    ("min.cleanable.dirty.ratio", "1.01", "not between 0 and 1"),
    ("min.cleanable.dirty.ratio", "nan", "is no number"),
    ("min.insync.replicas", "0", "not between 1"),
    ("retention.ms", "-2", "not between -1"),
    ("retention.ms", "1e6", "no whole number"),
    ("retention.ms", "", "no whole number"),
    ("retention.ms", str(2**63), "not between"),
    ("retention.ms", "9" * 5000, "no whole number"),
    ("segment.ms", "0", "not between 1"),
    ("table.commit.interval.ms", "0", "not between 1"),
    ("table.format", "hudi", "none of delta, iceberg"),
    ("table.schemas", "[]", "no JSON object"),
    ("table.schemas", '{"seven": "x"}', "no JSON object"),
    ("table.schemas", '{"7": 7}', "neither a text"),
    ("table.target.file.bytes", "0", "not between 1"),
    ("table.value.format", "xml", "none of raw"),
    ("leader.replication.throttled.replicas", "0:1," * 10_000 + "0:1", "more than"),
]
NOT_OBEYED = [
    ("compression.gzip.level", "9", "own level"),
    ("compression.lz4.level", "1", "own level"),
    ("compression.zstd.level", "19", "own level"),
    ("diskless.enable", "false", "classic topics"),
    ("local.retention.bytes", "5", "object store"),
    ("local.retention.ms", "5", "object store"),
    ("remote.log.copy.disable", "true", "object store"),
    ("remote.log.delete.on.disable", "true", "object store"),
    ("remote.storage.enable", "true", "object store"),
]


def test_the_catalogue_has_what_kafka_has_and_its_defaults() -> None:
    assert {name: config.default for name, config in CATALOGUE.items()} == KAFKA_DEFAULTS | NOT_IN_KAFKA_4


VALUES: dict[ConfigType, type | tuple[type, ...]] = {
    ConfigType.BOOLEAN: bool,
    ConfigType.INT: int,
    ConfigType.LONG: int,
    ConfigType.DOUBLE: float,
    ConfigType.STRING: str,
    ConfigType.LIST: (str, tuple),
}


@pytest.mark.parametrize("config", CATALOGUE.values(), ids=lambda config: config.name)
def test_every_config_takes_its_default_and_explains_itself(config: TopicConfig) -> None:
    assert validate({config.name: config.default}) == {config.name: config.default}
    assert isinstance(config.parse(config.default), VALUES[config.type])
    assert config.doc.endswith(".")


@pytest.mark.parametrize(("name", "value"), TAKEN)
def test_what_is_taken(name: str, value: str) -> None:
    assert validate({name: value}) == {name: value.strip()}


@pytest.mark.parametrize(("name", "value", "reason"), SENSELESS)
def test_what_makes_no_sense(name: str, value: str, reason: str) -> None:
    with pytest.raises(ConfigError, match=f"topic config {name}: .*{reason}") as raised:
        validate({name: value})
    assert len(str(raised.value)) < 400


@pytest.mark.parametrize(("name", "value", "reason"), NOT_OBEYED)
def test_what_cannot_be_obeyed_is_refused_with_the_reason(name: str, value: str, reason: str) -> None:
    assert CATALOGUE[name].kept is Kept.ONLY
    with pytest.raises(ConfigError, match=f"topic config {name}: .*can't be obeyed: .*{reason}"):
        validate({name: value})


def test_all_that_take_one_value_only_have_been_tried() -> None:
    assert {name for name, config in CATALOGUE.items() if config.kept is Kept.ONLY} == {name for name, *_ in NOT_OBEYED}


@pytest.mark.parametrize("name", ["", "retention", "Retention.ms", "message.timestamp.difference.max.ms"])
def test_unknown_names_are_refused(name: str) -> None:
    for change in ({name: "1"}, {name: None}):
        with pytest.raises(ConfigError, match="there is no topic config"):
            altered({}, change)
    with pytest.raises(ConfigError, match="there is no topic config"):
        validate({name: "1"})


def test_a_change_sets_some_and_takes_back_others() -> None:
    configs = {"retention.ms": "1", "flush.ms": "2"}
    change = {"retention.ms": None, "flush.ms": " 3", "segment.ms": "4", "segment.bytes": None}
    assert altered(configs, change) == {"flush.ms": "3", "segment.ms": "4"}
    assert configs == {"retention.ms": "1", "flush.ms": "2"}


def test_a_change_does_not_judge_what_was_set_before() -> None:
    """Else a config that a newer version does not take any more could not even be taken back."""
    assert altered({"old.config": "x"}, {"flush.ms": "3"}) == {"old.config": "x", "flush.ms": "3"}


class TestSettings:
    def test_defaults(self) -> None:
        settings = settings_of({})
        assert settings.max_message_bytes == 1048588
        assert settings.compression is None
        assert not settings.log_append_time
        assert (settings.timestamp_before_max_ms, settings.timestamp_after_max_ms) == (None, 3_600_000)
        assert not settings.compact
        assert (settings.retention_ms, settings.retention_bytes) == (604_800_000, None)
        assert settings.min_insync_replicas == 1

    def test_what_was_set(self) -> None:
        settings = settings_of(
            {
                "max.message.bytes": "5",
                "compression.type": "zstd",
                "message.timestamp.type": "LogAppendTime",
                "message.timestamp.before.max.ms": "6",
                "message.timestamp.after.max.ms": str(INT64_MAX),
                "cleanup.policy": "compact,delete",
                "retention.ms": "-1",
                "retention.bytes": "7",
                "min.insync.replicas": "2",
            }
        )
        assert (settings.max_message_bytes, settings.min_insync_replicas) == (5, 2)
        assert settings.compression is Compression.ZSTD
        assert settings.log_append_time
        assert (settings.timestamp_before_max_ms, settings.timestamp_after_max_ms) == (6, None)
        assert settings.compact
        assert (settings.retention_ms, settings.retention_bytes) == (None, 7)

    def test_how_a_log_is_compacted(self) -> None:
        settings = settings_of({})
        assert (settings.delete_retention_ms, settings.min_dirty_ratio) == (86_400_000, 0.5)
        assert (settings.min_compaction_lag_ms, settings.max_compaction_lag_ms) == (0, None)
        settings = settings_of(
            {
                "delete.retention.ms": "1",
                "min.compaction.lag.ms": "2",
                "max.compaction.lag.ms": "3",
                "min.cleanable.dirty.ratio": "0.4",
            }
        )
        assert (settings.delete_retention_ms, settings.min_dirty_ratio) == (1, 0.4)
        assert (settings.min_compaction_lag_ms, settings.max_compaction_lag_ms) == (2, 3)

    def test_uncompressed_is_a_compression_of_its_own(self) -> None:
        assert settings_of({"compression.type": "uncompressed"}).compression is Compression.NONE

    def test_without_the_policy_to_delete_nothing_is(self) -> None:
        settings = settings_of({"cleanup.policy": "compact", "retention.ms": "5", "retention.bytes": "5"})
        assert (settings.retention_ms, settings.retention_bytes) == (None, None)

    def test_what_another_version_stored_and_this_one_cannot_read_is_not_set(self) -> None:
        stored = {"new.config": "x", "compression.type": "brotli", "max.message.bytes": "6"}
        assert settings_of(stored) == settings_of({"max.message.bytes": "6"})

    def test_they_are_made_once(self) -> None:
        assert settings_of({"retention.ms": "12345"}) is settings_of({"retention.ms": "12345"})
