"""Every write has a name that says what it means."""

from __future__ import annotations

import msgspec
import pytest

from catena.loglets.diskless.records import Control, encode
from catena.meta import keys
from catena.meta.base import Check, Put
from catena.pipeline.records import DELETING, UPDATING, WRITING, CompactionRecord, State
from catena.types import ABSENT, TopicId, TopicPartition
from catena.virtual_log.chain import Chain, Intent, Link
from catena.virtual_log.topics import TopicRecord
from sim.steps import RARE_STEPS, STEPS, chain_of, kind_of, name_object_put, name_put, name_transact

TP = TopicPartition("t", TopicId("1" * 32), 0)
OPEN = Link("diskless", 1, 0)
CLOSED = Link("diskless", 1, 0, 3)
TIERED = Link("tiered", 2, 0, 3)


def control(epoch: int, state: str, next_offset: int) -> bytes:
    return encode(msgspec.convert({"epoch": epoch, "state": state, "next": next_offset}, Control))


def chain(
    *links: Link, intent: Intent | None = None, start: int = 0, deleted: bool = False, tiering: str | None = None
) -> bytes:
    return msgspec.json.encode(Chain(links, 9, start, intent, deleted, tiering))


@pytest.mark.parametrize(
    ("new", "old", "name"),
    [
        (control(1, "OPEN", 3), None, "control:open"),
        (control(1, "OPEN", 3), control(1, "OPEN", 1), "control:append"),
        (control(1, "OPEN", 3), control(1, "OPEN", 5), "control:append"),
        (control(2, "OPEN", 3), control(1, "FENCED", 3), "control:open"),
        (control(1, "FENCED", 3), control(1, "OPEN", 3), "control:seal"),
    ],
)
def test_steps_of_the_control_record(new: bytes, old: bytes | None, name: str) -> None:
    assert name_put(keys.control(TP), new, old) == name


@pytest.mark.parametrize(
    ("new", "old", "name"),
    [
        (chain(OPEN, intent=Intent("n", 2)), None, "chain:intent"),
        (chain(OPEN, intent=Intent("n", 2)), chain(OPEN), "chain:intent"),
        (chain(CLOSED), chain(OPEN, intent=Intent("n", 2)), "chain:seal"),
        (chain(CLOSED, Link("memory", 2, 3)), chain(OPEN, intent=Intent("n", 2, "memory")), "chain:open"),
        (chain(OPEN, start=2), chain(OPEN), "chain:trim"),
        (chain(OPEN, start=2), None, "chain:trim"),
        (chain(OPEN, deleted=True), chain(OPEN), "chain:delete"),
        (chain(OPEN, tiering="job"), None, "chain:tier begin"),
        (chain(OPEN, tiering="job"), chain(OPEN, tiering="other"), "chain:tier begin"),
        (chain(OPEN), chain(OPEN, tiering="job"), "chain:tier abandon"),
        (chain(TIERED, Link("diskless", 1, 3)), chain(OPEN, tiering="job"), "chain:tier finish"),
        (chain(OPEN, start=2, tiering="job"), chain(OPEN, tiering="job"), "chain:trim"),
    ],
)
def test_steps_of_the_chain(new: bytes, old: bytes | None, name: str) -> None:
    assert name_put(keys.chain(TP), new, old) == name


@pytest.mark.parametrize(("state", "name"), [("ACTIVE", "create"), ("DELETING", "delete"), ("DELETED", "free")])
def test_steps_of_a_topic(state: str, name: str) -> None:
    record = TopicRecord("t", TP.topic_id, 1, "diskless", 0)
    value = (
        msgspec.json.encode(record)
        if state == "ACTIVE"
        else msgspec.json.encode({**msgspec.to_builtins(record), "state": state})
    )
    assert name_put(keys.topic("t"), value, None) == f"topic:{name}"


@pytest.mark.parametrize(
    ("key", "name"),
    [
        (keys.CLUSTER, "cluster:create"),
        (keys.deleted(TP.topic_id), "deleted:create"),
        (keys.handoff(TP, 2), "handoff:create"),
        (keys.index(TP, 7), "index:create"),
        (keys.producer(TP, 7), "producer:put"),
    ],
)
def test_steps_of_other_records(key: str, name: str) -> None:
    assert name_put(key, b"", None) == name


def test_a_tombstone_says_when_its_topic_is_forgotten() -> None:
    assert name_put(keys.deleted(TP.topic_id), b'{"is_forgotten":true}', b"{}") == "deleted:forget"


def test_ranges_are_named_by_where_they_start() -> None:
    starts = (keys.partition(TP), keys.chain(TP) + "\0", keys.index_prefix(TP))
    assert [kind_of(start) for start in starts] == ["partition", "chain", "index"]


def test_a_transaction_is_named_by_what_it_does_to_the_control_record() -> None:
    group = [Put(keys.control(TP), control(1, "OPEN", 3)), Put(keys.index(TP, 2), b"")]
    assert name_transact([group], lambda _: None) == "transact:open"
    assert name_transact([group], lambda _: control(1, "OPEN", 1)) == "transact:append"
    assert name_transact([[Check(keys.control(TP), ABSENT)]], lambda _: None) == "transact:check"


def test_every_record_of_a_partition_leads_to_its_chain() -> None:
    for key in (keys.index(TP, 7), keys.control(TP), keys.producer(TP, 7), keys.chain(TP)):
        assert chain_of(key) == keys.chain(TP)


def test_blobs_are_told_from_other_objects() -> None:
    assert name_object_put(keys.wal_blob("1" * 32)) == "blob:put"
    assert name_object_put(keys.segment(TP, "2" * 32, "3" * 32)) == "segment:put"
    assert name_object_put(keys.manifest(TP, "2" * 32)) == "manifest:put"
    assert name_object_put(keys.CLUSTER) == "object:put"


@pytest.mark.parametrize(("state", "name"), [(WRITING, "writing"), (UPDATING, "updating"), (DELETING, "deleting")])
def test_steps_of_a_job(state: State, name: str) -> None:
    record = CompactionRecord("job", state, 0, 2, 3, "manifest", 1, 0, 3)
    assert name_put(keys.compaction(TP), msgspec.json.encode(record), None) == f"compaction:{name}"


def test_what_is_aimed_at_must_be_hit() -> None:
    assert {step for steps in RARE_STEPS.values() for step in steps} <= set(STEPS)
