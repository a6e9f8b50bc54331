"""What hammers decide by themselves; that they work against a node is in test_run.py."""

from __future__ import annotations

import msgspec
import pytest

from catena.loadtest.hammers import base
from catena.loadtest.hammers.base import Order, Said, Tally
from catena.loadtest.hammers.kafka_consume import consumer_settings
from catena.loadtest.hammers.kafka_produce import settings_of
from catena.loadtest.hammers.verify import Verified, Verifier
from catena.loadtest.histogram import Histogram
from catena.loadtest.ledger import DROPPED, FAILED, UNKNOWN, Ledger
from catena.loadtest.records import RecordForm
from catena.loadtest.routing import make_manifest
from catena.loadtest.scenario import Http, Kafka, Load

PLACES = [("t", 0), ("t", 1)]
LOAD = Load(record_bytes=64, warm_up_s=2.0, interval_s=1.0)


def order(**changes: object) -> Order:
    plain = Order(
        role="kafka-produce",
        name="kafka-produce-1",
        hammer=1,
        seed=5,
        bootstrap="h:1",
        http={},
        manifest=make_manifest(1, PLACES, ["a"], 1, "round_robin"),
        places=PLACES,
        starts=[0, 0],
        load=LOAD,
        kafka=Kafka(),
        http_load=Http(),
        rows={1: 1},
        sent_by={1: "kafka-produce"},
    )
    return msgspec.structs.replace(plain, **changes)


FORM = RecordForm(5, 64)


def sent(*states: int | None) -> Ledger:
    """None: acked, the n-th of its partition at offset n."""
    ledger = Ledger()
    ledger.add(len(states))
    for sequence, state in enumerate(states):
        if state is None:
            ledger.acked(sequence, sequence // 2)
        else:
            ledger.ended(sequence, state)
    return ledger


def verified(ledger: Ledger, log: list[tuple[int, int, bytes]], **changes: object) -> Verified:
    """`log`: partition, offset, value."""
    verifier = Verifier(order(**changes), {1: ledger})
    for partition, offset, value in log:
        verifier.take("t", partition, offset, value)
    return verifier.end()


def value(sequence: int) -> bytes:
    return FORM.make(1, sequence, 0)


GOOD = [(0, 0, value(0)), (0, 1, value(2)), (1, 0, value(1)), (1, 1, value(3))]


def test_all_that_was_acked_is_there_once_and_exactly() -> None:
    found = verified(sent(None, None, None, None), GOOD)
    assert (found.read, found.acked, found.wrong, found.examples) == (4, 4, 0, [])


@pytest.mark.parametrize(
    ("log", "kind"),
    [
        (GOOD[1:], "lost"),
        ([*GOOD, (0, 2, value(2))], "duplicated"),
        ([(0, 5, value(0)), *GOOD[1:]], "moved"),
        ([*GOOD[:3], (0, 2, value(3))], "misplaced"),
        ([*GOOD, (0, 2, b"x" * 64)], "damaged"),
        ([*GOOD, (0, 2, value(4))], "damaged"),
        ([*GOOD, (0, 2, FORM.make(9, 0, 0))], "damaged"),
    ],
)
def test_what_is_wrong_is_found(log: list[tuple[int, int, bytes]], kind: str) -> None:
    found = verified(sent(None, None, None, None), log)
    assert getattr(found, kind) >= 1
    assert found.examples


def test_order_within_a_partition() -> None:
    ledger = Ledger()
    ledger.add(3)
    ledger.acked(0, 1)
    ledger.acked(2, 0)
    log = [(0, 0, value(2)), (0, 1, value(0))]
    assert verified(ledger, log).reordered == 1
    assert verified(ledger, log, sent_by={1: "http-produce"}).reordered == 0


def test_what_was_refused_or_never_sent_must_not_be_there() -> None:
    ledger = sent(FAILED, DROPPED, UNKNOWN, 0)
    assert verified(ledger, []).wrong == 0
    assert verified(ledger, [(0, 0, value(2)), (1, 0, value(3))]).unacked_found == 2
    found = verified(ledger, [(0, 0, value(0)), (1, 0, value(1))])
    assert (found.unexpected, found.lost) == (2, 0)


def test_examples_are_bounded() -> None:
    assert len(verified(sent(*[None] * 100), []).examples) == 20


def test_a_tally_counts_what_is_measured_apart_from_the_warm_up(monkeypatch: pytest.MonkeyPatch) -> None:
    said: list[Said] = []
    monkeypatch.setattr(base, "say", said.append)
    tally = Tally(order(), 100.0)
    tally.due(5)
    tally.acked(101.0, 101.5, 1, 64)
    tally.acked(102.5, 102.6, 2, 128)
    tally.unknown(1, "TIMED_OUT")
    tally.tell(100.9)
    assert said == []
    tally.tell(103.2)
    tally.tell(103.4)
    (first,) = said
    interval = first.interval
    assert interval is not None
    assert (interval.due, interval.acked, interval.unknown, interval.bytes, interval.backlog) == (5, 3, 1, 192, 1)
    assert sum(interval.latency.values()) == 2
    assert (interval.t, interval.seconds, interval.errors) == (3.2, 3.2, {"TIMED_OUT": 1})
    tally.failed(1, "no")
    tally.tell(103.5, last=True)
    last = said[1].interval
    assert last is not None
    assert (last.failed, last.backlog) == (1, 0)
    assert last.seconds == pytest.approx(0.3)


def test_lines_come_at_their_times_also_after_a_stall(monkeypatch: pytest.MonkeyPatch) -> None:
    said: list[Said] = []
    monkeypatch.setattr(base, "say", said.append)
    tally = Tally(order(), 0.0)
    for now in (0.5, 1.1, 1.9, 7.3, 7.9, 8.05):
        tally.tell(now)
    assert [each.interval.t for each in said if each.interval is not None] == [1.1, 7.3, 8.05]


def test_a_record_is_given_up_when_the_drain_ends() -> None:
    settings = settings_of(order(load=Load(warm_up_s=1, duration_s=10, drain_s=5)))
    assert settings["message.timeout.ms"] == 16_000
    assert settings["enable.idempotence"] is True


def test_a_dead_leader_is_asked_for_once_a_second() -> None:
    """Only then librdkafka asks who leads now; its own default goes up to 10 seconds."""
    for settings in (settings_of(order()), consumer_settings("h:1", "c")):
        assert settings["reconnect.backoff.max.ms"] == 1_000


def test_a_line_is_small_where_nothing_happened() -> None:
    line = msgspec.json.encode(Said(interval=base.Interval("h", "kafka-produce", 1.0, 1.0)))
    assert len(line) < 100
    assert msgspec.json.decode(line, type=Said).interval == base.Interval("h", "kafka-produce", 1.0, 1.0)


def test_how_late_a_hammer_is_itself_is_told_apart(monkeypatch: pytest.MonkeyPatch) -> None:
    said: list[Said] = []
    monkeypatch.setattr(base, "say", said.append)
    tally = Tally(order(), 100.0)
    tally.got_to(101.0, 109.0, 5)  # in the warm-up
    tally.got_to(102.0, 102.5, 3)
    tally.tell(103.0)
    assert said[0].interval is not None
    late = Histogram(said[0].interval.late)
    assert late.total == 3
    assert late.percentile_ms(50) == pytest.approx(500, rel=0.04)
