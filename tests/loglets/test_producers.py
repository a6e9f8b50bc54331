"""Idempotent producers are judged by Kafka's rules: alone, on every kind of loglet, and wherever their batches go."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import AsyncExitStack
from dataclasses import dataclass
from typing import Any, Literal

import pytest
from hypothesis import given
from hypothesis import strategies as st

from catena.errors import OutOfOrderSequence, ProducerFenced, Sealed
from catena.loglets.base import Entry, Loglet
from catena.loglets.diskless.loglet import Diskless, DisklessSettings
from catena.loglets.memory import MemoryLoglet, MemoryMedium
from catena.loglets.producers import (
    EXPIRY_MS,
    MAX_SEQUENCE,
    REMEMBERED_BATCHES,
    ProducerState,
    find_duplicate,
    unexpired,
    with_batch,
)
from catena.meta.memory import MemoryMeta
from catena.objects.memory import MemoryObjects
from catena.runtime import SystemEntropy
from catena.testing.contracts.loglet import Links, Stamp, make_entry
from tests.loglets.kafka_rules import KafkaRules
from tests.loglets.stores import QuickClock


@dataclass(frozen=True)
class Send:
    """One batch of one of a few producers, said in relation to what the producer would send next."""

    producer: int
    count: int
    how: Literal["next", "again", "skip", "new epoch", "new epoch, not from 0", "old epoch"]
    back: int
    """For "again": how many batches ago."""
    node: int


@dataclass(frozen=True)
class Wait:
    milliseconds: int


@dataclass(frozen=True)
class NextLink:
    """Seal, and go on with a link of this kind; `late` comes to the old one after it was sealed."""

    kind: Literal["memory", "diskless"]
    late: Send


sends = st.builds(
    Send,
    producer=st.integers(1, 3),
    count=st.integers(1, 4),
    how=st.sampled_from(
        ["next", "next", "next", "again", "again", "skip", "new epoch", "new epoch, not from 0", "old epoch"]
    ),
    back=st.integers(1, 7),
    node=st.integers(0, 1),
)
waits = st.builds(Wait, st.sampled_from([1, EXPIRY_MS // 3, EXPIRY_MS - 1, EXPIRY_MS]))
next_links = st.builds(NextLink, st.sampled_from(["memory", "diskless"]), sends)
steps_of_a_log = st.integers(0, 9).flatmap(lambda die: sends if die < 7 else next_links if die < 9 else waits)
first_sequences = st.sampled_from([0, 5, MAX_SEQUENCE - 3, MAX_SEQUENCE])


class Client:
    """Turns what is to be sent into batches, by what the rules have taken so far."""

    def __init__(self, first_sequence: int) -> None:
        self.rules = KafkaRules(EXPIRY_MS)
        self._first_sequence = first_sequence

    def entry(self, send: Send) -> tuple[Stamp, Entry]:
        stamp, count = self._stamp(send)
        return stamp, make_entry(*["x"] * count, stamp=stamp)

    def _stamp(self, send: Send) -> tuple[Stamp, int]:
        taken = self.rules.batches.get(send.producer)
        if taken is None:
            return Stamp(send.producer, 1, self._first_sequence), send.count
        follows = self.rules.next_stamp(send.producer)
        match send.how:
            case "next":
                return follows, send.count
            case "again":
                old = taken[-min(send.back, len(taken))]
                return old.stamp, old.records
            case "skip":
                return follows._replace(sequence=(follows.sequence + send.back) % (MAX_SEQUENCE + 1)), send.count
            case "new epoch":
                return Stamp(send.producer, follows.epoch + 1, 0), send.count
            case "new epoch, not from 0":
                return Stamp(send.producer, follows.epoch + 1, 1), send.count
            case "old epoch":
                return follows._replace(epoch=follows.epoch - 1), send.count


class PureLog:
    """The rules of the product without a loglet around them."""

    def __init__(self) -> None:
        self.tail = 0
        self.states: dict[int, ProducerState] = {}

    def append(self, entry: Entry, now_ms: int) -> int:
        header = entry.header
        state = unexpired(self.states.get(header.producer_id), now_ms)
        duplicate = find_duplicate(state, header)
        if duplicate is not None:
            return duplicate
        offset, self.tail = self.tail, self.tail + header.count
        self.states[header.producer_id] = with_batch(state, header, offset, now_ms)
        assert len(self.states[header.producer_id].batches) <= REMEMBERED_BATCHES
        return offset


@given(first_sequences, st.lists(sends | waits, max_size=60))
def test_the_rules_are_kafkas(first_sequence: int, steps: list[Send | Wait]) -> None:
    client, log, now_ms = Client(first_sequence), PureLog(), 1_000_000
    for step in steps:
        if isinstance(step, Wait):
            now_ms += step.milliseconds
            continue
        stamp, entry = client.entry(step)
        expected = client.rules.append(stamp, entry.header.count, now_ms)
        try:
            outcome: int | str = log.append(entry, now_ms)
        except (OutOfOrderSequence, ProducerFenced) as error:
            outcome = type(error).__name__
        assert outcome == expected


class StandingClock(QuickClock):
    """The time of day stands still but for the test's leaps."""

    def __init__(self) -> None:
        super().__init__()
        self.time_ms = 1_700_000_000_000

    def now_ms(self) -> int:
        return self.time_ms


class Partition:
    """One partition on two nodes, link after link; diskless nodes may commit in different ways."""

    def __init__(self, ways: Sequence[bool]) -> None:
        self.clock = StandingClock()
        self._medium = MemoryMedium()
        stores = MemoryMeta(self.clock), MemoryObjects(self.clock)
        self.nodes = [
            Diskless(WithoutTransact(stores[0]) if not way else stores[0], stores[1], self.clock, *ENVIRONMENT)
            for way in ways
        ]
        self._links = Links()
        self._epoch = 0
        self._base = 0
        self._producers: dict[int, ProducerState] = {}
        self._loglets: list[Loglet] = []

    async def next_link(self, kind: str) -> None:
        self._epoch += 1
        spec = self._links.spec(self._epoch, self._base, self._producers)
        if kind == "memory":
            self._loglets = [MemoryLoglet(self._medium, spec, self.clock)] * 2
        else:
            self._loglets = [node.open(spec) for node in self.nodes]

    async def seal(self) -> None:
        self._base, producers = await self._loglets[0].seal()
        self._producers = dict(producers)

    async def append(self, entry: Entry, node: int) -> int:
        return await self._loglets[node].append(entry)

    async def tail(self) -> int:
        return (await self._loglets[0].tail()).offset


ENVIRONMENT = (SystemEntropy(), "cluster", DisklessSettings())


class WithoutTransact:
    """The same store for a node that was told that it can't transact."""

    can_transact = False

    def __init__(self, meta: MemoryMeta) -> None:
        self._meta = meta

    def __getattr__(self, name: str) -> Any:
        return getattr(self._meta, name)


@pytest.mark.parametrize("ways", [(True, True), (False, False), (True, False)], ids=["group", "pending", "mixed"])
@given(first_sequence=first_sequences, steps=st.lists(steps_of_a_log, max_size=50))
async def test_a_loglet_goes_by_the_rules_on_every_node_and_link(
    ways: Sequence[bool], first_sequence: int, steps: list[Send | Wait | NextLink]
) -> None:
    client, partition = Client(first_sequence), Partition(ways)
    async with AsyncExitStack() as stack:
        for node in partition.nodes:
            stack.push_async_callback(node.close)
        await partition.next_link("diskless")
        for step in steps:
            match step:
                case Wait():
                    partition.clock.time_ms += step.milliseconds
                case NextLink():
                    await partition.seal()
                    with pytest.raises(Sealed):
                        await partition.append(client.entry(step.late)[1], step.late.node)
                    await partition.next_link(step.kind)
                case Send():
                    stamp, entry = client.entry(step)
                    expected = client.rules.append(stamp, entry.header.count, partition.clock.now_ms())
                    try:
                        outcome: int | str = await partition.append(entry, step.node)
                    except (OutOfOrderSequence, ProducerFenced) as error:
                        outcome = type(error).__name__
                    assert outcome == expected
        assert await partition.tail() == client.rules.tail


@pytest.mark.parametrize("ways", [(True, True), (False, False)], ids=["group", "pending"])
async def test_what_a_refusal_taught_of_one_link_is_not_used_in_another(ways: Sequence[bool]) -> None:
    partition = Partition(ways)
    async with AsyncExitStack() as stack:
        for node in partition.nodes:
            stack.push_async_callback(node.close)
        for sequence, kind in enumerate(("diskless", "memory", "diskless")):
            await partition.next_link(kind)
            assert await partition.append(make_entry("x", stamp=Stamp(7, 0, sequence)), node=0) == sequence
            await partition.seal()
            with pytest.raises(Sealed):
                await partition.append(make_entry("late", stamp=Stamp(7, 0, sequence + 1)), node=0)


def test_a_batch_may_wrap() -> None:
    log = PureLog()
    wrapping = make_entry(*["x"] * 4, stamp=Stamp(7, 0, MAX_SEQUENCE - 1))
    assert log.append(wrapping, 0) == 0
    assert log.append(wrapping, 0) == 0
    assert log.append(make_entry("x", stamp=Stamp(7, 0, 2)), 0) == 4
    with pytest.raises(OutOfOrderSequence, match="sequence 1, and 3 is the next"):
        log.append(make_entry("x", stamp=Stamp(7, 0, 1)), 0)


def test_only_the_last_five_batches_are_remembered() -> None:
    log = PureLog()
    entries = [make_entry("x", stamp=Stamp(7, 0, sequence)) for sequence in range(6)]
    assert [log.append(entry, 0) for entry in entries] == [0, 1, 2, 3, 4, 5]
    assert [log.append(entry, 0) for entry in entries[1:]] == [1, 2, 3, 4, 5]
    with pytest.raises(OutOfOrderSequence):
        log.append(entries[0], 0)


def test_a_batch_of_another_size_is_not_the_same_batch() -> None:
    log = PureLog()
    log.append(make_entry("x", "y", stamp=Stamp(7, 0, 0)), 0)
    with pytest.raises(OutOfOrderSequence):
        log.append(make_entry("x", stamp=Stamp(7, 0, 0)), 0)


def test_a_producer_is_forgotten_after_a_day_of_silence() -> None:
    state = with_batch(None, make_entry("x", stamp=Stamp(7, 0, 0)).header, 0, 1000)
    assert unexpired(state, 1000 + EXPIRY_MS - 1) is state
    assert unexpired(state, 1000 + EXPIRY_MS) is None
    assert unexpired(None, 0) is None
