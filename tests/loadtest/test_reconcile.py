from __future__ import annotations

from typing import Any

import msgspec
import pytest

from catena.loadtest.reconcile import Memory, Story, reconcile

CLEAN = Story(
    due=1_000,
    acked=1_000,
    failed=0,
    unknown=0,
    dropped=0,
    unanswered=0,
    read={"kafka-consume": 1_000},
    in_log=1_000,
    brokers=1_000,
    brokers_complete=True,
    rate_share=1.0,
    verified={"read": 1_000, "acked": 1_000, "lost": 0},
    unverified="",
    audit={"ok": True},
    memory={"node-0": Memory(100 << 20, 101 << 20, 120 << 20)},
    dead_hammers={},
    dead_nodes=(),
    late_ms=1.0,
    produce_ms=10.0,
    capacity_limit="",
    failed_events=(),
    missing=(),
    interrupted=False,
)


def told(**changes: Any) -> list[tuple[str, str]]:
    return [(each.severity, each.message) for each in reconcile(msgspec.structs.replace(CLEAN, **changes))]


def test_where_all_agree_there_is_nothing_to_say() -> None:
    assert told() == []


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"in_log": 999}, "1 acked records are not in the log"),
        ({"in_log": 1_001}, "the log has 1 records more than can have been sent"),
        ({"in_log": None}, "could not be asked"),
        ({"brokers": 998}, "nodes counted 2 records less"),
        ({"brokers": 1_001}, "nodes counted 1 records more"),
        ({"brokers": 1_001, "failed": 1, "due": 1_001}, "nodes counted 1 records more"),
        ({"read": {"kafka-consume": 990}}, "10 acked records did not come to kafka-consume"),
        ({"verified": {"acked": 997, "lost": 3}}, "3 records were lost"),
        ({"verified": {"acked": 1_000, "duplicated": 2}}, "2 records were duplicated"),
        ({"verified": {"acked": 900, "lost": 0}}, "do not agree"),
        ({"verified": None, "unverified": "could not be read back: x"}, "could not be read back: x"),
        ({"audit": {"ok": False, "message": "1 damaged"}}, "the audit is not clean: 1 damaged"),
        ({"dead_hammers": {"kafka-produce-1": "boom"}}, "hammer kafka-produce-1 died: boom"),
        ({"dead_nodes": ("node-0",)}, "node-0 is not there any more"),
        ({"failed_events": ("node-1: it did not run",)}, "node-1: it did not run"),
        ({"missing": ("metrics.jsonl",)}, "metrics.jsonl is missing"),
        ({"acked": 0, "read": {}, "in_log": 0, "brokers": 0, "verified": None}, "nothing was acked"),
    ],
)
def test_what_must_not_be_is_an_error(changes: dict[str, Any], said: str) -> None:
    found = told(**changes)
    assert [severity for severity, _ in found][:1] == ["error"]
    assert said in found[0][1]


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"failed": 3, "due": 1_003}, "3 of 1,003 records were refused"),
        ({"dropped": 3, "due": 1_003}, "3 of 1,003 records were dropped"),
        ({"brokers": None}, "not reconciled with their metrics"),
        ({"brokers": 900, "brokers_complete": False}, "what a killed node counted"),
        ({"rate_share": 0.9}, "only 90.0% of the rate"),
        ({"interrupted": True}, "interrupted"),
        ({"read": {"kafka-consume": 1_005}}, "5 records more than the log has"),
        ({"late_ms": 60.0, "produce_ms": 100.0}, "hammers were late themselves, 60 ms at p99"),
        ({"capacity_limit": "hammers could do no more"}, "not the limit of the cluster: hammers could do no more"),
        ({"memory": {"node-0": Memory(200 << 20, 300 << 20, 300 << 20)}}, "the memory of node-0 grew"),
    ],
)
def test_what_is_to_be_known_is_a_note(changes: dict[str, Any], said: str) -> None:
    found = told(**changes)
    assert [severity for severity, _ in found] == ["note"]
    assert said in found[0][1]


def test_what_nobody_knows_may_be_in_the_log_or_not() -> None:
    for in_log in (1_000, 1_002, 1_005):
        found = told(unknown=3, unanswered=2, due=1_005, in_log=in_log, brokers=in_log)
        assert {severity for severity, _ in found} == {"note"}
    assert told(unknown=3, unanswered=2, due=1_005, in_log=1_006, brokers=1_005)[0][0] == "error"


def test_errors_come_first() -> None:
    found = told(failed=1, in_log=5, read={})
    assert [severity for severity, _ in found] == ["error", "note"]
