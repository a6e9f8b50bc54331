"""From samples to rates."""

from __future__ import annotations

import msgspec
import pytest

from catena.errors import ConfigError
from catena.metrics.traffic import Traffic, all_traffic, traffic_of


def node(
    uptime_s: float, produced: int, fetched: int, puts: int, stored: dict[str, int] | None = None, first_puts: int = 0
) -> bytes:
    return msgspec.json.encode(
        {
            "node": {"id": 1, "uptime_s": uptime_s},
            "commit": {"bytes": produced, "records": 5},
            "fetched": {"bytes": fetched},
            "object_store": {"put": {"requests": puts, "bytes": 1}, "get": {"requests": 0}},
            "requests_at_start": {"put": first_puts},
            "stored": None if stored is None else {"bytes": stored, "objects": {}},
        }
    )


def pipeline(uptime_s: float, puts: int, gets: int) -> bytes:
    return msgspec.json.encode(
        {
            "jobs": {},
            "tasks": {"requests": {"put": puts, "range_get": gets}},
            "driver": {"requests": {"put": 1}},
            "uptime_s": uptime_s,
        }
    )


def test_a_node_since_its_start() -> None:
    found = traffic_of(node(10, 1000, 500, 20, {"wal": 100, "segments": 20, "meta": 3}), "n")
    assert found == Traffic(10, 100.0, 50.0, {"put": 2.0, "get": 0.0}, 123, 100)


def test_a_node_between_two_looks() -> None:
    found = traffic_of(node(110, 5000, 0, 70), "n", node(10, 1000, 0, 20))
    assert (found.seconds, found.produced_bytes_per_s, found.requests_per_s["put"]) == (100, 40.0, 0.5)


def test_a_node_that_was_started_anew_in_between() -> None:
    assert traffic_of(node(10, 1000, 0, 20), "n", node(500, 9000, 0, 90)).produced_bytes_per_s == 100


def test_a_node_that_was_started_anew_and_has_become_older_than_it_was_then() -> None:
    found = traffic_of(node(1_000, 1_000, 0, 20), "n", node(5, 9_000, 0, 90))
    assert (found.seconds, found.produced_bytes_per_s, found.requests_per_s["put"]) == (1_000, 1.0, 0.02)


def test_what_it_takes_to_start_is_no_rate() -> None:
    assert traffic_of(node(10, 0, 0, 7, first_puts=7), "n").requests_per_s["put"] == 0
    found = traffic_of(node(30, 0, 0, 17, first_puts=7), "n", node(10, 0, 0, 7, first_puts=7))
    assert found.requests_per_s["put"] == 0.5


def test_what_was_tiered_and_not_vacuumed_yet_is_not_kept_twice() -> None:
    assert traffic_of(node(10, 0, 0, 0, {"wal": 100, "segments": 90, "meta": 1}), "n").log_bytes == 100
    assert traffic_of(node(10, 0, 0, 0, {"wal": 10, "segments": 90, "meta": 1}), "n").log_bytes == 90


def test_a_node_that_has_just_begun() -> None:
    assert traffic_of(node(0, 0, 0, 0, {"wal": 7}), "n") == Traffic(stored_bytes=7, log_bytes=7)


def test_the_pipeline() -> None:
    assert traffic_of(pipeline(10, 9, 50), "p") == Traffic(10, 0.0, 0.0, {"put": 1.0, "range_get": 5.0}, None, None)


def test_all_together() -> None:
    found = all_traffic(
        [
            traffic_of(node(10, 1000, 0, 10, {"wal": 7}), "a"),
            traffic_of(node(100, 1000, 300, 10), "b"),
            traffic_of(pipeline(10, 9, 0), "p"),
        ]
    )
    assert found.seconds == 100
    assert (found.produced_bytes_per_s, found.fetched_bytes_per_s) == (110.0, 3.0)
    assert found.requests_per_s["put"] == pytest.approx(2.1)
    assert found.stored_bytes == 7, "one tells for all"


@pytest.mark.parametrize("text", [b"", b"[]", b"{}", b'{"node": {}}', b'{"tasks": 3}', b"catena_node_info 1"])
def test_what_is_no_sample(text: bytes) -> None:
    with pytest.raises(ConfigError, match=r"x\.json is not what GET /metrics"):
        traffic_of(text, "x.json")
