"""Appends keep their order and happen once, while the stores fail in every way that they may."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Sequence

import pytest

from catena.config import Settings
from catena.errors import (
    CatenaError,
    InvalidBatch,
    LogSealed,
    OutcomeUnknown,
    StoreFull,
    StoreUnavailable,
    UnknownTopic,
)
from catena.formats.compression import Compression
from catena.formats.record_batch import parse_header
from catena.formats.records import build_batch, iter_records
from catena.loglets.base import Entry
from catena.loglets.diskless.loglet import DisklessSettings
from catena.loglets.diskless.writer import WriterSettings
from catena.meta.base import Group, GroupResult
from catena.meta.memory import MemoryMeta
from catena.node import Node
from catena.objects.memory import MemoryObjects
from catena.producer import BATCH_BYTES, RESTED_TOO_LONG_S, NewRecord, Producer
from catena.runtime import SystemClock, SystemEntropy, Tasks
from catena.testing.faults import Fail, Faults, FaultyMeta, FaultyObjects, Stall
from catena.types import ANY, Buffers, ETag, Expect
from catena.virtual_log.log import VirtualLog


class HastyClock(SystemClock):
    """Who sleeps wakes at once, and finds that the time has passed. Else it stands still, on a slow machine too."""

    def __init__(self) -> None:
        self.skipped = 0.0

    def monotonic(self) -> float:
        return self.skipped

    async def sleep(self, seconds: float) -> None:
        self.skipped += seconds
        await asyncio.sleep(0)


class OutageObjects(FaultyObjects):
    """Takes nothing while it is `down`."""

    down: CatenaError | None = None

    async def put(self, key: str, data: Buffers, expect: Expect | ETag = ANY) -> ETag:
        if self.down is not None:
            raise self.down
        return await super().put(key, data, expect)


class SilentMeta(FaultyMeta):
    """Answers no commit while it is `silent`, and does none but those that a fault lets through."""

    silent = False

    async def transact(self, groups: Sequence[Group]) -> list[GroupResult]:
        if self.silent and not self._faults.armed:
            raise OutcomeUnknown("no answer")
        return await super().transact(groups)


class Stand:
    """A producer of topic `t` on stores that fail when they are told to."""

    def __init__(self, node: Node, meta: SilentMeta, objects: OutageObjects, faults: Faults, clock: HastyClock) -> None:
        self.node = node
        self.meta = meta
        self.objects = objects
        self.faults = faults
        self.clock = clock
        self.tasks = Tasks("test")
        self.producer = Producer("t/0", self._find, clock, SystemEntropy(), self.tasks)

    async def _find(self, gone: VirtualLog | None) -> VirtualLog:
        log = await self.node.log("t", 0)
        if log is gone:
            raise UnknownTopic("t")
        return log

    def append(self, *values: str, compression: Compression = Compression.NONE) -> asyncio.Task[int]:
        records: list[NewRecord] = [(None, value.encode(), (), 0) for value in values]
        return asyncio.ensure_future(self.producer.append(records, compression))

    async def batches(self) -> list[list[str]]:
        """What the log holds, batch by batch."""
        log = await self.node.log("t", 0)
        found: list[list[str]] = []
        offset, tail = 0, await log.tail()
        while offset < tail:
            for batch in await log.read(offset, 1 << 20):
                found.append([(record.value or b"").decode() for record in iter_records(batch.data, batch.offset)])
                offset = batch.end
        return found

    async def values(self) -> list[str]:
        return [value for batch in await self.batches() for value in batch]

    async def producer_ids(self) -> list[int]:
        """Of each batch in the log."""
        log = await self.node.log("t", 0)
        return [parse_header(batch.data).producer_id for batch in await log.read(0, 1 << 20)]


@pytest.fixture
async def stand() -> AsyncIterator[Stand]:
    faults, clock, entropy = Faults(), HastyClock(), SystemEntropy()
    # With hardly any deadline, a commit of unknown outcome is not settled below, and the producer has to.
    settings = Settings(diskless=DisklessSettings(writer=WriterSettings(commit_deadline_ms=1, batch_max_delay_ms=1)))
    meta, objects = SilentMeta(MemoryMeta(clock), faults), OutageObjects(MemoryObjects(clock), faults)
    node = await Node.start(settings, meta, objects, clock, entropy)
    await node.topics.create("t")
    stand = Stand(node, meta, objects, faults, clock)
    yield stand
    await stand.tasks.close()
    await node.close()
    assert faults.armed == []


async def test_appends_of_one_turn_share_a_batch(stand: Stand) -> None:
    appends = [stand.append(str(number)) for number in range(100)]
    assert await asyncio.gather(*appends) == list(range(100))
    assert [len(batch) for batch in await stand.batches()] == [100]


async def test_a_batch_is_not_cut_and_not_mixed(stand: Stand) -> None:
    appends = [
        stand.append("a", "b"),
        stand.append("c", compression=Compression.ZSTD),
        stand.append("d" * BATCH_BYTES),
        stand.append("e"),
    ]
    assert await asyncio.gather(*appends) == [0, 2, 3, 4]
    assert [len(batch) for batch in await stand.batches()] == [2, 1, 1, 1]


async def test_the_first_batch_of_an_id_travels_alone(stand: Stand) -> None:
    async def append_one_by_one(*values: str) -> list[asyncio.Task[int]]:
        appends = []
        for value in values:
            appends.append(stand.append(value))
            for _ in range(5):
                await asyncio.sleep(0)
        return appends

    stalled = stand.faults.at("blob put", Stall())
    appends = await append_one_by_one("first", "a", "b", "c")
    stalled.let_go()
    assert await asyncio.gather(*appends) == [0, 1, 2, 3]
    assert await stand.batches() == [["first"], ["a", "b", "c"]]

    stalled = stand.faults.at("blob put", Stall())
    appends = await append_one_by_one(*"defghijk")
    stalled.let_go()
    assert await asyncio.gather(*appends) == list(range(4, 12))
    assert (await stand.batches())[2:] == [["d"], ["e"], ["f"], ["g"], ["h"], ["i", "j", "k"]]


@pytest.mark.parametrize(
    ("step", "fault"),
    [
        ("blob put", Fail(StoreUnavailable("down"))),
        ("transact", Fail(StoreUnavailable("down"))),
        ("transact", Fail(OutcomeUnknown("no answer"))),
        ("transact", Fail(OutcomeUnknown("no answer"), applied=True)),
    ],
)
@pytest.mark.parametrize("nth", [1, 2, 3])
async def test_trouble_changes_neither_order_nor_number(stand: Stand, step: str, fault: Fail, nth: int) -> None:
    stand.faults.at(step, fault, nth)
    appends = []
    for number in range(20):
        appends.append(stand.append(str(number), compression=Compression(number % 2)))
        if number % 3 == 0:
            await asyncio.sleep(0)
    assert await asyncio.gather(*appends) == list(range(20))
    assert await stand.values() == [str(number) for number in range(20)]


async def test_one_trouble_after_the_other(stand: Stand) -> None:
    for nth in range(1, 12, 3):
        stand.faults.at("transact", Fail(OutcomeUnknown("no answer"), applied=nth % 2 == 0), nth)
        stand.faults.at("blob put", Fail(StoreUnavailable("down")), nth)
    appends = [stand.append(str(number), compression=Compression(number % 2)) for number in range(40)]
    assert await asyncio.gather(*appends) == list(range(40))
    assert await stand.values() == [str(number) for number in range(40)]


async def test_a_store_that_stays_down_is_given_up_and_nothing_was_appended(stand: Stand) -> None:
    assert await stand.append("before") == 0
    stand.objects.down = StoreUnavailable("down")
    lost = [stand.append(f"lost {number}", compression=Compression(number % 2)) for number in range(8)]
    for outcome in await asyncio.gather(*lost, return_exceptions=True):
        assert isinstance(outcome, StoreUnavailable)
    stand.objects.down = None
    assert await stand.append("after") == 1
    assert await stand.values() == ["before", "after"]


@pytest.mark.parametrize("applied", [False, True])
async def test_an_outcome_that_stays_unknown_is_said_to_be(stand: Stand, applied: bool) -> None:
    assert await stand.append("before") == 0
    stand.meta.silent = True
    stand.faults.at("transact", Fail(OutcomeUnknown("no answer"), applied))
    with pytest.raises(OutcomeUnknown):
        await stand.append("unknown")
    stand.meta.silent = False
    assert await stand.append("after") == (2 if applied else 1)
    assert await stand.values() == ["before", *(["unknown"] if applied else []), "after"]


async def test_what_was_in_flight_behind_an_unknown_outcome_is_not_sent_under_another_id(stand: Stand) -> None:
    assert await stand.append("before") == 0
    stand.meta.silent = True
    stand.faults.at("transact", Fail(OutcomeUnknown("no answer"), applied=True))
    first, second = stand.append("first"), stand.append("second", compression=Compression.GZIP)

    def answer_again(_: asyncio.Task[int]) -> None:
        stand.meta.silent = False

    first.add_done_callback(answer_again)
    for unknown in await asyncio.gather(first, second, return_exceptions=True):
        assert isinstance(unknown, OutcomeUnknown)
    assert await stand.append("after") == 3
    assert await stand.values() == ["before", "first", "second", "after"]


async def test_an_unknown_outcome_is_not_forgotten_when_another_error_follows(stand: Stand) -> None:
    assert await stand.append("before") == 0
    stand.faults.at("transact", Fail(OutcomeUnknown("no answer"), applied=True))
    stand.faults.at("blob put", Fail(StoreFull("no space left")), nth=2)
    with pytest.raises(OutcomeUnknown, match="no space left"):
        await stand.append("there")
    assert await stand.values() == ["before", "there"]


async def test_an_error_that_is_an_answer_is_passed_on_at_once(stand: Stand) -> None:
    stand.faults.at("blob put", Fail(StoreFull("no space left")))
    with pytest.raises(StoreFull):
        await stand.append("too much")
    assert await stand.append("small") == 0


async def test_the_failure_of_one_is_not_that_of_those_behind_it(stand: Stand) -> None:
    assert await stand.append("before") == 0
    stand.faults.at("blob put", Fail(StoreFull("no space left")))
    appends = [stand.append(str(number), compression=Compression(number % 2)) for number in range(8)]
    outcomes = await asyncio.gather(*appends, return_exceptions=True)
    acked = [str(number) for number, outcome in enumerate(outcomes) if isinstance(outcome, int)]
    failed = [outcome for outcome in outcomes if not isinstance(outcome, int)]
    assert len(failed) in range(1, 6)
    assert all(isinstance(outcome, StoreFull) for outcome in failed)
    assert await stand.values() == ["before", *acked]


async def test_what_can_not_be_written_down_fails_alone(stand: Stand) -> None:
    bad = asyncio.ensure_future(stand.producer.append([(None, b"x", (), 2**63)], Compression.GZIP))
    good = stand.append("good")
    with pytest.raises(InvalidBatch):
        await bad
    assert await good == 0


async def test_a_sealed_log_refuses_all_that_waits_and_takes_the_next_when_reopened(stand: Stand) -> None:
    assert await stand.append("before") == 0
    log = await stand.node.log("t", 0)
    await log.seal()
    refused = [stand.append(str(number), compression=Compression(number % 2)) for number in range(10)]
    for outcome in await asyncio.gather(*refused, return_exceptions=True):
        assert isinstance(outcome, LogSealed)
    await log.reconfigure("diskless")
    assert await stand.append("after") == 1
    assert await stand.values() == ["before", "after"]


async def test_a_move_to_another_link_keeps_order_and_number(stand: Stand) -> None:
    log = await stand.node.log("t", 0)
    appends = []
    for number in range(60):
        appends.append(stand.append(str(number), compression=Compression(number % 2)))
        if number % 20 == 10:
            await log.reconfigure("memory" if number < 20 else "diskless")
    assert await asyncio.gather(*appends) == list(range(60))
    assert await stand.values() == [str(number) for number in range(60)]


async def test_a_new_topic_of_the_same_name_gets_what_was_not_appended(stand: Stand) -> None:
    assert await stand.append("to the old one") == 0
    await stand.node.topics.delete("t")
    with pytest.raises(UnknownTopic):
        await stand.append("to nobody")
    await stand.node.topics.create("t")
    appends = [stand.append(str(number), compression=Compression(number % 2)) for number in range(10)]
    assert await asyncio.gather(*appends) == list(range(10))
    assert await stand.values() == [str(number) for number in range(10)]


async def test_who_does_not_wait_any_more_is_not_sent(stand: Stand) -> None:
    stalled = stand.faults.at("blob put", Stall())
    sent = stand.append("sent")
    await stalled.reached.wait()
    waiting = stand.append("waiting")
    await asyncio.sleep(0)
    waiting.cancel()
    sent.cancel()
    stalled.let_go()
    assert await stand.append("after") == 1
    assert await stand.values() == ["sent", "after"]


async def test_an_id_is_used_again_unless_it_has_rested_for_long(stand: Stand) -> None:
    await stand.append("a")
    await stand.append("b")
    stand.clock.skipped += RESTED_TOO_LONG_S + 1
    await stand.append("c")
    first, second, third = await stand.producer_ids()
    assert first == second != third


async def test_a_log_that_knows_otherwise_gets_another_id(stand: Stand) -> None:
    await stand.append("a")
    log = await stand.node.log("t", 0)
    (producer_id,) = await stand.producer_ids()
    data = build_batch([(None, b"x", (), 0)] * 2, producer_id=producer_id, producer_epoch=0, base_sequence=1)
    await log.append(Entry(parse_header(data), data))
    assert await stand.append("b") == 3
    assert await stand.values() == ["a", "x", "x", "b"]


async def test_what_is_under_way_when_it_is_closed(stand: Stand) -> None:
    stalled = stand.faults.at("blob put", Stall())
    under_way = stand.append("under way")
    await stalled.reached.wait()
    waiting = stand.append("waiting")
    await asyncio.sleep(0)
    await stand.tasks.close()
    with pytest.raises(OutcomeUnknown, match="closed while"):
        await under_way
    with pytest.raises(StoreUnavailable, match="closed before"):
        await waiting
    with pytest.raises(StoreUnavailable, match="is closed"):
        await stand.append("too late")
    stalled.let_go()


async def test_draining(stand: Stand) -> None:
    await stand.producer.drain()
    appends = [stand.append(str(number)) for number in range(10)]
    await asyncio.sleep(0)
    await stand.producer.drain()
    assert all(append.done() for append in appends) or await asyncio.gather(*appends) == list(range(10))
