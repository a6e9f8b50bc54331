"""Options of the source: those of Spark's Kafka source, by its names, with its rules and its precedence.

So a job moves over by changing its format. What only a client of Kafka needs (`kafka.*`, timeouts of its consumer) is
taken and does nothing, but for what would change what is read: that is refused, as Spark does. Names are not
case-sensitive. An option that nobody knows is refused: a typing error would read something else than was meant.

`data` and `config` say where the log is, as they do on the command line; or `node`, with a `token`, which node to ask.
"""

from __future__ import annotations

import difflib
import enum
import re
from collections.abc import Iterable, Mapping, Sequence
from typing import NamedTuple, TypeAlias, TypeVar

import msgspec

from catena.errors import ConfigError, InvalidTopic
from catena.meta.keys import is_group_id
from catena.virtual_log.topics import check_name

T = TypeVar("T")

LATEST, EARLIEST = -1, -2
"""In the JSON of offsets."""
MAX_INT = (1 << 63) - 1

STRATEGIES = ("subscribe", "subscribePattern", "assign")
STARTS = ("startingTimestamp", "startingOffsetsByTimestamp", "startingOffsets")
ENDS = ("endingTimestamp", "endingOffsetsByTimestamp", "endingOffsets")
"""The first that is given counts."""
OTHERS = (
    "startingOffsetsByTimestampStrategy",
    "failOnDataLoss",
    "failOnUndecodableBatch",
    "maxOffsetsPerTrigger",
    "minPartitions",
    "maxRecordsPerPartition",
    "includeHeaders",
    "commitGroup",
    "data",
    "config",
    "node",
    "token",
)
IGNORED = (
    "minOffsetsPerTrigger",
    "maxTriggerDelay",
    "groupIdPrefix",
    "kafkaConsumer.pollTimeoutMs",
    "fetchOffset.numRetries",
    "fetchOffset.retryIntervalMs",
)
NAMES = (*STRATEGIES, *STARTS, *ENDS, *OTHERS, *IGNORED)
KAFKA_PREFIX = "kafka."
REFUSED = {
    "kafka.auto.offset.reset": "startingOffsets says where to begin",
    "kafka.key.deserializer": "keys are bytes; turn them into something else with functions of DataFrames",
    "kafka.value.deserializer": "values are bytes; turn them into something else with functions of DataFrames",
    "kafka.enable.auto.commit": "no offsets are committed",
    "kafka.interceptor.classes": "no consumer is there that could have interceptors",
}


class Edge(enum.Enum):
    EARLIEST = "earliest"
    LATEST = "latest"


class AtOffsets(NamedTuple):
    """For each partition of each topic; LATEST and EARLIEST stand for the ends of its log."""

    offsets: Mapping[str, Mapping[int, int]]


class AtTime(NamedTuple):
    """The first record at or after this time, in each partition."""

    time_ms: int


class AtTimes(NamedTuple):
    times_ms: Mapping[str, Mapping[int, int]]


Position: TypeAlias = Edge | AtOffsets | AtTime | AtTimes


class Limit(NamedTuple):
    """Where a read begins or ends, and the option that says so."""

    option: str
    position: Position


class Subscribed(NamedTuple):
    topics: tuple[str, ...]


class SubscribedPattern(NamedTuple):
    """A regular expression for whole names."""

    pattern: str


class Assigned(NamedTuple):
    partitions: Mapping[str, tuple[int, ...]]


Subscription: TypeAlias = Subscribed | SubscribedPattern | Assigned


class SourceOptions(NamedTuple):
    subscription: Subscription
    start: Limit
    end: Limit
    latest_if_no_match: bool
    """Begin at the end where no record is at or after the time that was given; else that is an error."""
    fail_on_data_loss: bool
    max_offsets_per_trigger: int | None
    min_partitions: int | None
    max_records_per_partition: int | None
    include_headers: bool
    data: str | None
    config: str | None
    node: str | None
    """The address of a node that plans and hands out links, instead of the stores themselves."""
    token: str | None
    is_stream: bool
    given: Mapping[str, str]
    commit_group: str | None
    """Of consumers: a stream's progress is committed as its offsets."""
    fail_on_undecodable_batch: bool
    """A producer may send a batch that nobody can read, with a right CRC. Nothing is lost then: it is asked apart."""


def parse_batch(given: Mapping[str, str]) -> SourceOptions:
    """Of a query that ends: from the beginning to the end, if nothing else is said."""
    options = Given(given)
    start = _limit(options, STARTS, Edge.EARLIEST)
    if (at := _edge(start, Edge.LATEST, LATEST)) is not None:
        raise ConfigError(f"option {start.option}: a batch query can't begin at latest{at}, where nothing is yet")
    end = _limit(options, ENDS, Edge.LATEST)
    if (at := _edge(end, Edge.EARLIEST, EARLIEST)) is not None:
        raise ConfigError(f"option {end.option}: a batch query can't end at earliest{at}, before everything")
    return _parse(options, start, end, given, is_stream=False)


def parse_stream(given: Mapping[str, str]) -> SourceOptions:
    """Of a query that goes on: from what comes next, if nothing else is said."""
    options = Given(given)
    for name in ENDS:
        if name in options:
            raise ConfigError(f"option {name}: a stream has no end; leave it out, or use a batch query")
    start = _limit(options, STARTS, Edge.LATEST)
    return _parse(options, start, Limit(ENDS[-1], Edge.LATEST), given, is_stream=True)


def wants_headers(given: Mapping[str, str]) -> bool:
    return Given(given).boolean("includeHeaders", False)


class Given:
    """What was given, by these names."""

    def __init__(
        self, given: Mapping[str, str], names: Sequence[str] = NAMES, refused: Mapping[str, str] = REFUSED
    ) -> None:
        by_lower = {name.lower(): name for name in names}
        self._values: dict[str, str] = {}
        for name, value in given.items():
            lower = name.lower()
            if lower in refused:
                raise ConfigError(f"option {name} is not supported: {refused[lower]}")
            if lower in by_lower:
                self._values[by_lower[lower]] = value
            elif not lower.startswith(KAFKA_PREFIX):
                near = difflib.get_close_matches(lower, by_lower, 1)
                meant = f"; was {by_lower[near[0]]} meant?" if near else f"; there are {', '.join(names)}"
                raise ConfigError(f"option {name} is not known{meant}")

    def __contains__(self, name: str) -> bool:
        return name in self._values

    def text(self, name: str) -> str | None:
        value = self._values.get(name)
        return None if value is None else value.strip()

    def boolean(self, name: str, default: bool) -> bool:
        value = self.text(name)
        if value is None:
            return default
        if value.lower() not in ("true", "false"):
            raise ConfigError(f"option {name} is true or false, not {value!r}")
        return value.lower() == "true"

    def integer(self, name: str, least: int = 1) -> int | None:
        value = self.text(name)
        if value is None:
            return None
        if not re.fullmatch(r"\d{1,19}", value) or not least <= int(value) <= MAX_INT:
            raise ConfigError(f"option {name} is a whole number from {least} to {MAX_INT}, not {value!r}")
        return int(value)

    def json(self, name: str, form: type[T], example: str) -> T:
        value = self.text(name)
        try:
            return msgspec.json.decode(value or "", type=form)
        except msgspec.MsgspecError as error:
            raise ConfigError(f"option {name} is JSON such as {example}, not {value!r}: {error}") from None


def _parse(options: Given, start: Limit, end: Limit, given: Mapping[str, str], is_stream: bool) -> SourceOptions:
    if "node" in options and ("data" in options or "config" in options):
        raise ConfigError("option node: the log is read through a node or from its stores; leave out data and config")
    strategy = options.text("startingOffsetsByTimestampStrategy") or "error"
    if strategy.lower() not in ("error", "latest"):
        raise ConfigError(f"option startingOffsetsByTimestampStrategy is error or latest, not {strategy!r}")
    return SourceOptions(
        subscription=_subscription(options),
        start=start,
        end=end,
        latest_if_no_match=strategy.lower() == "latest",
        fail_on_data_loss=options.boolean("failOnDataLoss", True),
        max_offsets_per_trigger=options.integer("maxOffsetsPerTrigger"),
        min_partitions=options.integer("minPartitions"),
        max_records_per_partition=options.integer("maxRecordsPerPartition"),
        include_headers=options.boolean("includeHeaders", False),
        data=options.text("data"),
        config=options.text("config"),
        node=options.text("node"),
        token=options.text("token"),
        is_stream=is_stream,
        given=dict(given),
        commit_group=_commit_group(options, is_stream),
        fail_on_undecodable_batch=options.boolean("failOnUndecodableBatch", True),
    )


def _commit_group(options: Given, is_stream: bool) -> str | None:
    group = options.text("commitGroup")
    if group is None:
        return None
    if not is_stream:
        raise ConfigError("option commitGroup: only a stream makes progress; leave it out of a batch query")
    if "node" in options:
        raise ConfigError("option commitGroup needs the stores themselves; leave it out, or use data or config")
    if not is_group_id(group):
        raise ConfigError(f"option commitGroup: {group!r} can't be the id of a group")
    return group


def _subscription(options: Given) -> Subscription:
    found = [name for name in STRATEGIES if name in options]
    if len(found) != 1:
        said = f"{' and '.join(found)} were given" if found else "none was given"
        raise ConfigError(f"exactly one of the options {', '.join(STRATEGIES)} says which topics to read; {said}")
    name, value = found[0], options.text(found[0]) or ""
    match name:
        case "subscribe":
            topics = tuple(dict.fromkeys(topic.strip() for topic in value.split(",") if topic.strip()))
            if not topics:
                raise ConfigError(f"option subscribe names topics, with commas between them, not {value!r}")
            _check_topics(name, topics)
            return Subscribed(topics)
        case "subscribePattern":
            try:
                re.compile(value)
            except re.error as error:
                raise ConfigError(f"option subscribePattern: {value!r} is no regular expression: {error}") from None
            if not value:
                raise ConfigError("option subscribePattern is a regular expression, and not empty")
            return SubscribedPattern(value)
        case _:
            partitions = options.json(name, dict[str, list[int]], '{"orders": [0, 1]}')
            if not any(partitions.values()):
                raise ConfigError(f'option assign names partitions, such as {{"orders": [0, 1]}}, not {value!r}')
            _check_topics(name, partitions)
            if any(number < 0 for numbers in partitions.values() for number in numbers):
                raise ConfigError(f"option assign: partitions are numbered from 0 on, not as in {value!r}")
            return Assigned({topic: tuple(sorted(set(numbers))) for topic, numbers in partitions.items() if numbers})


def _check_topics(option: str, topics: Iterable[str]) -> None:
    for topic in topics:
        try:
            check_name(topic)
        except InvalidTopic as error:
            raise ConfigError(f"option {option}: {error}") from None


def _limit(options: Given, names: tuple[str, str, str], default: Edge) -> Limit:
    of_all, of_each, offsets = names
    if of_all in options:
        time_ms = options.integer(of_all, 0)
        assert time_ms is not None
        return Limit(of_all, AtTime(time_ms))
    if of_each in options:
        times = options.json(of_each, dict[str, dict[int, int]], '{"orders": {"0": 1700000000000}}')
        _check_numbers(of_each, times, 0, "times are milliseconds since 1970")
        return Limit(of_each, AtTimes(times))
    value = options.text(offsets)
    if value is None:
        return Limit(offsets, default)
    if value.lower() in (Edge.EARLIEST.value, Edge.LATEST.value):
        return Limit(offsets, Edge(value.lower()))
    at = options.json(offsets, dict[str, dict[int, int]], 'earliest, latest or {"orders": {"0": 23, "1": -2}}')
    _check_numbers(offsets, at, EARLIEST, "an offset is 0 or more, -1 for latest or -2 for earliest")
    return Limit(offsets, AtOffsets(at))


def _check_numbers(option: str, given: Mapping[str, Mapping[int, int]], least: int, rule: str) -> None:
    for topic, numbers in given.items():
        for partition, number in numbers.items():
            if partition < 0:
                raise ConfigError(f"option {option}: there is no partition {partition} of {topic}; they begin at 0")
            if not least <= number <= MAX_INT:
                raise ConfigError(f"option {option}: {rule}, not {number} as for {topic}/{partition}")


def _edge(limit: Limit, edge: Edge, number: int) -> str | None:
    """Where the limit is this end of the log: "" if everywhere, the first such partition otherwise; None if nowhere."""
    match limit.position:
        case Edge() as position:
            return "" if position is edge else None
        case AtOffsets(offsets):
            places = [f"{topic}/{part}" for topic, at in offsets.items() for part in at if at[part] == number]
            return f" of {places[0]}" if places else None
        case _:
            return None
