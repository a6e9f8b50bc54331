"""One compare-and-set decides which attempt at a version counts; bodies of any size come back as they were."""

from __future__ import annotations

import asyncio

import msgspec
import pytest

from catena.errors import ConfigError, Corrupt, OutcomeUnknown, Rejected
from catena.meta import keys
from catena.meta.base import MetaStore
from catena.meta.memory import MemoryMeta
from catena.runtime import SystemClock, SystemEntropy
from catena.testing.faults import Fail, Faults, FaultyMeta, Late, Stall
from catena.types import TopicId
from catena.virtual_log import intents
from catena.virtual_log.intents import (
    Body,
    Done,
    Intent,
    Intents,
    PartitionTail,
    StoredBlob,
    StoredRun,
    WriteHead,
    forget_unpublished,
    heads,
    open_blobs,
)
from tests.loglets.stores import QuickClock

TOPIC_ID = TopicId("1" * 32)
APP = "query/1"


def body_of(*names: str, runs: int = 1) -> Body:
    blobs = tuple(
        StoredBlob(name, 5, 1 << 62, 3, tuple(StoredRun(TOPIC_ID, number, 8, 100, 2, 9) for number in range(runs)))
        for name in names
    )
    return Body({TOPIC_ID: "topic"}, (PartitionTail(TOPIC_ID, 0, 7),), blobs)


LARGE = body_of(*(f"blob {number}" for number in range(30)), runs=1000)


@pytest.fixture
def meta() -> MemoryMeta:
    return MemoryMeta(SystemClock())


def opened(meta: MetaStore, faults: Faults | None = None) -> Intents:
    return Intents(FaultyMeta(meta, faults or Faults()), SystemClock(), SystemEntropy())


async def over(writes: Intents) -> WriteHead:
    """A head that says since when."""
    head = await writes.find(APP)
    assert head.at_ms > 0
    return msgspec.structs.replace(head, at_ms=0)


async def test_versions_follow_each_other(meta: MemoryMeta) -> None:
    writes = opened(meta)
    assert await writes.find(APP) == WriteHead(-1, None)
    first = await writes.begin(APP, 3, body_of("a"))
    assert isinstance(first, Intent)
    assert (first.version, first.body) == (3, body_of("a"))
    assert await writes.begin(APP, 3, body_of("b")) == first
    assert await writes.begin(APP, 4, body_of("b")) == first
    await writes.finish(APP, first)
    await writes.finish(APP, first)
    assert await writes.begin(APP, 3, body_of("b")) == Done(3)
    assert await writes.begin(APP, 2, body_of("b")) == Done(2)
    second = await writes.begin(APP, 4, body_of("b"))
    assert isinstance(second, Intent)
    await writes.finish(APP, first)
    assert await writes.find(APP) == WriteHead(3, second)


async def test_of_many_at_once_one_begins(meta: MemoryMeta) -> None:
    begun = await asyncio.gather(*(opened(meta).begin(APP, 0, body_of(f"{number}")) for number in range(10)))
    assert len({each.nonce for each in begun if isinstance(each, Intent)}) == 1


async def test_a_large_body_is_kept_in_parts_and_deleted_with_all_before_it(meta: MemoryMeta) -> None:
    writes = opened(meta)
    loser = await opened(MemoryMeta(SystemClock()))._prepare(APP, 0, LARGE)
    assert loser.parts > 1
    await writes._prepare(APP, 0, LARGE)  # of an attempt that died then
    begun = await writes.begin(APP, 1, LARGE)
    assert isinstance(begun, Intent)
    assert begun.body is None
    assert await writes.body(APP, begun) == LARGE
    assert await open_blobs(meta) == {blob.key for blob in LARGE.blobs}
    await writes._prepare(APP, 2, LARGE)
    await writes.finish(APP, begun)
    assert await writes.body(APP, begun) is None
    left = await meta.scan(keys.WRITES, keys.after(keys.WRITES))
    kept = {record.key.split("/", 3)[3].removeprefix("body/")[:20] for record in left}
    assert kept == {"head", f"{2:020d}"}


async def test_a_part_that_is_missing_once_the_write_is_confirmed_is_damage(meta: MemoryMeta) -> None:
    """Before that vacuum may have taken it, and nobody has appended anything."""
    writes = opened(meta)
    begun = await writes.begin(APP, 1, LARGE)
    assert isinstance(begun, Intent)
    await meta.delete(keys.write_body_part(APP, 1, begun.nonce, 1))
    assert await writes.body(APP, begun) is None
    assert await open_blobs(meta) == set()
    assert await writes.confirm(APP, begun)
    with pytest.raises(Corrupt, match="00001 is missing"):
        await writes.body(APP, begun)
    with pytest.raises(Corrupt, match="00001 is missing"):
        await open_blobs(meta)


async def test_bodies_that_are_old_and_that_no_head_names_are_forgotten(meta: MemoryMeta) -> None:
    clock = QuickClock()
    clock.speed = 1
    writes = Intents(meta, clock, SystemEntropy())
    for app in ("a", "body", APP):
        await writes._prepare(app, 3, LARGE)
    named = await writes.begin(APP, 5, LARGE)
    assert isinstance(named, Intent)
    await meta.put(keys.write_body_part("old", 1, "f" * 32, 0), b"of a release whose nonces don't tell the time")
    clock.leap(10)
    await writes._prepare("a", 4, LARGE)
    before_ms = clock.now_ms() - 5_000
    assert await forget_unpublished(meta, before_ms - 60_000, 100) == 0
    assert await forget_unpublished(meta, before_ms, 100, dry_run=True) == 3
    assert await forget_unpublished(meta, before_ms, 1) == 1
    assert await forget_unpublished(meta, before_ms, 100) == 2
    assert await forget_unpublished(meta, before_ms, 100) == 0
    assert await writes.body(APP, named) == LARGE
    left = await meta.scan(keys.WRITES, keys.after(keys.WRITES))
    found = [keys.parse_write_body_part(record.key) for record in left]
    assert {body.head for body in found if body is not None} == {keys.write_head(app) for app in ("a", APP, "old")}
    await meta.put(keys.write_head("a"), b"{")
    clock.leap(10)
    with pytest.raises(Corrupt, match="llog/writes/a/head can't be read"):
        await forget_unpublished(meta, clock.now_ms(), 100)


async def test_what_is_too_much_is_refused(meta: MemoryMeta, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(intents, "MAX_PARTS", 2)
    with pytest.raises(Rejected, match="30000 runs in 30 objects is too much at once"):
        await opened(meta).begin(APP, 0, LARGE)
    assert await meta.scan(keys.WRITES, keys.after(keys.WRITES)) == []


@pytest.mark.parametrize("applied", [False, True])
async def test_unknown_outcomes_are_settled_by_reading(meta: MemoryMeta, applied: bool) -> None:
    faults = Faults()
    writes = opened(meta, faults)
    faults.at("put head", Fail(OutcomeUnknown("no answer"), applied))
    begun = await writes.begin(APP, 0, body_of("a"))
    assert isinstance(begun, Intent)
    assert (await writes.find(APP)).open == begun
    faults.at("put head", Fail(OutcomeUnknown("no answer"), applied))
    await writes.finish(APP, begun)
    assert await over(writes) == WriteHead(0)
    begun = await writes.begin(APP, 1, body_of("a"))
    assert isinstance(begun, Intent)
    faults.at("delete head", Fail(OutcomeUnknown("no answer"), applied))
    await writes.finish(APP, begun, forget=True)
    assert await meta.scan(keys.WRITES, keys.after(keys.WRITES)) == []


async def test_an_intent_that_arrives_late_changes_nothing(meta: MemoryMeta) -> None:
    faults = Faults()
    late = faults.at("put head", Late())
    sleepy = asyncio.ensure_future(opened(meta, faults).begin(APP, 0, body_of("late")))
    begun = await sleepy
    assert isinstance(begun, Intent)
    await opened(meta).finish(APP, begun)
    with pytest.raises(Exception, match="is not what was expected"):
        await late.arrive()
    assert await over(opened(meta)) == WriteHead(0)


async def test_blobs_of_all_that_is_open_are_found(meta: MemoryMeta) -> None:
    for app, blob in (("a", "1"), ("a/b", "2"), ("b", "3"), ("..", "4")):
        begun = await opened(meta).begin(app, 0, body_of(blob))
        if app == "b":
            assert isinstance(begun, Intent)
            await opened(meta).finish(app, begun)
    await opened(meta)._prepare("c", 0, LARGE)
    assert await open_blobs(meta) == {"1", "2", "4"}


@pytest.mark.parametrize(("app", "version"), [("", 0), ("x" * 256, 0), ("a", -1), ("a", 1 << 63)])
async def test_names_that_can_not_be(meta: MemoryMeta, app: str, version: int) -> None:
    with pytest.raises(ConfigError):
        await opened(meta).begin(app, version, body_of("a"))


async def test_a_head_that_can_not_be_read_is_named(meta: MemoryMeta) -> None:
    await meta.put(keys.write_head("a"), b"{")
    with pytest.raises(Corrupt, match="llog/writes/a/head can't be read"):
        await opened(meta).find("a")
    with pytest.raises(Corrupt, match="llog/writes/a/head can't be read"):
        await open_blobs(meta)


async def test_an_intent_is_confirmed_or_abandoned(meta: MemoryMeta) -> None:
    one, two = opened(meta), opened(meta)
    begun = await one.begin(APP, 4, body_of("a"))
    assert isinstance(begun, Intent)
    assert await one.confirm(APP, begun)
    assert await two.confirm(APP, begun)
    await two.abandon(APP, begun)
    found = (await two.find(APP)).open
    assert found is not None
    assert found.is_confirmed
    await one.finish(APP, found)
    assert not await two.confirm(APP, begun)
    other = await one.begin(APP, 5, body_of("b"))
    assert isinstance(other, Intent)
    await two.abandon(APP, other)
    assert not await one.confirm(APP, other)
    assert await over(one) == WriteHead(4)
    again = await one.begin(APP, 5, body_of("c"))
    assert isinstance(again, Intent)
    assert again.nonce != other.nonce
    await two.abandon(APP, other)
    assert (await one.find(APP)).open == again


@pytest.mark.parametrize("applied", [False, True])
async def test_unknown_outcomes_of_these_are_settled_too(meta: MemoryMeta, applied: bool) -> None:
    faults = Faults()
    writes = opened(meta, faults)
    begun = await writes.begin(APP, 0, body_of("a"))
    assert isinstance(begun, Intent)
    faults.at("put head", Fail(OutcomeUnknown("no answer"), applied))
    assert await writes.confirm(APP, begun)
    await writes.finish(APP, begun)
    begun = await writes.begin(APP, 1, body_of("a"))
    assert isinstance(begun, Intent)
    faults.at("put head", Fail(OutcomeUnknown("no answer"), applied))
    await writes.abandon(APP, begun)
    assert await over(writes) == WriteHead(0)


async def test_heads_of_all_applications(meta: MemoryMeta) -> None:
    writes = opened(meta)
    begun = await writes.begin("a/b", 1, LARGE)
    assert isinstance(begun, Intent)
    done = await writes.begin("b", 5, body_of("x"))
    assert isinstance(done, Intent)
    await writes.finish("b", done)
    await writes._prepare("never begun", 0, LARGE)
    assert [(app, head.done, head.open) async for app, head in heads(meta)] == [("a/b", -1, begun), ("b", 5, None)]


async def test_heads_are_forgotten_long_after_their_last_write(meta: MemoryMeta) -> None:
    clock = QuickClock()
    writes = Intents(meta, clock, SystemEntropy())
    begun = await writes.begin(APP, 3, body_of("a"))
    assert isinstance(begun, Intent)
    clock.leap(1_000_000)
    assert not await writes.forget(APP, 0), "it is open"
    await writes.finish(APP, begun)
    clock.leap(5_000)
    assert not await writes.forget(APP, 10_000_000)
    assert await writes.begin(APP, 3, body_of("b")) == Done(3)
    clock.leap(5_001)
    assert await writes.forget(APP, 10_000_000)
    assert await meta.get(keys.write_head(APP)) is None
    assert not await writes.forget(APP, 10_000_000), "there is none"
    assert isinstance(await writes.begin(APP, 3, body_of("b")), Intent)


async def test_a_head_from_before_is_kept_from_now_on(meta: MemoryMeta) -> None:
    clock = QuickClock()
    writes = Intents(meta, clock, SystemEntropy())
    await meta.put(keys.write_head(APP), b'{"done":7}')
    assert not await writes.forget(APP, 10_000_000)
    clock.leap(9_000)
    assert not await writes.forget(APP, 10_000_000)
    assert (await writes.find(APP)).done == 7
    clock.leap(2_000)
    assert await writes.forget(APP, 10_000_000)


async def test_a_head_that_says_nothing_goes_at_once(meta: MemoryMeta) -> None:
    writes = opened(meta)
    begun = await writes.begin(APP, 0, body_of("a"), is_once=True)
    assert isinstance(begun, Intent)
    await writes.abandon(APP, begun)
    assert await writes.forget(APP, 1 << 60)
    assert await meta.get(keys.write_head(APP)) is None


async def test_a_head_that_changes_meanwhile_stays(meta: MemoryMeta) -> None:
    faults = Faults()
    writes = opened(meta, faults)
    begun = await writes.begin(APP, 0, body_of("a"))
    assert isinstance(begun, Intent)
    await writes.abandon(APP, begun)
    stall = faults.at("delete head", Stall())
    forgetting = asyncio.ensure_future(writes.forget(APP, 0))
    await stall.reached.wait()
    begun = await opened(meta).begin(APP, 0, body_of("b"))
    stall.let_go()
    assert not await forgetting
    assert (await writes.find(APP)).open == begun


async def test_a_write_without_a_name_that_others_finish_is_remembered_for_a_day(meta: MemoryMeta) -> None:
    clock = QuickClock()
    writes = Intents(meta, clock, SystemEntropy())
    begun = await writes.begin(APP, 0, body_of("a"), is_once=True)
    assert isinstance(begun, Intent)
    await writes.finish(APP, begun)
    assert await writes.begin(APP, 0, body_of("a"), is_once=True) == Done(0), "the one who has begun it wakes up"
    clock.leap(23 * 3600)
    assert not await writes.forget(APP, 1 << 60)
    clock.leap(2 * 3600)
    assert await writes.forget(APP, 1 << 60)
