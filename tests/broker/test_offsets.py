"""Where a log starts and ends, what lies where, and where epochs ended."""

from __future__ import annotations

import pytest

from catena.broker.offsets import end_of_epoch
from catena.errors import StoreUnavailable
from catena.formats.record_batch import parse_header
from catena.formats.records import build_batch
from catena.loglets.base import Entry
from catena.testing.contracts.loglet import make_entry
from catena.testing.faults import Fail
from catena.virtual_log.chain import TIERED, Chain, Link
from catena.virtual_log.log import VirtualLog
from catena.wire.codes import Code
from catena.wire.messages.list_offsets import (
    ListOffsetsPartition,
    ListOffsetsPartitionResponse,
    ListOffsetsRequest,
    ListOffsetsResponse,
    ListOffsetsTopic,
)
from catena.wire.messages.offset_for_leader_epoch import (
    EpochEndOffset,
    OffsetForLeaderEpochRequest,
    OffsetForLeaderEpochResponse,
    OffsetForLeaderPartition,
    OffsetForLeaderTopic,
)
from tests.broker.world import BrokerNode, World

LATEST, EARLIEST, MAX_TIME, EARLIEST_LOCAL, TIERED_END, PENDING_UPLOAD = range(-1, -7, -1)


def timed(*times: int) -> Entry:
    data = build_batch([(None, b"", (), timestamp_ms) for timestamp_ms in times])
    return Entry(parse_header(data), data)


async def find(
    node: BrokerNode, time: int, epoch: int = -1, topic: str = "t", number: int = 0, version: int = 11
) -> ListOffsetsPartitionResponse:
    partition = ListOffsetsPartition(partition_index=number, current_leader_epoch=epoch, timestamp=time)
    request = ListOffsetsRequest(topics=[ListOffsetsTopic(name=topic, partitions=[partition])])
    (answered,) = (await node.ask(request, ListOffsetsResponse, version)).topics
    assert answered.name == topic
    (found,) = answered.partitions
    assert found.partition_index == number
    return found


async def place(node: BrokerNode, time: int) -> tuple[int, int, int]:
    """Offset, time, epoch."""
    found = await find(node, time)
    assert found.error_code == Code.NONE
    return found.offset, found.timestamp, found.leader_epoch


async def three_links(node: BrokerNode) -> VirtualLog:
    """Offsets 0 and 1 of epoch 1, 2 to 4 of epoch 2 and 5 and 6 of epoch 3."""
    await node.node.topics.create("t", 2)
    log = await node.node.log("t", 0)
    await log.append(timed(10, 20))
    await log.reconfigure("memory")
    await log.append(timed(15, 60, 30))
    await log.reconfigure("diskless")
    await log.append(timed(25, 50))
    return log


class TestListOffsets:
    async def test_places_and_times_are_found_on_every_node(self, world: World) -> None:
        nodes = [await world.node(), await world.node()]
        log = await three_links(nodes[0])
        for node in nodes:
            assert await place(node, LATEST) == (7, -1, 3)
            assert await place(node, EARLIEST) == await place(node, EARLIEST_LOCAL) == (0, -1, 1)
            assert await place(node, MAX_TIME) == (3, 60, 2)
            assert await place(node, TIERED_END) == await place(node, PENDING_UPLOAD) == (-1, -1, -1)
            assert await place(node, 0) == (0, 10, 1)
            assert await place(node, 11) == (1, 20, 1)
            assert await place(node, 21) == (3, 60, 2)
            assert await place(node, 61) == (-1, -1, -1)
        await log.trim(5)
        for node in nodes:
            assert await place(node, EARLIEST) == (5, -1, 3)
            assert await place(node, MAX_TIME) == (6, 50, 3)
            assert await place(node, 0) == (5, 25, 3)

    async def test_what_another_node_acked_is_below_the_latest(self, world: World) -> None:
        node, other = await world.node(), await world.node()
        await node.node.topics.create("t")
        log = await node.node.log("t", 0)
        for number in range(3):
            await log.append(make_entry("a"))
            assert (await place(other, LATEST))[0] == number + 1

    async def test_an_empty_log_starts_and_ends_at_0(self, world: World) -> None:
        node = await world.node()
        await node.node.topics.create("t")
        assert await place(node, LATEST) == await place(node, EARLIEST) == (0, -1, 1)
        assert await place(node, MAX_TIME) == await place(node, 0) == (-1, -1, -1)

    async def test_of_a_batch_that_is_trimmed_in_part_the_rest_counts(self, world: World) -> None:
        node = await world.node()
        await node.node.topics.create("t")
        log = await node.node.log("t", 0)
        await log.append(timed(90, 10, 20))
        await log.append(timed(15, 30))
        assert await place(node, MAX_TIME) == (0, 90, 1)
        await log.trim(1)
        assert await place(node, MAX_TIME) == (4, 30, 1)
        await log.append(timed(30, 5))
        assert await place(node, MAX_TIME) == (4, 30, 1)

    async def test_a_sealed_log_is_told_up_to_its_end(self, world: World) -> None:
        node = await world.node()
        log = await three_links(node)
        await log.seal()
        assert await place(node, LATEST) == (7, -1, 3)
        await log.trim(7)
        assert await place(node, EARLIEST) == (7, -1, 3)
        assert await place(node, MAX_TIME) == (-1, -1, -1)

    @pytest.mark.parametrize(
        ("time", "since"),
        [(LATEST, 1), (MAX_TIME, 7), (EARLIEST_LOCAL, 8), (TIERED_END, 9), (PENDING_UPLOAD, 11), (-7, 12)],
    )
    async def test_a_time_that_a_version_does_not_have_is_refused(self, world: World, time: int, since: int) -> None:
        node = await world.node()
        await node.node.topics.create("t")
        for version in range(1, 12):
            code = Code.NONE if version >= since else Code.UNSUPPORTED_VERSION
            assert (await find(node, time, version=version)).error_code == code

    async def test_an_epoch_is_judged_by_the_chain_as_it_is_now(self, world: World) -> None:
        node, other = await world.node(), await world.node()
        log = await three_links(node)
        for each in (node, other):
            for epoch, code in ((2, Code.FENCED_LEADER_EPOCH), (3, Code.NONE), (4, Code.UNKNOWN_LEADER_EPOCH)):
                found = await find(each, LATEST, epoch)
                assert found.error_code == code
                assert found.offset == (7 if code == Code.NONE else -1)
        await log.reconfigure("memory")
        assert (await find(other, LATEST, 4)).error_code == Code.NONE
        assert (await find(other, LATEST, 3)).error_code == Code.FENCED_LEADER_EPOCH

    async def test_what_is_not_there_or_stands_twice_is_told_so(self, world: World) -> None:
        node = await world.node()
        await node.node.topics.create("t", 2)
        for topic, number in (("u", 0), ("t", 2), ("t", -1)):
            assert (await find(node, LATEST, topic=topic, number=number)).error_code == Code.UNKNOWN_TOPIC_OR_PARTITION
        partitions = [ListOffsetsPartition(partition_index=number, timestamp=LATEST) for number in (0, 1, 0)]
        request = ListOffsetsRequest(topics=[ListOffsetsTopic(name="t", partitions=partitions)])
        (answered,) = (await node.ask(request, ListOffsetsResponse)).topics
        assert [each.error_code for each in answered.partitions] == [Code.INVALID_REQUEST, 0, Code.INVALID_REQUEST]

    async def test_one_partition_that_fails_leaves_the_others(self, world: World) -> None:
        node = await world.node()
        await node.node.topics.create("t", 3)
        node.faults.at("get chain", Fail(StoreUnavailable("away")), nth=2)
        partitions = [ListOffsetsPartition(partition_index=number, timestamp=LATEST) for number in range(3)]
        request = ListOffsetsRequest(topics=[ListOffsetsTopic(name="t", partitions=partitions)])
        (answered,) = (await node.ask(request, ListOffsetsResponse)).topics
        codes = [each.error_code for each in answered.partitions]
        assert sorted(codes) == [Code.NONE, Code.NONE, Code.NOT_ENOUGH_REPLICAS]

    async def test_a_topic_that_was_deleted_elsewhere_is_forgotten(self, world: World) -> None:
        node, other = await world.node(), await world.node()
        await other.node.topics.create("t")
        await node.view.read("t")
        await node.view.close()  # it hears of nothing any more
        await other.node.topics.delete("t")
        assert (await find(node, LATEST)).error_code == Code.UNKNOWN_TOPIC_OR_PARTITION
        assert node.view.cached("t") is None


class TestOffsetForLeaderEpoch:
    async def end(self, node: BrokerNode, epoch: int, current: int = -1, number: int = 0) -> EpochEndOffset:
        partition = OffsetForLeaderPartition(partition=number, current_leader_epoch=current, leader_epoch=epoch)
        request = OffsetForLeaderEpochRequest(topics=[OffsetForLeaderTopic(topic="t", partitions=[partition])])
        (answered,) = (await node.ask(request, OffsetForLeaderEpochResponse)).topics
        (found,) = answered.partitions
        assert (answered.topic, found.partition) == ("t", number)
        return found

    async def test_epochs_end_where_the_next_one_begins_on_every_node(self, world: World) -> None:
        nodes = [await world.node(), await world.node()]
        await three_links(nodes[0])
        for node in nodes:
            for epoch, expected in ((0, (0, 0)), (1, (1, 2)), (2, (2, 5)), (3, (3, 7)), (4, (-1, -1))):
                found = await self.end(node, epoch)
                assert (found.error_code, found.leader_epoch, found.end_offset) == (Code.NONE, *expected)

    async def test_the_current_epoch_must_be_the_right_one(self, world: World) -> None:
        node = await world.node()
        await three_links(node)
        for current, code in ((2, Code.FENCED_LEADER_EPOCH), (3, Code.NONE), (4, Code.UNKNOWN_LEADER_EPOCH)):
            found = await self.end(node, 1, current)
            assert (found.error_code, found.end_offset) == (code, 2 if code == Code.NONE else -1)
        assert (await self.end(node, 1, number=7)).error_code == Code.UNKNOWN_TOPIC_OR_PARTITION

    def test_epochs_that_the_chain_does_not_have(self) -> None:
        links = (
            Link(TIERED, 9, 0, 20),
            Link("diskless", 3, 20, 30),
            Link("memory", 6, 30, 40),
            Link("diskless", 8, 40),
        )
        chain = Chain(links=links, next_epoch=10, start=25)
        assert [end_of_epoch(chain, epoch) for epoch in range(1, 10)] == [
            (1, 25),
            (2, 25),
            (3, 30),
            (3, 30),
            (3, 30),
            (6, 40),
            (6, 40),
            (-1, -1),
            (-1, -1),
        ]
