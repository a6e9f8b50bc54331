"""Options of writes: those of Spark's Kafka sink, by its names, and what makes a write happen exactly once.

`txnAppId` and `txnVersion` mean what they do for Delta tables: of an application's versions each is written once to a
topic, and one that is not greater than the last is skipped. Where a column names the topic it is once for all of them.
A stream has both by itself, the id of its query and the number of the batch; there `txnAppId` stands in place of the
query's id.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from typing import NamedTuple

from catena.errors import ConfigError, InvalidTopic
from catena.meta import keys
from catena.source.options import KAFKA_PREFIX, Given
from catena.virtual_log.intents import check_app
from catena.virtual_log.topics import check_name

NAMES = ("topic", "txnAppId", "txnVersion", "data", "config")
IGNORED = ("includeHeaders", "checkpointLocation", "queryName")
"""Of reads, or Spark's own."""
REFUSED = {
    f"{KAFKA_PREFIX}key.serializer": "keys are binary or string columns",
    f"{KAFKA_PREFIX}value.serializer": "values are binary or string columns",
    f"{KAFKA_PREFIX}partitioner.class": "rows go to the partition of their column partition, or of their key",
    f"{KAFKA_PREFIX}transactional.id": "txnAppId and txnVersion make a write happen once",
}


class WriteOptions(NamedTuple):
    topic: str | None
    """None: a column names it."""
    app: str | None
    version: int | None
    data: str | None
    config: str | None

    @property
    def writer(self) -> str | None:
        """Who writes: the application, to this topic. No two pairs of them are one writer: names of topics have no
        spaces, so what follows the last space is the topic, or nothing if a column names it."""
        if self.app is None or (self.topic is None and " " not in self.app):
            return self.app
        both = f"{self.app} {self.topic or ''}"
        return both if keys.is_group_id(both) else hashlib.sha256(both.encode()).hexdigest()


def parse_batch_write(given: Mapping[str, str]) -> WriteOptions:
    options = _parse(given)
    if (options.app is None) != (options.version is None):
        one, other = ("txnAppId", "txnVersion") if options.version is None else ("txnVersion", "txnAppId")
        raise ConfigError(f"option {one} needs {other} beside it: together they name a write")
    return options


def parse_stream_write(given: Mapping[str, str]) -> WriteOptions:
    options = _parse(given)
    if options.version is not None:
        raise ConfigError("option txnVersion: a stream has the numbers of its batches for that; leave it out")
    return options


def _parse(given: Mapping[str, str]) -> WriteOptions:
    options = Given(given, (*NAMES, *IGNORED), REFUSED)
    topic, app = options.text("topic"), options.text("txnAppId")
    if topic is not None:
        try:
            check_name(topic)
        except InvalidTopic as error:
            raise ConfigError(f"option topic: {error}") from None
    if app is not None:
        check_app(app)
    version = options.integer("txnVersion", 0)
    return WriteOptions(topic, app, version, options.text("data"), options.text("config"))
