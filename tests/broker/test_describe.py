"""What lies behind a partition, as far as Kafka's tools ask for it."""

from __future__ import annotations

from catena.broker.describe import NOT_KNOWN
from catena.errors import StoreUnavailable
from catena.loglets.producers import EXPIRY_MS
from catena.testing.contracts.loglet import Stamp, make_entry
from catena.testing.faults import Fail
from catena.virtual_log.sizes import SAMPLED_RUNS
from catena.wire.codes import Code
from catena.wire.messages.describe_log_dirs import (
    DescribableLogDirTopic,
    DescribeLogDirsRequest,
    DescribeLogDirsResponse,
    DescribeLogDirsResult,
)
from catena.wire.messages.describe_producers import (
    DescribeProducersRequest,
    DescribeProducersResponse,
    PartitionResponse,
    TopicRequest,
)
from tests.broker.world import BrokerNode, World


class TestLogDirs:
    async def dir(self, node: BrokerNode, **topics: list[int]) -> DescribeLogDirsResult:
        asked = [DescribableLogDirTopic(topic=name, partitions=numbers) for name, numbers in topics.items()]
        answer = await node.ask(DescribeLogDirsRequest(topics=asked or None), DescribeLogDirsResponse)
        assert answer.error_code == Code.NONE
        (result,) = answer.results
        assert result.log_dir == "catena"
        return result

    async def sizes(self, node: BrokerNode, **topics: list[int]) -> dict[tuple[str, int], int]:
        result = await self.dir(node, **topics)
        assert (result.error_code, result.total_bytes, result.usable_bytes) == (Code.NONE, -1, -1)
        return {
            (topic.name, part.partition_index): part.partition_size
            for topic in result.topics
            for part in topic.partitions
        }

    async def test_a_small_partition_is_told_with_its_exact_size(self, world: World) -> None:
        node = await world.node()
        await node.node.topics.create("t", 2)
        await node.node.topics.create("u")
        await node.view.refresh()
        log = await node.node.log("t", 1)
        entries = [make_entry("x" * 1000), make_entry("a", "b", "c")]
        for entry in entries:
            await log.append(entry)
        await node.node.drain()
        size = sum(len(entry.data) for entry in entries)
        assert await self.sizes(node) == {("t", 0): 0, ("t", 1): size, ("u", 0): 0}
        assert await self.sizes(node, t=[1, 1, 7, -1], v=[0]) == {("t", 1): size}
        await log.trim(1)
        assert await self.sizes(node, t=[1]) == {("t", 1): len(entries[1].data)}

    async def test_a_large_one_is_estimated(self, world: World) -> None:
        node = await world.node()
        await node.node.topics.create("t")
        await node.view.refresh()
        log = await node.node.log("t", 0)
        entry = make_entry("x" * 100, "y")
        for _ in range(SAMPLED_RUNS + 50):
            await log.append(entry)
        await node.node.drain()
        assert await self.sizes(node) == {("t", 0): (SAMPLED_RUNS + 50) * len(entry.data)}

    async def test_what_is_in_the_memory_of_another_node_is_not_known(self, world: World) -> None:
        node = await world.node()
        await node.node.topics.create("t")
        await node.view.refresh()
        log = await node.node.log("t", 0)
        entry = make_entry("x" * 100)
        await log.append(entry)
        await log.reconfigure("memory")
        await log.append(entry)
        await node.node.drain()
        assert await self.sizes(node) == {("t", 0): 2 * len(entry.data)}
        await log.reconfigure("memory", {"medium": "another node's"})
        assert await self.sizes(node) == {("t", 0): NOT_KNOWN}

    async def test_each_partition_is_told_by_one_broker(self, world: World) -> None:
        nodes = [await world.node(), await world.node(), await world.node()]
        await world.together(*nodes)
        await nodes[0].node.topics.create("t", 30)
        for node in nodes:
            await node.view.refresh()
        told = [list(await self.sizes(node)) for node in nodes]
        assert all(told)
        assert sorted(each for some in told for each in some) == [("t", number) for number in range(30)]

    async def test_a_store_that_is_away_is_the_trouble_of_the_dir(self, world: World) -> None:
        node = await world.node()
        await node.node.topics.create("t")
        await node.view.refresh()
        node.faults.at("scan index", Fail(StoreUnavailable("away")))
        assert (await self.dir(node)).error_code == Code.NOT_ENOUGH_REPLICAS


class TestProducers:
    async def producers(self, node: BrokerNode, name: str = "t", number: int = 0) -> PartitionResponse:
        request = DescribeProducersRequest(topics=[TopicRequest(name=name, partition_indexes=[number])])
        (topic,) = (await node.ask(request, DescribeProducersResponse)).topics
        (part,) = topic.partitions
        assert (topic.name, part.partition_index) == (name, number)
        return part

    async def known(self, node: BrokerNode) -> list[tuple[int, int, int]]:
        """Id, epoch, last sequence number."""
        part = await self.producers(node)
        assert (part.error_code, part.error_message) == (Code.NONE, None)
        for each in part.active_producers:
            assert (each.coordinator_epoch, each.current_txn_start_offset) == (-1, -1)
        return [(each.producer_id, each.producer_epoch, each.last_sequence) for each in part.active_producers]

    async def test_those_that_have_written_are_listed_across_links(self, world: World) -> None:
        node, other = await world.node(), await world.node()
        await node.node.topics.create("t")
        log = await node.node.log("t", 0)
        assert await self.known(node) == []
        await log.append(make_entry("a", "b", stamp=Stamp(7, 1, 0)))
        await log.append(make_entry("c", stamp=Stamp(7, 1, 2)))
        await log.append(make_entry("d", stamp=Stamp(3, 0, 0)))
        await log.append(make_entry("nobody's"))
        for each in (node, other):
            assert await self.known(each) == [(3, 0, 0), (7, 1, 2)]
        await log.reconfigure("diskless")
        assert await self.known(other) == [(3, 0, 0), (7, 1, 2)]
        await log.append(make_entry("e", stamp=Stamp(3, 0, 1)))
        assert await self.known(other) == [(3, 0, 1), (7, 1, 2)]
        # What a link wrote down counts for nothing in a later one, which may know better.
        await log.reconfigure("memory")
        await log.append(make_entry("f", stamp=Stamp(3, 0, 2)))
        await log.reconfigure("diskless")
        assert await self.known(other) == [(3, 0, 2), (7, 1, 2)]

    async def test_the_time_is_that_of_the_last_write_and_the_silent_are_forgotten(self, world: World) -> None:
        node = await world.node()
        await node.node.topics.create("t")
        log = await node.node.log("t", 0)
        before = world.clock.now_ms()
        await log.append(make_entry("a", stamp=Stamp(7, 0, 0)))
        (producer,) = (await self.producers(node)).active_producers
        assert before <= producer.last_timestamp <= world.clock.now_ms()
        world.clock.leap(EXPIRY_MS / 1000)
        assert await self.known(node) == []

    async def test_what_cannot_be_told_is_told_so(self, world: World) -> None:
        node = await world.node()
        await node.node.topics.create("t", kind="memory")
        for name, number, code in (
            ("u", 0, Code.UNKNOWN_TOPIC_OR_PARTITION),
            ("t", 1, Code.UNKNOWN_TOPIC_OR_PARTITION),
            ("t", 0, Code.INVALID_REQUEST),
        ):
            part = await self.producers(node, name, number)
            assert part.error_code == code
            assert part.error_message
