"""Topics: their names come and go, their ids never come back, and nobody who is late changes that."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable

import pytest

from catena.errors import (
    CatenaError,
    Corrupt,
    InvalidTopic,
    OutcomeUnknown,
    OutOfOrderSequence,
    StoreUnavailable,
    TopicExists,
    UnknownTopic,
)
from catena.meta import keys
from catena.testing.contracts.loglet import EVERYTHING, Stamp, make_entry
from catena.testing.faults import Fail, Late, Stall
from catena.virtual_log.log import VirtualLog
from catena.virtual_log.topics import MAX_NAME, MAX_PARTITIONS
from tests.virtual_log.cluster import TOPIC, Cluster, ClusterNode, read_all

DELETE_STEPS = [
    ("put topic", 1),  # DELETING
    ("put chain", 1),  # the tombstone in the chain, one for each partition
    ("put chain", 2),
    ("put control", 1),  # the fence
    ("put control", 2),
    ("put deleted", 1),
    ("put topic", 2),  # DELETED
]
MOMENTS = [(step, nth, applied) for step, nth in DELETE_STEPS for applied in (False, True)]


class TestNames:
    async def test_what_was_created_is_found(self, cluster: Cluster) -> None:
        node, other = await cluster.node(), await cluster.node()
        configs = {"retention.ms": "1000"}
        created = await node.node.topics.create("orders", partitions=3, kind="memory", configs=configs)
        assert await other.node.topics.get("orders") == created
        assert (created.name, created.partitions, created.kind, created.configs) == ("orders", 3, "memory", configs)
        assert [topic.name for topic in await other.node.topics.list()] == ["orders", TOPIC]

    async def test_a_name_is_given_out_once(self, cluster: Cluster) -> None:
        nodes = [await cluster.node() for _ in range(4)]
        results = await asyncio.gather(*(node.node.topics.create("orders") for node in nodes), return_exceptions=True)
        assert sorted(type(result).__name__ for result in results) == ["TopicExists"] * 3 + ["TopicRecord"]

    @pytest.mark.parametrize("name", ["", ".", "..", "a b", "a/b", "é", "x" * (MAX_NAME + 1), "a\n"])
    async def test_not_everything_is_a_name(self, cluster: Cluster, name: str) -> None:
        with pytest.raises(InvalidTopic):
            await (await cluster.node()).node.topics.create(name)

    @pytest.mark.parametrize("partitions", [0, -1, MAX_PARTITIONS + 1])
    async def test_not_every_number_of_partitions_is_possible(self, cluster: Cluster, partitions: int) -> None:
        with pytest.raises(InvalidTopic, match=str(partitions)):
            await (await cluster.node()).node.topics.create("orders", partitions)

    async def test_the_longest_name_is_possible(self, cluster: Cluster) -> None:
        node = await cluster.node()
        name = "x" * MAX_NAME
        await node.node.topics.create(name)
        assert await (await node.log(topic=name)).append(make_entry("a")) == 0

    async def test_all_of_many_are_listed(self, cluster: Cluster) -> None:
        node = await cluster.node()
        names = [f"topic-{number:04}" for number in range(1100)]
        await asyncio.gather(*(node.node.topics.create(name) for name in names))
        assert [topic.name for topic in await node.node.topics.list()] == [TOPIC, *names]

    async def test_what_was_never_created_is_unknown(self, cluster: Cluster) -> None:
        topics = (await cluster.node()).node.topics
        with pytest.raises(UnknownTopic):
            await topics.get("nothing")
        with pytest.raises(UnknownTopic):
            await topics.delete("nothing")

    async def test_a_record_that_cannot_be_read_is_named(self, cluster: Cluster) -> None:
        node = await cluster.node()
        await cluster.stores.meta.put(keys.topic("broken"), b"{")
        for call in (node.node.topics.get, node.node.topics.create, node.node.topics.delete):
            with pytest.raises(Corrupt, match=keys.topic("broken")):
                await call("broken")

    @pytest.mark.parametrize("applied", [True, False])
    async def test_a_create_without_an_answer_is_settled(self, cluster: Cluster, applied: bool) -> None:
        node = await cluster.node()
        node.faults.at("put topic", Fail(OutcomeUnknown("no answer"), applied))
        created = await node.node.topics.create("orders")
        assert await node.node.topics.get("orders") == created

    async def test_a_create_that_lands_after_the_topic_was_deleted_does_not_bring_it_back(
        self, cluster: Cluster
    ) -> None:
        node, late = await cluster.node(), Late()
        node.faults.at("put topic", late)
        await node.node.topics.create("orders")
        await node.node.topics.delete("orders")
        with pytest.raises(CatenaError):
            await late.arrive()
        with pytest.raises(UnknownTopic):
            await node.node.topics.get("orders")
        assert (await node.node.topics.create("orders")).state == "ACTIVE"


class TestDelete:
    async def test_a_deleted_topic_is_gone_and_its_name_is_free(self, cluster: Cluster) -> None:
        node, other = await cluster.node(), await cluster.node()
        first = await node.node.topics.get(TOPIC)
        await (await node.log()).append(make_entry("old"))
        await other.node.topics.delete(TOPIC)
        for each in (node, other):
            with pytest.raises(UnknownTopic):
                await each.log()
        assert await node.node.topics.list() == []
        with pytest.raises(UnknownTopic):
            await node.node.topics.delete(TOPIC)
        second = await node.node.topics.create(TOPIC)
        assert second.topic_id != first.topic_id
        for each in (node, other):
            assert await (await each.log()).tail() == 0
            with pytest.raises(UnknownTopic):
                await each.node.topics.delete(TOPIC, first.topic_id)
        assert await node.node.topics.get(TOPIC) == second
        assert await (await node.log()).append(make_entry("new")) == 0
        assert await read_all(await other.log()) == ["new"]
        await node.node.topics.delete(TOPIC, second.topic_id)
        assert await node.node.topics.list() == []

    async def test_the_tombstone_says_what_vacuum_has_to_collect(self, cluster: Cluster) -> None:
        node = await cluster.node()
        topic = await node.node.topics.get(TOPIC)
        await node.node.topics.delete(TOPIC)
        tombstone = await cluster.stores.meta.get(keys.deleted(topic.topic_id))
        assert tombstone is not None
        assert topic.topic_id.encode() in tombstone.value

    async def test_many_delete_at_once(self, cluster: Cluster) -> None:
        nodes = [await cluster.node() for _ in range(4)]
        results = await asyncio.gather(*(node.node.topics.delete(TOPIC) for node in nodes), return_exceptions=True)
        assert all(result is None or isinstance(result, UnknownTopic) for result in results)
        assert None in results
        with pytest.raises(UnknownTopic):
            await nodes[0].node.topics.get(TOPIC)

    async def test_a_delete_never_takes_the_topic_that_has_the_name_next(self, cluster: Cluster) -> None:
        node, other = await cluster.node(), await cluster.node()
        await node.node.topics.create("orders")
        node.faults.at("put topic", Fail(OutcomeUnknown("no answer"), applied=True))
        stall = node.faults.at("get topic", Stall(), nth=2)
        deleting = asyncio.ensure_future(node.node.topics.delete("orders"))
        await stall.reached.wait()
        new = await other.node.topics.create("orders")
        stall.let_go()
        await deleting
        assert await other.node.topics.get("orders") == new

    @pytest.mark.parametrize("applied", [True, False])
    @pytest.mark.parametrize("nth", [1, 2])
    async def test_a_delete_without_an_answer_is_settled(self, cluster: Cluster, nth: int, applied: bool) -> None:
        node = await cluster.node()
        node.faults.at("put topic", Fail(OutcomeUnknown("no answer"), applied), nth)
        await node.node.topics.delete(TOPIC)
        with pytest.raises(UnknownTopic):
            await node.node.topics.get(TOPIC)

    @pytest.mark.parametrize(("step", "nth", "applied"), MOMENTS)
    @pytest.mark.parametrize("finisher", ["create", "delete"])
    async def test_one_that_was_left_half_way_is_finished(
        self, cluster: Cluster, step: str, nth: int, applied: bool, finisher: str
    ) -> None:
        node, other = await cluster.node(), await cluster.node()
        await node.node.topics.create("orders", partitions=2)
        logs = [await other.log(partition, "orders") for partition in range(2)]
        for log in logs:
            await log.append(make_entry("old"))
        node.faults.at(step, Fail(StoreUnavailable("down"), applied), nth)
        with pytest.raises(StoreUnavailable):
            await node.node.topics.delete("orders")
        if finisher == "delete":
            try:
                await other.node.topics.delete("orders")
            except UnknownTopic:
                assert (step, nth, applied) == MOMENTS[-1]
        else:
            try:
                await other.node.topics.create("orders", partitions=2)
            except TopicExists:
                assert (step, nth, applied) == MOMENTS[0]
                return
            assert await (await node.log(0, "orders")).tail() == 0
        for log in logs:
            with pytest.raises(UnknownTopic):
                await log.append(make_entry("late"))


class TestLateComers:
    """They hold on to a log whose topic is deleted, and created again, behind their back."""

    async def delete_and_create(self, cluster: Cluster) -> VirtualLog:
        other = await cluster.node()
        await other.node.topics.delete(TOPIC)
        await other.node.topics.create(TOPIC)
        log = await other.log()
        await log.append(make_entry("new"))
        return log

    async def check(self, cluster: Cluster, late: VirtualLog, new: VirtualLog, committed: int) -> None:
        """Nothing of the late one is in the new topic, and the old one stays as it was when it was deleted."""
        with pytest.raises(UnknownTopic):
            await late.append(make_entry("late again"))
        assert await read_all(new) == ["new"]
        assert await cluster.content() == ["new"]
        control = await cluster.stores.control(late.tp)
        assert (control.state, control.next) == ("FENCED", committed)
        assert len(await cluster.index_ends(new.tp)) == 1

    async def old_log(self, cluster: Cluster) -> tuple[ClusterNode, VirtualLog]:
        node = await cluster.node()
        log = await node.log()
        await log.append(make_entry("old"))
        await node.node.drain()
        return node, log

    async def test_with_nothing_but_a_handle(self, cluster: Cluster) -> None:
        log = await (await cluster.node()).log()
        new = await self.delete_and_create(cluster)
        with pytest.raises(UnknownTopic):
            await log.append(make_entry("late"))
        await self.check(cluster, log, new, committed=0)

    async def test_with_the_chain_in_their_cache(self, cluster: Cluster) -> None:
        log = await (await cluster.node()).log()
        await log.chain()
        new = await self.delete_and_create(cluster)
        with pytest.raises(UnknownTopic):
            await log.append(make_entry("late"))
        await self.check(cluster, log, new, committed=0)

    async def test_with_the_control_record_in_their_cache(self, cluster: Cluster) -> None:
        _, log = await self.old_log(cluster)
        new = await self.delete_and_create(cluster)
        with pytest.raises(UnknownTopic):
            await log.append(make_entry("late", stamp=Stamp(7, 0, 0)))
        await self.check(cluster, log, new, committed=1)

    @pytest.mark.parametrize("applied", [True, False])
    async def test_in_the_middle_of_an_upload(self, cluster: Cluster, applied: bool) -> None:
        node, log = await self.old_log(cluster)
        stall = node.faults.at("blob put", Stall(applied))
        append = asyncio.ensure_future(log.append(make_entry("late")))
        await stall.reached.wait()
        new = await self.delete_and_create(cluster)
        stall.let_go()
        with pytest.raises(UnknownTopic):
            await append
        await self.check(cluster, log, new, committed=1)

    @pytest.mark.parametrize("first", [True, False])
    async def test_in_the_middle_of_a_commit(self, cluster: Cluster, first: bool) -> None:
        node = await cluster.node()
        log = await node.log()
        if not first:
            await log.append(make_entry("old"))
        stall = node.faults.at(cluster.stores.commit_step, Stall())
        append = asyncio.ensure_future(log.append(make_entry("late")))
        await stall.reached.wait()
        new = await self.delete_and_create(cluster)
        stall.let_go()
        with pytest.raises(UnknownTopic):
            await append
        await self.check(cluster, log, new, committed=0 if first else 1)

    async def test_with_a_commit_that_lands_late(self, cluster: Cluster) -> None:
        node, log = await self.old_log(cluster)
        late = node.faults.at(cluster.stores.commit_step, Late())
        second_try = node.faults.at(cluster.stores.commit_step, Stall(), nth=2)
        append = asyncio.ensure_future(log.append(make_entry("late")))
        await second_try.reached.wait()
        new = await self.delete_and_create(cluster)
        try:
            await late.arrive()
        except CatenaError:
            pass
        second_try.let_go()
        with pytest.raises(UnknownTopic):
            await append
        await self.check(cluster, log, new, committed=1)

    async def test_with_a_commit_that_was_applied_unheard(self, cluster: Cluster) -> None:
        """It was in the log before the topic was deleted: an ack is the truth."""
        node, log = await self.old_log(cluster)
        node.faults.at(cluster.stores.commit_step, Fail(OutcomeUnknown("no answer"), applied=True))
        second_try = node.faults.at(cluster.stores.commit_step, Stall(), nth=2)
        append = asyncio.ensure_future(log.append(make_entry("in time")))
        await second_try.reached.wait()
        new = await self.delete_and_create(cluster)
        second_try.let_go()
        assert await append == 1
        await self.check(cluster, log, new, committed=2)

    @pytest.mark.parametrize(
        ("step", "nth"), [("put chain", 1), ("put control", 1), ("put handoff", 1), ("put chain", 2)]
    )
    @pytest.mark.parametrize("kind", ["memory", "diskless"])
    async def test_in_the_middle_of_a_reconfigure(self, cluster: Cluster, step: str, nth: int, kind: str) -> None:
        node = await cluster.node()
        log = await node.log()
        await log.append(make_entry("old", stamp=Stamp(7, 0, 0)))
        await node.node.drain()
        stall = node.faults.at(step, Stall(), nth)
        change = asyncio.ensure_future(log.reconfigure(kind))
        await stall.reached.wait()
        new = await self.delete_and_create(cluster)
        stall.let_go()
        with pytest.raises(UnknownTopic):
            await change
        await self.check(cluster, log, new, committed=1)

    async def test_in_a_link_in_memory(self, cluster: Cluster) -> None:
        _, log = await self.old_log(cluster)
        await log.reconfigure("memory")
        await log.append(make_entry("in memory"))
        new = await self.delete_and_create(cluster)
        with pytest.raises(UnknownTopic):
            await log.append(make_entry("late"))
        await self.check(cluster, log, new, committed=1)

    @pytest.mark.parametrize(
        "call",
        [
            lambda log: log.tail(),
            lambda log: log.start(),
            lambda log: log.trim(1),
            lambda log: log.seal(),
            lambda log: log.reconfigure("memory"),
            lambda log: log.find_time(0),
            lambda log: log.read(5, EVERYTHING),
            lambda log: log.wait_for_tail(1, 10),
        ],
    )
    async def test_with_any_other_call(self, cluster: Cluster, call: Callable[[VirtualLog], Awaitable[object]]) -> None:
        _, log = await self.old_log(cluster)
        new = await self.delete_and_create(cluster)
        with pytest.raises(UnknownTopic):
            await call(log)
        await self.check(cluster, log, new, committed=1)

    async def test_who_waits_for_more_is_woken(self, cluster: Cluster) -> None:
        _, log = await self.old_log(cluster)
        waiting = asyncio.ensure_future(log.wait_for_tail(1, 30))
        for _ in range(20):
            await asyncio.sleep(0)
        await self.delete_and_create(cluster)
        async with asyncio.timeout(15):
            with pytest.raises(UnknownTopic):
                await waiting

    async def test_producers_of_the_old_topic_are_not_known_to_the_new_one(self, cluster: Cluster) -> None:
        node, log = await self.old_log(cluster)
        for sequence in range(3):
            await log.append(make_entry("x", stamp=Stamp(7, 0, sequence)))
        await self.delete_and_create(cluster)
        new = await node.log()
        assert await new.append(make_entry("x", stamp=Stamp(7, 0, 3))) == 1
        with pytest.raises(OutOfOrderSequence):
            await new.append(make_entry("x", stamp=Stamp(7, 0, 0)))
