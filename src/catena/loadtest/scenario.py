"""What a load test is to be: a TOML file, checked as a whole before anything is started.

Unknown keys are refused, and so is what is out of range; the error names the place. A scenario never holds a secret:
it is copied into the run directory. Passwords and tokens come by the environment (CATENA_META, CATENA_HTTP__TOKEN and
so on).
"""

from __future__ import annotations

import re
import tomllib
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Annotated, Any, Literal, TypeAlias
from urllib.parse import parse_qsl, urlsplit

import msgspec

from catena.cluster.view import WRITE
from catena.config import is_secret, parse_settings
from catena.errors import ConfigError
from catena.local_cluster.plan import roles_of, wrong_roles, wrong_stores

MB = 1_000_000
MAX_VERIFIED_RECORDS = 100_000_000
"""What is acked and what was found is kept for each record: ten bytes."""
MAX_PARTITIONS = 100_000
HTTP_MAX_BYTES = 8_000_000
RESUME_AFTER_S = 5.0
IN_FLIGHT_MAX = 5
"""More an idempotent producer may not have."""

Name: TypeAlias = Annotated[str, msgspec.Meta(pattern=r"^[a-z0-9][a-z0-9-]{0,62}$")]
TopicName: TypeAlias = Annotated[str, msgspec.Meta(pattern=r"^[A-Za-z0-9._-]{1,249}$")]
Processes: TypeAlias = Annotated[int, msgspec.Meta(ge=0, le=64)]
Seconds: TypeAlias = Annotated[float, msgspec.Meta(ge=0, le=86_400)]
Setting: TypeAlias = bool | int | float | str


class Stack(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    nodes: Annotated[int, msgspec.Meta(ge=1, le=32)] = 1
    meta: str = "sqlite"
    """`sqlite`, `postgres` to start a server, or an address without a password; empty: what the environment says."""
    objects: str = "folder"
    """`folder`, `s3` to start a server, or an address; empty: what the environment says."""
    roles: tuple[str, ...] = ()
    """Given to the nodes in turn, each `write`, `read` or `write+read`; none: all nodes do both. HTTP requests go to
    nodes that take them, and nodes share a tail folder."""
    pipeline: bool = False
    """Whether `catena pipeline run` runs beside the nodes, on Spark."""
    pipeline_master: str = "local[1]"
    settings: dict[str, Setting] = {}
    """Of nodes and pipeline, by their full names: "diskless.writer.batch_max_delay_ms" = 100."""


class Topic(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    name: TopicName
    partitions: Annotated[int, msgspec.Meta(ge=1, le=10_000)] = 1


class Load(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    duration_s: Annotated[float, msgspec.Meta(gt=0, le=86_400)] = 20.0
    """After the warm-up."""
    warm_up_s: Seconds = 2.0
    """Sent and reconciled, but not in the latencies."""
    rate_mb_s: Annotated[float, msgspec.Meta(gt=0, le=10_000)] = 1.0
    """Of record values, of all producers together; 1 MB is 1,000,000 bytes."""
    record_bytes: Annotated[int, msgspec.Meta(ge=64, le=1_000_000)] = 1024
    interval_s: Annotated[float, msgspec.Meta(ge=0.1, le=60)] = 1.0
    """How often hammers say how they are."""
    backlog_max: Annotated[int, msgspec.Meta(ge=1, le=10_000_000)] = 100_000
    """Records of one hammer that are due and not answered. Past it, what is due is dropped, and counted."""
    drain_s: Annotated[float, msgspec.Meta(ge=0, le=600)] = 60.0
    """How long acks and consumers are waited for after the last record was due."""
    capacity: Literal["off", "find"] = "off"
    """`find`: the rate is stepped up until it is too much; `rate_mb_s` and `duration_s` do not count then."""


class Kafka(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    producers: Processes = 1
    consumers: Processes = 1
    linger_ms: Annotated[float, msgspec.Meta(ge=0, le=10_000)] = 5.0
    batch_bytes: Annotated[int, msgspec.Meta(ge=1024, le=16 << 20)] = 1 << 20
    compression: Literal["none", "gzip", "snappy", "lz4", "zstd"] = "none"
    in_flight: Annotated[int, msgspec.Meta(ge=0, le=IN_FLIGHT_MAX)] = 0
    """Requests of a producer that a node has not answered; 0: see `requests_in_flight`."""
    in_a_row: Annotated[int, msgspec.Meta(ge=1, le=1_000_000)] = 16
    """Records that go to a partition before it is the next one's turn."""


class Http(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    producers: Processes = 0
    consumers: Processes = 0
    share: Annotated[float, msgspec.Meta(ge=0, le=1)] = 0.5
    """Of the rate, where there are producers of both kinds."""
    records_per_request: Annotated[int, msgspec.Meta(ge=1, le=100_000)] = 100
    connections: Annotated[int, msgspec.Meta(ge=1, le=1024)] = 8
    """Of each producer: so many requests are on their way at the same time, at the most."""
    owners: Annotated[int, msgspec.Meta(ge=1, le=32)] = 2
    """Nodes that a partition's requests go to."""
    selection: Literal["round_robin", "least_inflight"] = "round_robin"
    timeout_s: Annotated[float, msgspec.Meta(gt=0, le=600)] = 30.0


class Capacity(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """How it is searched for: steps up by `factor` until one breaks, then between the last two `halvings` times."""

    start_mb_s: Annotated[float, msgspec.Meta(gt=0, le=10_000)] = 2.0
    max_mb_s: Annotated[float, msgspec.Meta(gt=0, le=10_000)] = 1_000.0
    factor: Annotated[float, msgspec.Meta(gt=1, le=10)] = 1.6
    halvings: Annotated[int, msgspec.Meta(ge=0, le=10)] = 2
    step_s: Annotated[float, msgspec.Meta(ge=1, le=3_600)] = 15.0
    p99_ms: Annotated[float, msgspec.Meta(gt=0, le=600_000)] = 1_000.0
    """A step breaks when acks take longer,"""
    error_share: Annotated[float, msgspec.Meta(ge=0, le=1)] = 0.0
    """when more than this share of the records fails or is dropped,"""
    reached_share: Annotated[float, msgspec.Meta(gt=0, le=1)] = 0.97
    """or when less than this share of the rate is acked."""


class Event(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Something is done to a process: exactly one of `kill`, `stop` and `end`, by the name of a node, or `pipeline`."""

    at: str
    """`50%` of the duration, or seconds from the end of the warm-up: `30s`."""
    kill: str | None = None
    """SIGKILL."""
    stop: str | None = None
    """SIGSTOP: it does nothing, and is not gone."""
    end: str | None = None
    """SIGTERM: a node drains."""
    restart_after_s: Annotated[float, msgspec.Meta(ge=0, le=86_400)] | None = None
    """After kill or end; never if it is not said."""
    resume_after_s: Annotated[float, msgspec.Meta(gt=0, le=86_400)] | None = None
    """After stop; RESUME_AFTER_S if it is not said."""

    @property
    def action(self) -> str:
        return next(name for name in ("kill", "stop", "end") if getattr(self, name) is not None)

    @property
    def target(self) -> str:
        return str(getattr(self, self.action))

    def at_s(self, duration_s: float) -> float:
        """From the end of the warm-up."""
        number = float(self.at.rstrip("%s"))
        return duration_s * number / 100 if self.at.endswith("%") else number


class Scenario(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    name: Name
    description: str = ""
    seed: int = 1
    keep: bool = False
    """Whether the stack goes on after the run, until `catena loadtest down`."""
    purge: bool = False
    """Whether what the stores hold is deleted when the stack ends."""
    verify: Literal["offsets", "records"] = "offsets"
    """`records`: every record is read back, and held against what was acked."""
    audit: bool = False
    """Whether `catena pipeline audit` reads everything afterwards, on Spark."""
    sample_every_s: Annotated[float, msgspec.Meta(ge=0.2, le=300)] = 2.0
    stack: Stack = Stack()
    topics: Annotated[tuple[Topic, ...], msgspec.Meta(min_length=1, max_length=1_000)] = (Topic("load", 4),)
    load: Load = Load()
    kafka: Kafka = Kafka()
    http: Http = Http()
    capacity: Capacity = Capacity()
    events: Annotated[tuple[Event, ...], msgspec.Meta(max_length=100)] = ()

    @property
    def places(self) -> list[tuple[str, int]]:
        """All partitions, in the order in which they get records."""
        return [(topic.name, number) for topic in self.topics for number in range(topic.partitions)]

    @property
    def requests_in_flight(self) -> int:
        """Of a Kafka producer at a node: one fewer than that surely leads partitions, unless it is said. Were they as
        many, librdkafka would spin where acks take longer than `linger_ms` (docs/loadtest.md)."""
        roles = [roles_of(self.stack.roles, number) for number in range(self.stack.nodes)]
        writers = sum(not each or WRITE in each for each in roles)
        led = sum(topic.partitions // writers for topic in self.topics)
        return self.kafka.in_flight or min(max(led - 1, 1), IN_FLIGHT_MAX)

    @property
    def shares(self) -> dict[str, float]:
        """Of the rate, by protocol."""
        if not self.http.producers:
            return {"kafka": 1.0, "http": 0.0}
        if not self.kafka.producers:
            return {"kafka": 0.0, "http": 1.0}
        return {"kafka": 1 - self.http.share, "http": self.http.share}


def load_scenario(file: Path, changes: Sequence[str] = ()) -> Scenario:
    """`changes`: NAME=VALUE of those who want it otherwise, with dots: load.rate_mb_s=5."""
    try:
        values = tomllib.loads(file.read_text("utf-8"))
    except OSError as error:
        raise ConfigError(f"scenario {file}: {error.strerror}") from None
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise ConfigError(f"scenario {file}: {error}") from None
    values.setdefault("name", file.stem)
    for change in changes:
        _change(values, change)
    return parse_scenario(values, str(file))


def parse_scenario(values: Any, source: str) -> Scenario:
    try:
        scenario = msgspec.convert(values, Scenario)
    except msgspec.ValidationError as error:
        raise ConfigError(f"scenario {source}: {str(error).replace('`$.', '`')}{_choices(str(error))}") from None
    for problem in _problems(scenario):
        raise ConfigError(f"scenario {source}: {problem}")
    return scenario


def _change(values: dict[str, Any], change: str) -> None:
    name, given, text = change.partition("=")
    if not given or not name:
        raise ConfigError(f"option --set: {change!r} is not NAME=VALUE")
    try:
        value = tomllib.loads(f"value = {text}")["value"]
    except tomllib.TOMLDecodeError:
        value = text
    *groups, last = name.split(".", 2 if name.startswith("stack.settings.") else -1)
    for group in groups:
        values = values.setdefault(group, {})
        if not isinstance(values, dict):
            raise ConfigError(f"option --set: {group} in {name!r} is not a table")
    values[last] = value


def _problems(scenario: Scenario) -> list[str]:
    """What the types can't tell."""
    problems = []
    names = [topic.name for topic in scenario.topics]
    if len(set(names)) < len(names):
        problems.append("topics: two have the same name")
    if sum(topic.partitions for topic in scenario.topics) > MAX_PARTITIONS:
        problems.append(f"topics: there are more than {MAX_PARTITIONS:,} partitions in all")
    if not scenario.kafka.producers and not scenario.http.producers:
        problems.append("kafka.producers and http.producers: one of them is 1 at least")
    if scenario.http.records_per_request * scenario.load.record_bytes > HTTP_MAX_BYTES:
        problems.append(
            f"http.records_per_request: a request is larger than {HTTP_MAX_BYTES:,} bytes, which nodes refuse"
        )
    if scenario.stack.roles and (problem := wrong_roles(scenario.stack.roles, scenario.stack.nodes)):
        problems.append(f"stack.roles: {problem}")
    if problem := wrong_stores(scenario.stack.meta or None, scenario.stack.objects or None):
        problems.append(f"stack.{problem}")
    if problem := _wrong_settings(scenario.stack.settings):
        problems.append(f"stack.settings: {problem}")
    problems += [_secret(name, value) for name, value in _strings(scenario.stack) if _secret(name, value)]
    problems += [problem for number, event in enumerate(scenario.events) for problem in _wrong(number, event, scenario)]
    load = scenario.load
    records = load.rate_mb_s * MB / load.record_bytes * (load.duration_s + load.warm_up_s)
    if scenario.verify == "records" and load.capacity == "off" and records > MAX_VERIFIED_RECORDS:
        problems.append(
            f"verify: {records:,.0f} records are too many to be read back (at most {MAX_VERIFIED_RECORDS:,}): "
            "make records larger, or say offsets"
        )
    if load.capacity == "find" and scenario.events:
        problems.append("events: there are none while the capacity is searched for")
    return problems


def _choices(error: str) -> str:
    """Where only some words may stand, as msgspec does not say."""
    path = re.search(r"^Invalid enum value .* at `\$\.(.+)`$", error)
    kind: Any = msgspec.inspect.type_info(Scenario)
    for name in path[1].split(".") if path else ():
        kind = next(field.type for field in kind.fields if field.name == name)
    return f": it is one of {', '.join(sorted(kind.values))}" if path else ""


def _wrong_settings(settings: Mapping[str, Setting]) -> str:
    """Why nodes would not take these; empty if they would."""
    values: dict[str, Any] = {}
    for name, value in settings.items():
        *groups, last = name.split(".")
        inner = values
        for group in groups:
            inner = inner.setdefault(group, {})
            if not isinstance(inner, dict):
                return f"{name}: {group} is a setting, and has none in it"
        inner[last] = value
    try:
        parse_settings(values)
    except (msgspec.ValidationError, ConfigError) as error:
        return str(error).replace("`$.", "`")
    return ""


def _strings(stack: Stack) -> list[tuple[str, str]]:
    settings = [(f"stack.settings.{name}", str(value)) for name, value in stack.settings.items()]
    return [("stack.meta", stack.meta), ("stack.objects", stack.objects), *settings]


def _secret(name: str, value: str) -> str:
    """Why this may not stand in a scenario; empty if it may."""
    has_secret = is_secret(name.rpartition(".")[2])
    if "://" in value and not has_secret:
        try:
            address = urlsplit(value)
        except ValueError as error:
            return f"{name}: it is no address: {error}"
        has_secret = address.password is not None or any(is_secret(key) for key, _ in parse_qsl(address.query))
    if not has_secret:
        return ""
    return f"{name}: a secret does not belong here, because run directories are handed on: give it by the environment"


def _wrong(number: int, event: Event, scenario: Scenario) -> list[str]:
    where = f"events[{number}]"
    actions = [name for name in ("kill", "stop", "end") if getattr(event, name) is not None]
    if len(actions) != 1:
        return [f"{where}: say exactly one of kill, stop and end"]
    targets = [f"node-{node}" for node in range(scenario.stack.nodes)] + ["pipeline"] * scenario.stack.pipeline
    if event.target not in targets:
        return [f"{where}.{actions[0]}: there is no {event.target!r}, only {', '.join(targets)}"]
    if event.resume_after_s is not None and event.stop is None:
        return [f"{where}.resume_after_s: only what was stopped is resumed; say restart_after_s after kill and end"]
    if event.restart_after_s is not None and event.stop is not None:
        return [f"{where}.restart_after_s: what was stopped is not gone; say resume_after_s after stop"]
    if event.target == "pipeline" and event.restart_after_s is not None:
        return [f"{where}.restart_after_s: the pipeline is not started again"]
    try:
        at_s = event.at_s(scenario.load.duration_s) if event.at[-1:] in ("%", "s") else -1.0
    except ValueError:
        at_s = -1.0
    if not 0 <= at_s <= scenario.load.duration_s:
        return [f"{where}.at: {event.at!r} is not a time within the duration, like '50%' or '30s'"]
    return []
