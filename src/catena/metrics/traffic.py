"""From what nodes and the pipeline tell of themselves to rates: what is written, read, asked and stored.

A sample is the JSON of GET /metrics, of a node or of the pipeline's service. Counts begin with each process, so each
sample is a rate by itself, but for the requests that the process began with; of two samples of one process the
difference is.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import msgspec

from catena.errors import ConfigError


class Traffic(msgspec.Struct, frozen=True):
    seconds: float = 0.0
    """Over which it was measured."""
    produced_bytes_per_s: float = 0.0
    fetched_bytes_per_s: float = 0.0
    requests_per_s: dict[str, float] = {}
    """To the object store, by kind."""
    stored_bytes: int | None = None
    """Of the whole bucket."""
    log_bytes: int | None = None
    """Of these, what the logs hold. What is tiered stays in the WAL until vacuum comes, so it is the larger of both,
    WAL and segments: rather too little than the same records twice."""

    @property
    def is_any(self) -> bool:
        """Whether clients wrote or read anything."""
        return self.produced_bytes_per_s > 0 or self.fetched_bytes_per_s > 0

    def __add__(self, other: Traffic) -> Traffic:
        kinds = dict.fromkeys([*self.requests_per_s, *other.requests_per_s])
        return Traffic(
            max(self.seconds, other.seconds),
            self.produced_bytes_per_s + other.produced_bytes_per_s,
            self.fetched_bytes_per_s + other.fetched_bytes_per_s,
            {kind: self.requests_per_s.get(kind, 0.0) + other.requests_per_s.get(kind, 0.0) for kind in kinds},
            _greatest(self.stored_bytes, other.stored_bytes),
            _greatest(self.log_bytes, other.log_bytes),
        )


class _Counts(msgspec.Struct, frozen=True):
    """What is counted in a sample, of whichever process."""

    uptime_s: float
    produced: int
    fetched: int
    requests: dict[str, int]
    stored: dict[str, int] | None


class _Uptime(msgspec.Struct, frozen=True):
    uptime_s: float


class _Bytes(msgspec.Struct, frozen=True):
    bytes: int = 0


class _Requests(msgspec.Struct, frozen=True):
    requests: int = 0


class _Stored(msgspec.Struct, frozen=True):
    bytes: dict[str, int]


class _Node(msgspec.Struct, frozen=True):
    node: _Uptime
    commit: _Bytes
    fetched: _Bytes
    object_store: dict[str, _Requests]
    requests_at_start: dict[str, int] = {}
    stored: _Stored | None = None


class _Usage(msgspec.Struct, frozen=True):
    requests: dict[str, int] = {}


class _Pipeline(msgspec.Struct, frozen=True):
    tasks: _Usage
    driver: _Usage
    uptime_s: float


def traffic_of(sample: bytes, where: str, before: bytes | None = None) -> Traffic:
    """Of one process; `before` is an earlier sample of it. Raises ConfigError if it is not what a process tells."""
    now = _decode(sample, where)
    then = None if before is None else _decode(before, where)
    if then is not None and _is_another(then, now):
        then = None  # it was started anew in between
    seconds = now.uptime_s - (0.0 if then is None else then.uptime_s)
    if seconds <= 0:
        return Traffic(stored_bytes=_total(now.stored), log_bytes=_log_bytes(now.stored))
    asked = {} if then is None else then.requests
    return Traffic(
        seconds,
        (now.produced - (0 if then is None else then.produced)) / seconds,
        (now.fetched - (0 if then is None else then.fetched)) / seconds,
        {kind: (count - asked.get(kind, 0)) / seconds for kind, count in now.requests.items()},
        _total(now.stored),
        _log_bytes(now.stored),
    )


def all_traffic(each: Sequence[Traffic]) -> Traffic:
    """Of processes beside each other."""
    return sum(each, Traffic())


def _decode(sample: bytes, where: str) -> _Counts:
    try:
        is_node = "node" in msgspec.json.decode(sample, type=dict[str, msgspec.Raw])
        if is_node:
            node = msgspec.json.decode(sample, type=_Node)
            first = node.requests_at_start
            requests = {kind: counts.requests - first.get(kind, 0) for kind, counts in node.object_store.items()}
            stored = None if node.stored is None else node.stored.bytes
            return _Counts(node.node.uptime_s, node.commit.bytes, node.fetched.bytes, requests, stored)
        pipeline = msgspec.json.decode(sample, type=_Pipeline)
    except msgspec.MsgspecError as error:
        raise ConfigError(f"{where} is not what GET /metrics of a node or of the pipeline answers: {error}") from None
    both = (pipeline.tasks.requests, pipeline.driver.requests)
    kinds = dict.fromkeys(kind for requests in both for kind in requests)
    return _Counts(pipeline.uptime_s, 0, 0, {kind: sum(each.get(kind, 0) for each in both) for kind in kinds}, None)


def _is_another(then: _Counts, now: _Counts) -> bool:
    """Counts of one process only go up."""
    before, after = (each.requests.values() for each in (then, now))
    return (
        now.uptime_s <= then.uptime_s
        or now.produced < then.produced
        or now.fetched < then.fetched
        or sum(after) < sum(before)
    )


def _total(stored: Mapping[str, int] | None) -> int | None:
    return None if stored is None else sum(stored.values())


def _log_bytes(stored: Mapping[str, int] | None) -> int | None:
    return None if stored is None else max(stored.get("wal", 0), stored.get("segments", 0))


def _greatest(one: int | None, other: int | None) -> int | None:
    known = [size for size in (one, other) if size is not None]
    return max(known) if known else None
