"""Settings of the Kafka side of a node."""

from __future__ import annotations

import msgspec

from catena.broker.base import TopicDefaults
from catena.broker.connection import ConnectionSettings
from catena.broker.coordinator import CoordinatorSettings
from catena.broker.retention import RetentionSettings
from catena.broker.server import ListenerSettings


class KafkaSettings(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    listeners: dict[str, ListenerSettings] = msgspec.field(default_factory=lambda: {"main": ListenerSettings()})
    """By name. A client is told the addresses of the listener that it came in through."""
    connections: ConnectionSettings = ConnectionSettings()
    topics: TopicDefaults = TopicDefaults()
    groups: CoordinatorSettings = CoordinatorSettings()
    retention: RetentionSettings = RetentionSettings()
    drain_max_ms: int = 10_000
    """How long a node that is told to end waits for what it has taken."""
