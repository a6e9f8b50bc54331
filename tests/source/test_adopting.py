"""A write is in the logs once, in order and whole, whoever dies or sleeps at whatever step, and for however long."""

from __future__ import annotations

import asyncio
import struct
from collections.abc import AsyncIterator
from pathlib import Path

import msgspec
import pytest
from crc32c import crc32c

from catena.errors import LogSealed, OutcomeUnknown, Rejected, UnknownPartition, UnknownTopic
from catena.formats.record_batch import CRC_START, parse_header
from catena.loglets.base import Entry
from catena.loglets.producers import EXPIRY_MS
from catena.meta import keys
from catena.runtime import SystemEntropy
from catena.source.adopting import EPOCHS, stamp_of
from catena.testing.contracts.loglet import make_entry, soon
from catena.testing.faults import Fail, Stall
from catena.virtual_log.intents import Intents, WriteHead
from tests.loglets.stores import WAYS, Stores
from tests.source.writes import APP, HOUR_S, MAX_AGE_MS, WritingDriver, content, leap, values_of
from tests.virtual_log.cluster import TOPIC, Cluster

MAX_STEPS = 49


@pytest.fixture(params=WAYS)
async def cluster(request: pytest.FixtureRequest, tmp_path: Path) -> AsyncIterator[Cluster]:
    async with Stores(request.param, tmp_path, request) as stores:
        cluster = Cluster(stores)
        await cluster.node()
        yield cluster


async def head_of(cluster: Cluster, app: str = APP) -> WriteHead:
    """But for the time."""
    head = await Intents(cluster.stores.meta, cluster.stores.clock, SystemEntropy()).find(app)
    return msgspec.structs.replace(head, at_ms=0)


async def test_a_write_is_in_its_logs_in_order(cluster: Cluster) -> None:
    driver = await WritingDriver.start(cluster)
    for version in range(3):
        await driver.commit(version, await driver.write(f"v{version}", version))
    expected = [value for version in range(3) for value in values_of(f"v{version}")]
    assert await content(cluster, 0) == expected
    assert await content(cluster, 1) == expected
    assert await head_of(cluster) == WriteHead(2)


async def test_of_two_attempts_at_a_version_one_counts(cluster: Cluster) -> None:
    one, two = await WritingDriver.start(cluster), await WritingDriver.start(cluster)
    first, second = await one.write("one"), await two.write("two", partitions=(1, 2))
    await asyncio.gather(one.commit(0, first), two.commit(0, second))
    found = [await content(cluster, number) for number in range(3)]
    of_one, of_two = values_of("one"), values_of("two")
    assert found in ([of_one, of_one, []], [[], of_two, of_two])


async def test_what_was_done_is_skipped(cluster: Cluster) -> None:
    """And so is what an application left out, as in Delta."""
    driver = await WritingDriver.start(cluster)
    await driver.commit(5, await driver.write("five", 5))
    for version in (0, 4, 5):
        await driver.commit(version, await driver.write("again", version))
    assert await content(cluster, 0) == values_of("five")


async def test_applications_do_not_meet(cluster: Cluster) -> None:
    driver = await WritingDriver.start(cluster)
    for app in ("a/b", "a", "..", "ä"):
        await driver.commit(0, await driver.write(app, app=app), app)
    assert await content(cluster, 0) == [value for app in ("a/b", "a", "..", "ä") for value in values_of(app)]


async def test_one_that_nobody_asks_for_again_leaves_nothing(cluster: Cluster) -> None:
    driver = await WritingDriver.start(cluster)
    await driver.commit(0, await driver.write("once"), forget=True)
    assert await content(cluster, 0) == values_of("once")
    assert await cluster.stores.meta.scan(keys.WRITES, keys.after(keys.WRITES)) == []


async def _stop_at(cluster: Cluster, at: int, applied: bool) -> tuple[WritingDriver, asyncio.Future[None]]:
    """A driver that commits, and has stopped at this step, or has come to its end."""
    driver = await WritingDriver.start(cluster)
    written = await driver.write("first", partitions=_pair(at), tasks=1, app=f"app {at}")
    driver.steps.count(at, applied)
    committing = asyncio.ensure_future(driver.commit(0, written, f"app {at}"))
    stopping = asyncio.ensure_future(driver.steps.stopped.wait())
    await asyncio.wait([committing, stopping], return_when=asyncio.FIRST_COMPLETED)
    stopping.cancel()
    return driver, committing


def _pair(at: int) -> tuple[int, int]:
    """Partitions that no other step writes to."""
    return 2 * at, 2 * at + 1


@pytest.mark.parametrize("applied", [False, True])
async def test_a_driver_dies_at_each_step(cluster: Cluster, applied: bool) -> None:
    """The next attempt has runs of its own. Whatever was begun is finished, and the next version follows."""
    follower = await WritingDriver.start(cluster)
    for at in range(1, MAX_STEPS):
        app, partitions = f"app {at}", _pair(at)
        mortal, dying = await _stop_at(cluster, at, applied)
        died = not dying.done()
        dying.cancel()
        await follower.commit(0, await follower.write("second", 0, partitions, 1, app), app)
        await follower.commit(1, await follower.write("next", 1, partitions, 1, app), app)
        found = [await content(cluster, number) for number in partitions]
        ways = [values_of(name, 1) + values_of("next", 1) for name in ("first", "second")]
        assert found in [[way] * 2 for way in ways], f"step {at}: {mortal.steps.names}"
        mortal.steps.go_on.set()  # what it had under way arrives now
        await mortal.node.drain()
        assert [await content(cluster, number) for number in partitions] == found
        if not died:
            assert found == [ways[0]] * 2
            assert at > 10
            return
    raise AssertionError("it takes more and more steps")


@pytest.mark.parametrize("asleep_s", [1, 13 * HOUR_S, 25 * HOUR_S])
@pytest.mark.parametrize("applied", [False, True])
async def test_a_driver_sleeps_at_each_step_and_others_finish(cluster: Cluster, applied: bool, asleep_s: int) -> None:
    other = await WritingDriver.start(cluster)
    for at in range(1, MAX_STEPS):
        app, partitions = f"app {at}", _pair(at)
        sleepy, sleeping = await _stop_at(cluster, at, applied)
        if sleeping.done():
            sleepy.steps.go_on.set()
            return
        await other.commit(0, await other.write("second", 0, partitions, 1, app), app)
        leap(cluster, asleep_s)
        rest = values_of("next", 1) if at % 2 else []
        if rest:
            await other.commit(1, await other.write("next", 1, partitions, 1, app), app)
        sleepy.steps.go_on.set()
        await asyncio.gather(sleeping, return_exceptions=True)
        found = [await content(cluster, number) for number in partitions]
        ways = [values_of(name, 1) + rest for name in ("first", "second")]
        assert found in [[way] * 2 for way in ways], f"step {at}: {sleepy.steps.names}"
    raise AssertionError("it takes more and more steps")


async def _begin(cluster: Cluster, stop_behind: int, app: str = APP) -> None:
    """A driver that dies when so many runs of partition 0 are in the log."""
    driver = await WritingDriver.start(cluster)
    written = await driver.write("first", partitions=(0,), app=app)
    step = cluster.stores.commit_step
    driver.steps.at(step, Fail(Rejected("the driver dies here")), nth=stop_behind + 1)
    with pytest.raises(Rejected):
        await driver.commit(0, written, app)


@pytest.mark.parametrize("done", [0, 1, 3])
async def test_an_old_intent_is_finished_by_looking(cluster: Cluster, done: int) -> None:
    """Days later the log has forgotten the producers of what it has."""
    await _begin(cluster, done)
    assert len(await content(cluster, 0)) == 3 * done
    leap(cluster, 3 * 24 * HOUR_S)
    other = await (await cluster.node()).log(0)
    await other.append(make_entry("in between"))
    driver = await WritingDriver.start(cluster)
    await driver.commit(0, await driver.write("second", partitions=(0,)))
    values = values_of("first")
    assert await content(cluster, 0) == [*values[: 3 * done], "in between", *values[3 * done :]]


async def test_an_old_intent_of_which_a_part_is_trimmed_is_not_guessed_at(cluster: Cluster) -> None:
    await (await (await cluster.node()).log(0)).append(make_entry("before"))
    await _begin(cluster, 2)  # one of these is refused: it did not know of the append before
    leap(cluster, EXPIRY_MS / 1000)
    await (await (await cluster.node()).log(0)).trim(2)
    driver = await WritingDriver.start(cluster)
    with pytest.raises(OutcomeUnknown, match="trimmed up to 2 since then: nothing tells"):
        await driver.commit(1, await driver.write("next", 1))


async def test_an_old_intent_of_which_a_part_may_be_compacted_is_not_guessed_at(cluster: Cluster) -> None:
    await _begin(cluster, 1)
    leap(cluster, EXPIRY_MS / 1000)
    thinned = bytearray(make_entry("one record of what were two").data)
    struct.pack_into(">i", thinned, 23, 1)
    struct.pack_into(">I", thinned, 17, crc32c(thinned[CRC_START:]))
    await (await (await cluster.node()).log(0)).append(Entry(parse_header(thinned), bytes(thinned)))
    driver = await WritingDriver.start(cluster)
    with pytest.raises(OutcomeUnknown, match="was compacted since then: nothing tells"):
        await driver.commit(1, await driver.write("next", 1))


async def test_it_is_tried_again_when_a_store_fails(cluster: Cluster) -> None:
    driver = await WritingDriver.start(cluster)
    written = await driver.write("first")
    for nth in (2, 5):
        driver.steps.at(cluster.stores.commit_step, Fail(OutcomeUnknown("no answer"), applied=True), nth=nth)
    driver.steps.at("put head", Fail(OutcomeUnknown("no answer"), applied=True))
    driver.steps.at("put head", Fail(OutcomeUnknown("no answer")), nth=2)
    await driver.commit(0, written)
    assert [await content(cluster, number) for number in range(2)] == [values_of("first")] * 2
    assert (await head_of(cluster)).done == 0
    assert driver.steps.armed == []


async def test_nothing_is_visible_of_what_can_not_be_written(cluster: Cluster) -> None:
    driver = await WritingDriver.start(cluster)
    with pytest.raises(UnknownPartition, match="partitions 0 to 99, not 100"):
        await driver.commit(0, await driver.write("far", partitions=(0, 100)))
    written = await driver.write("late")
    leap(cluster, MAX_AGE_MS / 1000 + 1)
    with pytest.raises(Rejected, match="were stored 21601 s ago, and have to be committed within 21600 s"):
        await driver.commit(0, written)
    written = await driver.write("other")
    await driver.node.topics.delete(TOPIC)
    await driver.node.topics.create(TOPIC, 100)
    with pytest.raises(UnknownTopic):
        await driver.commit(0, written)
    assert await head_of(cluster) == WriteHead()
    assert await content(cluster, 0) == []


@pytest.mark.parametrize("applied", [False, True])
async def test_an_intent_that_is_published_too_late_is_abandoned(cluster: Cluster, applied: bool) -> None:
    """By then vacuum may have taken its blobs: whoever comes to it appends none of them, and writes its own."""
    sleepy = await WritingDriver.start(cluster)
    written = await sleepy.write("first")
    stall = sleepy.steps.at("put head", Stall(applied))
    sleeping = asyncio.ensure_future(sleepy.commit(0, written))
    await soon(stall.reached.wait())
    leap(cluster, MAX_AGE_MS / 1000 + 1)
    if applied:
        other = await WritingDriver.start(cluster)
        await other.commit(0, await other.write("second"))
    stall.let_go()
    if applied:
        await sleeping
    else:
        with pytest.raises(Rejected, match="have to be committed within"):
            await sleeping
    assert await content(cluster, 0) == (values_of("second") if applied else [])
    assert await head_of(cluster) == WriteHead(0 if applied else -1)


async def test_a_topic_that_is_deleted_meanwhile_is_left_out(cluster: Cluster) -> None:
    await _begin(cluster, 1)
    driver = await WritingDriver.start(cluster)
    await driver.node.topics.delete(TOPIC)
    await driver.commit(0, await driver.write_nothing())
    assert (await head_of(cluster)).done == 0


async def test_a_sealed_log_holds_a_write_up_until_it_is_reopened(cluster: Cluster) -> None:
    driver = await WritingDriver.start(cluster)
    written = await driver.write("first")
    log = await driver.node.log(TOPIC, 1)
    await log.seal()
    with pytest.raises(LogSealed):
        await driver.commit(0, written)
    await log.reconfigure("memory")
    await driver.commit(0, await driver.write("second"))
    assert [await content(cluster, number) for number in range(2)] == [values_of("first")] * 2


async def test_the_chain_changes_in_mid_write(cluster: Cluster) -> None:
    """To another kind and back: what a link has taken the next one knows."""
    await _begin(cluster, 2)
    log = await (await cluster.node()).log(0)
    await log.reconfigure("memory")
    await _begin_again(cluster, 1)
    await log.reconfigure("diskless")
    driver = await WritingDriver.start(cluster)
    await driver.commit(0, await driver.write("third", partitions=(0,)))
    assert await content(cluster, 0) == values_of("first")


async def _begin_again(cluster: Cluster, stop_behind: int) -> None:
    driver = await WritingDriver.start(cluster)
    written = await driver.write("second", partitions=(0,))
    driver.steps.at("blob get_ranges", Fail(Rejected("the driver dies here")), nth=2 + stop_behind + 1)
    with pytest.raises(Rejected):
        await driver.commit(0, written)


def test_stamps_tell_applications_tasks_blobs_and_versions_apart() -> None:
    first = stamp_of("app", 7, 3, 1)
    assert first == stamp_of("app", 7, 3, 1)
    assert first.producer_id >> 62 == 1
    assert stamp_of("app", 8, 3, 1) == first._replace(epoch=8)
    others = [stamp_of("ap", 7, 3, 1), stamp_of("app", 7, 1, 3), stamp_of("app", 7, 3, 2), stamp_of("app", 7, 31, 1)]
    others.append(stamp_of("app", 7 + EPOCHS, 3, 1))
    assert len({stamp.producer_id for stamp in (first, *others)}) == 6
    assert others[-1].epoch == 7
