"""What a fetch returns, how much of it, and what it waits for."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Iterable

import pytest

from catena.broker.base import Client
from catena.broker.fetch import Elsewhere, Fetch, Moved
from catena.broker.long_polls import LongPolls
from catena.cluster.placement import NO_NODE, PartitionOf
from catena.cluster.view import WRITE
from catena.errors import StoreUnavailable
from catena.formats.record_batch import split_batches
from catena.formats.records import iter_records
from catena.runtime import Tasks
from catena.testing.contracts.loglet import make_entry
from catena.testing.faults import Fail
from catena.wire.apis import APIS
from catena.wire.codes import Code
from catena.wire.messages.fetch import FetchPartition, FetchRequest, FetchResponse, FetchTopic, PartitionData
from catena.wire.requests import Request, response_frame
from tests.broker.world import BrokerNode, World

FETCH = APIS[1]
LONG_MS = 60_000


class Fetching:
    def __init__(self, node: BrokerNode, elsewhere: Elsewhere | None = None, moved: Moved | None = None) -> None:
        self.node = node
        self.tasks = Tasks("fetch")
        self.polls = LongPolls(node.node.clock, self.tasks)
        self.fetch = Fetch(node.view, node.node.open_log, self.polls, elsewhere=elsewhere, moved=moved)

    def request(
        self,
        offsets: dict[int, int],
        max_wait_ms: int = 0,
        min_bytes: int = 1,
        max_bytes: int = 1 << 30,
        partition_max_bytes: int = 1 << 20,
        epoch: int = -1,
        topic: str = "t",
    ) -> FetchRequest:
        partitions = [
            FetchPartition(
                partition=partition,
                fetch_offset=offset,
                partition_max_bytes=partition_max_bytes,
                current_leader_epoch=epoch,
            )
            for partition, offset in offsets.items()
        ]
        return FetchRequest(
            max_wait_ms=max_wait_ms,
            min_bytes=min_bytes,
            max_bytes=max_bytes,
            topics=[FetchTopic(topic=topic, partitions=partitions)],
        )

    async def begin(self, request: FetchRequest, version: int = 12) -> asyncio.Future[FetchResponse]:
        fetch = self.fetch.fetch(Request(FETCH, version, 1, None, request), Client("", "main"))
        return self.tasks.spawn("fetch", fetch)

    async def ask(self, request: FetchRequest, version: int = 12) -> list[PartitionData]:
        async with asyncio.timeout(30):
            answer = await (await self.begin(request, version))
        assert response_frame(FETCH, version, 1, answer)
        assert answer.session_id == 0
        return [part for topic in answer.responses for part in topic.partitions]

    async def append(self, *values: str, partition: int = 0, node: BrokerNode | None = None) -> None:
        log = await (node or self.node).node.log("t", partition)
        await log.append(make_entry(*values))


def values(part: PartitionData) -> list[tuple[int, str]]:
    """As a client reads them: offsets from the batches' headers."""
    data = b"".join(bytes(each) for each in part.records or ())
    return [
        (record.offset, (record.value or b"").decode())
        for header, batch in split_batches(data)
        for record in iter_records(batch, header.base_offset)
    ]


@pytest.fixture
async def fetching(world: World) -> AsyncIterator[Fetching]:
    fetching = Fetching(await world.node())
    await fetching.node.node.topics.create("t", 3)
    yield fetching
    await fetching.tasks.close()


class TestRead:
    async def test_whole_batches_from_the_one_that_holds_the_offset(self, fetching: Fetching) -> None:
        await fetching.append("a", "b", "c")
        await fetching.append("d")
        (part,) = await fetching.ask(fetching.request({0: 1}))
        assert values(part) == [(0, "a"), (1, "b"), (2, "c"), (3, "d")]
        assert (part.error_code, part.high_watermark, part.last_stable_offset, part.log_start_offset) == (0, 4, 4, 0)

    async def test_nothing_at_the_tail_and_an_error_beyond_it(self, fetching: Fetching) -> None:
        await fetching.append("a")
        at, beyond = (await fetching.ask(fetching.request({0: 1}))) + (await fetching.ask(fetching.request({0: 2})))
        assert (at.error_code, values(at), at.high_watermark) == (0, [], 1)
        assert beyond.error_code == Code.OFFSET_OUT_OF_RANGE

    async def test_below_a_trimmed_start(self, fetching: Fetching) -> None:
        await fetching.append("a")
        await fetching.append("b")
        await (await fetching.node.node.log("t", 0)).trim(1)
        below, at = (await fetching.ask(fetching.request({0: 0}))) + (await fetching.ask(fetching.request({0: 1})))
        assert below.error_code == Code.OFFSET_OUT_OF_RANGE
        assert (values(at), at.log_start_offset) == ([(1, "b")], 1)

    async def test_the_first_batch_is_sent_whatever_its_size(self, fetching: Fetching) -> None:
        await fetching.append("a" * 1000)
        await fetching.append("b" * 1000)
        await fetching.append("c" * 1000, partition=1)
        first, second = await fetching.ask(fetching.request({0: 0, 1: 0}, max_bytes=1))
        assert [offset for offset, _ in values(first)] == [0]
        assert values(second) == []
        (one,) = await fetching.ask(fetching.request({0: 0}, partition_max_bytes=1))
        assert [offset for offset, _ in values(one)] == [0]

    async def test_the_first_batch_is_sent_also_to_who_asks_for_nothing(self, fetching: Fetching) -> None:
        await fetching.append("a")
        (part,) = await fetching.ask(fetching.request({0: 0}, max_bytes=0))
        assert values(part) == [(0, "a")]

    async def test_little_is_sent_while_others_have_not_taken_much(self, fetching: Fetching) -> None:
        for _ in range(4):
            await fetching.append("a" * 600_000)
        fetching.fetch._budget.take(fetching.fetch._budget.left)
        (part,) = await fetching.ask(fetching.request({0: 0}, partition_max_bytes=1 << 30))
        assert [offset for offset, _ in values(part)] == [0]

    async def test_the_limit_is_for_all_partitions_together(self, fetching: Fetching) -> None:
        for partition in range(3):
            for _ in range(10):
                await fetching.append("a" * 1000, partition=partition)
        parts = await fetching.ask(fetching.request({0: 0, 1: 0, 2: 0}, max_bytes=15_000))
        assert [len(values(part)) for part in parts] == [4, 4, 4]

    async def test_by_topic_id(self, fetching: Fetching) -> None:
        await fetching.append("a")
        record = await fetching.node.node.topics.get("t")
        request = fetching.request({0: 0})
        request.topics[0].topic_id = record.topic_id
        (part,) = await fetching.ask(request, version=17)
        assert values(part) == [(0, "a")]
        request.topics[0].topic_id = "f" * 32
        (part,) = await fetching.ask(request, version=17)
        assert part.error_code == Code.UNKNOWN_TOPIC_ID

    async def test_unknown_topics_and_partitions(self, fetching: Fetching) -> None:
        (none,) = await fetching.ask(fetching.request({0: 0}, topic="none"))
        (high,) = await fetching.ask(fetching.request({3: 0}))
        assert none.error_code == high.error_code == Code.UNKNOWN_TOPIC_OR_PARTITION

    @pytest.mark.parametrize(("version", "code"), [(12, Code.UNKNOWN_TOPIC_OR_PARTITION), (17, Code.UNKNOWN_TOPIC_ID)])
    async def test_many_topics_that_are_not_there_are_not_asked_for_one_by_one(
        self, fetching: Fetching, version: int, code: Code
    ) -> None:
        await fetching.append("a")
        request = fetching.request({0: 0})
        request.topics[0].topic_id = (await fetching.node.node.topics.get("t")).topic_id
        missing = [
            FetchTopic(topic=f"none-{number}", topic_id=f"{number:032x}", partitions=[FetchPartition(partition=0)])
            for number in range(10_000)
        ]
        request.topics = [*missing, *request.topics]
        taken = fetching.node.faults.taken
        before = taken["get topic"] + taken["scan topic"]
        *unknown, known = await fetching.ask(request, version)
        assert {part.error_code for part in unknown} == {code}
        assert values(known) == [(0, "a")]
        assert taken["get topic"] + taken["scan topic"] - before < 50

    async def test_leader_epochs(self, fetching: Fetching, world: World) -> None:
        await fetching.append("a")
        log = await fetching.node.node.log("t", 0)
        before = (await log.chain()).last.epoch
        await (await (await world.node()).node.log("t", 0)).reconfigure("diskless")
        (fenced,) = await fetching.ask(fetching.request({0: 0}, epoch=before + 7))
        assert fenced.error_code == Code.UNKNOWN_LEADER_EPOCH
        now = (await log.chain()).last.epoch
        assert now > before
        (old,) = await fetching.ask(fetching.request({0: 0}, epoch=before))
        (fine,) = await fetching.ask(fetching.request({0: 0}, epoch=now))
        assert (old.error_code, fine.error_code) == (Code.FENCED_LEADER_EPOCH, 0)
        data = b"".join(bytes(each) for each in fine.records or ())
        assert [header.leader_epoch for header, _ in split_batches(data)] == [before]

    async def test_a_session_is_not_known(self, fetching: Fetching) -> None:
        request = fetching.request({0: 0})
        request.session_id = 5
        answer = await fetching.fetch.fetch(Request(FETCH, 12, 1, None, request), Client("", "main"))
        assert isinstance(answer, FetchResponse)
        assert answer.error_code == Code.FETCH_SESSION_ID_NOT_FOUND

    async def test_a_store_that_is_down(self, fetching: Fetching) -> None:
        fetching.node.faults.at("get chain", Fail(StoreUnavailable("down")))
        (part,) = await fetching.ask(fetching.request({0: 0}))
        assert part.error_code == Code.NOT_ENOUGH_REPLICAS


class TestWait:
    async def waiting(self, fetching: Fetching, request: FetchRequest) -> asyncio.Future[FetchResponse]:
        waiting = await fetching.begin(request)
        for _ in range(200):
            await asyncio.sleep(0.001)
            assert not waiting.done()
        return waiting

    @pytest.mark.parametrize("elsewhere", [False, True])
    async def test_news_of_any_partition_end_the_wait(self, fetching: Fetching, world: World, elsewhere: bool) -> None:
        waiting = await self.waiting(fetching, fetching.request({0: 0, 1: 0}, max_wait_ms=LONG_MS))
        await fetching.append("x", partition=1, node=await world.node() if elsewhere else None)
        async with asyncio.timeout(30):
            first, second = (await waiting).responses[0].partitions
        assert (values(first), values(second)) == ([], [(0, "x")])

    async def test_it_waits_for_as_many_bytes_as_it_asks_for(self, fetching: Fetching) -> None:
        waiting = await self.waiting(fetching, fetching.request({0: 0}, max_wait_ms=LONG_MS, min_bytes=3000))
        for number in range(4):
            assert not waiting.done()
            await fetching.append("x" * 1000)
            if number < 2:
                await asyncio.sleep(0.01)
        async with asyncio.timeout(30):
            (part,) = (await waiting).responses[0].partitions
        assert len(values(part)) >= 3

    async def test_when_the_time_is_over_it_looks_once_more(self, fetching: Fetching, world: World) -> None:
        (part,) = await fetching.ask(fetching.request({0: 0}, max_wait_ms=50))
        assert (part.error_code, values(part), part.high_watermark) == (0, [], 0)
        other = await world.node()
        await fetching.append("x", node=other)
        (part,) = await fetching.ask(fetching.request({0: 0}, max_wait_ms=0))
        assert values(part) == [(0, "x")]

    async def test_a_log_at_its_tail_is_not_forgotten_while_another_has_enough_each_time(
        self, fetching: Fetching, world: World
    ) -> None:
        """On a node that others write for: it is told of news only by who follows the log."""
        writer = await world.node()
        for _ in range(100):
            await fetching.append("x" * 1000, partition=0, node=writer)
        await fetching.append("0", partition=1, node=writer)
        at, found = {0: 0, 1: 0}, list[str]()
        for number in range(1, 4):
            async with asyncio.timeout(30):
                while len(found) < number:
                    assert at[0] < 100, "there is always enough in the other log"
                    request = fetching.request(at, max_wait_ms=LONG_MS, partition_max_bytes=1)
                    for part in await fetching.ask(request):
                        for offset, value in values(part):
                            at[part.partition_index] = offset + 1
                            found += [value] if part.partition_index == 1 else []
                    await asyncio.sleep(0.02)
            await fetching.append(f"{number}", partition=1, node=writer)
        assert found == ["0", "1", "2"]

    async def test_an_error_is_told_at_once(self, fetching: Fetching) -> None:
        first, second = await fetching.ask(fetching.request({0: 0, 1: 5}, max_wait_ms=LONG_MS))
        assert (first.error_code, second.error_code) == (0, Code.OFFSET_OUT_OF_RANGE)

    async def test_a_seal_does_not_end_the_wait_and_the_next_link_does(self, fetching: Fetching) -> None:
        waiting = await self.waiting(fetching, fetching.request({0: 0}, max_wait_ms=LONG_MS))
        log = await fetching.node.node.log("t", 0)
        await log.seal()
        await log.reconfigure("memory")
        await fetching.append("x")
        async with asyncio.timeout(30):
            (part,) = (await waiting).responses[0].partitions
        assert values(part) == [(0, "x")]

    async def test_a_deleted_topic_ends_the_wait(self, fetching: Fetching) -> None:
        waiting = await self.waiting(fetching, fetching.request({0: 0}, max_wait_ms=LONG_MS))
        await fetching.node.node.topics.delete("t")
        async with asyncio.timeout(30):
            (part,) = (await waiting).responses[0].partitions
        assert part.error_code == Code.UNKNOWN_TOPIC_OR_PARTITION

    async def test_a_node_that_ends_answers_at_once(self, fetching: Fetching) -> None:
        waiting = await self.waiting(fetching, fetching.request({0: 0}, max_wait_ms=LONG_MS))
        fetching.polls.end()
        async with asyncio.timeout(30):
            (part,) = (await waiting).responses[0].partitions
        assert (part.error_code, values(part)) == (0, [])
        assert not len(fetching.polls)

    async def test_who_is_gone_waits_no_more(self, fetching: Fetching) -> None:
        waiting = await self.waiting(fetching, fetching.request({0: 0}, max_wait_ms=LONG_MS))
        waiting.cancel()
        with pytest.raises(asyncio.CancelledError):
            await waiting
        assert not any(fetching.polls._tails._waiting.values())


SERVED = 1
"""An offset at which whoever asks is served here."""


class TestElsewhere:
    """A node that does not read."""

    @pytest.fixture
    async def writer(self, world: World) -> AsyncIterator[Fetching]:
        def reader(of: PartitionOf, offset: int, client: Client, rack: str) -> int | None:
            assert client.listener == "main"
            if offset == SERVED:
                return None
            assert of.partitions == 3
            return NO_NODE if of.partition == 2 else len(rack)

        fetching = Fetching(await world.node(roles=(WRITE,)), reader)
        await fetching.node.node.topics.create("t", 3)
        await fetching.append("x")
        yield fetching
        await fetching.tasks.close()

    @pytest.mark.parametrize("version", [11, 12])
    async def test_clients_are_sent_on_at_once(self, writer: Fetching, version: int) -> None:
        request = writer.request({0: 0, 1: 7}, max_wait_ms=LONG_MS)
        request.rack_id = "1234"
        for part in await writer.ask(request, version):
            assert (part.error_code, part.preferred_read_replica, values(part)) == (0, 4, [])

    async def test_those_that_can_not_be_sent_on_are_served(self, writer: Fetching) -> None:
        (part,) = await writer.ask(writer.request({0: 0}), 10)
        assert values(part) == [(0, "x")]

    async def test_those_that_came_back_are_served_unless_others_of_the_request_are_sent_on(
        self, writer: Fetching
    ) -> None:
        await writer.append("y")
        served, sent_on = await writer.ask(writer.request({0: SERVED, 1: 0}, max_wait_ms=LONG_MS))
        assert (values(served), served.preferred_read_replica, sent_on.preferred_read_replica) == ([], -1, 0)
        (served,) = await writer.ask(writer.request({0: SERVED}, max_wait_ms=LONG_MS))
        assert values(served) == [(1, "y")]

    async def test_where_nobody_reads_that_is_said(self, writer: Fetching) -> None:
        part, unknown = await writer.ask(writer.request({2: 0, 3: 0}, max_wait_ms=LONG_MS))
        assert (part.error_code, part.preferred_read_replica) == (Code.REPLICA_NOT_AVAILABLE, NO_NODE)
        assert unknown.error_code == Code.UNKNOWN_TOPIC_OR_PARTITION


async def test_who_is_told_that_leaders_have_moved_gets_the_rest_at_once(world: World) -> None:
    def moved(fetched: Iterable[PartitionOf], client: Client) -> list[bool]:
        assert client.listener == "main"
        return [each.partition == 1 for each in fetched]

    fetching = Fetching(await world.node(), moved=moved)
    await fetching.node.node.topics.create("t", 3)
    for partition in range(2):
        await fetching.append("x", partition=partition)
    others = fetching.request({0: 0, 1: 0, 2: 0}, max_wait_ms=LONG_MS, min_bytes=1 << 20)
    served, told, empty = await fetching.ask(others)
    assert (served.error_code, values(served)) == (0, [(0, "x")])
    assert (told.error_code, values(told)) == (Code.NOT_LEADER_OR_FOLLOWER, [])
    assert (empty.error_code, values(empty)) == (0, [])
    await fetching.tasks.close()
