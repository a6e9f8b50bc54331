"""More partitions and other configs: of a topic that exists, made once, whoever else changes it meanwhile."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Mapping

import pytest

from catena.errors import (
    CatenaError,
    ConfigError,
    InvalidTopic,
    OutcomeUnknown,
    StoreUnavailable,
    UnknownPartition,
    UnknownTopic,
)
from catena.testing.contracts.loglet import make_entry
from catena.testing.faults import Fail, Late, Stall
from catena.virtual_log.topics import MAX_PARTITIONS, TopicRecord, Topics
from tests.virtual_log.cluster import Cluster, ClusterNode, read_all

Change = Callable[[Topics], Awaitable[TopicRecord]]

CHANGES: dict[str, Change] = {
    "add partitions": lambda topics: topics.add_partitions("orders", 5),
    "alter configs": lambda topics: topics.alter_configs("orders", {"retention.ms": "2000", "flush.ms": None}),
}


@pytest.fixture
async def node(cluster: Cluster) -> ClusterNode:
    node = await cluster.node()
    await node.node.topics.create("orders", 3, configs={"retention.ms": "1000", "flush.ms": "5"})
    node.faults.taken.clear()
    return node


async def check(node: ClusterNode, change: str, changed: TopicRecord) -> None:
    topic = await node.node.topics.get("orders")
    assert topic == changed
    if change == "add partitions":
        assert (topic.partitions, topic.configs) == (5, {"retention.ms": "1000", "flush.ms": "5"})
    else:
        assert (topic.partitions, topic.configs) == (3, {"retention.ms": "2000"})


@pytest.mark.parametrize("change", CHANGES)
async def test_all_nodes_see_it(cluster: Cluster, node: ClusterNode, change: str) -> None:
    before = await node.node.topics.get("orders")
    changed = await CHANGES[change](node.node.topics)
    await check(await cluster.node(), change, changed)
    assert (changed.topic_id, changed.created_at_ms) == (before.topic_id, before.created_at_ms)


async def test_new_partitions_take_records_and_old_ones_keep_theirs(node: ClusterNode) -> None:
    old = await node.log(2, "orders")
    await old.append(make_entry("old"))
    with pytest.raises(UnknownPartition):
        await node.log(4, "orders")
    await node.node.topics.add_partitions("orders", 5)
    assert await (await node.log(4, "orders")).append(make_entry("new")) == 0
    assert await read_all(await node.log(2, "orders")) == ["old"]


@pytest.mark.parametrize(
    ("total", "reason"),
    [
        (3, "already has 3 partitions"),
        (2, "currently has 3 partitions, which is more than the requested 2"),
        (0, "1 to"),
        (MAX_PARTITIONS + 1, "1 to"),
    ],
)
async def test_a_topic_only_grows(node: ClusterNode, total: int, reason: str) -> None:
    with pytest.raises(InvalidTopic, match=reason):
        await node.node.topics.add_partitions("orders", total)
    assert (await node.node.topics.get("orders")).partitions == 3


async def test_configs_that_cannot_be_are_refused_as_a_whole(node: ClusterNode) -> None:
    topics = node.node.topics
    with pytest.raises(ConfigError, match=r"segment\.ms"):
        await topics.alter_configs("orders", {"retention.ms": "7", "segment.ms": "never"})
    with pytest.raises(ConfigError, match="'nothing'"):
        await topics.alter_configs("orders", {"retention.ms": "7", "nothing": None})
    with pytest.raises(ConfigError, match=r"diskless\.enable"):
        await topics.create("other", configs={"diskless.enable": "false"})
    assert (await topics.get("orders")).configs["retention.ms"] == "1000"
    assert node.faults.taken["put topic"] == 0


async def test_configs_that_are_so_already_are_not_written(node: ClusterNode) -> None:
    changed = await node.node.topics.alter_configs("orders", {"retention.ms": "1000", "segment.ms": None})
    assert changed == await node.node.topics.get("orders")
    assert node.faults.taken["put topic"] == 0


@pytest.mark.parametrize("change", CHANGES)
async def test_a_topic_that_is_not_there_cannot_be_changed(node: ClusterNode, change: str) -> None:
    await node.node.topics.delete("orders")
    with pytest.raises(UnknownTopic):
        await CHANGES[change](node.node.topics)


async def test_another_topic_of_that_name_is_left_alone(node: ClusterNode) -> None:
    topics = node.node.topics
    old = await topics.get("orders")
    await topics.delete("orders")
    new = await topics.create("orders", 3)
    with pytest.raises(UnknownTopic):
        await topics.add_partitions("orders", 5, old.topic_id)
    with pytest.raises(UnknownTopic):
        await topics.alter_configs("orders", {"flush.ms": "1"}, old.topic_id)
    assert await topics.get("orders") == new
    assert (await topics.add_partitions("orders", 5, new.topic_id)).partitions == 5


@pytest.mark.parametrize("change", CHANGES)
async def test_nor_if_it_gets_the_name_in_the_middle(cluster: Cluster, node: ClusterNode, change: str) -> None:
    other = await cluster.node()
    stall = node.faults.at("put topic", Stall())
    changing = asyncio.ensure_future(CHANGES[change](node.node.topics))
    await stall.reached.wait()
    await other.node.topics.delete("orders")
    new = await other.node.topics.create("orders", 3)
    stall.let_go()
    with pytest.raises(UnknownTopic):
        await changing
    assert await other.node.topics.get("orders") == new


@pytest.mark.parametrize("change", CHANGES)
@pytest.mark.parametrize("applied", [True, False])
async def test_one_without_an_answer_is_settled(node: ClusterNode, change: str, applied: bool) -> None:
    node.faults.at("put topic", Fail(OutcomeUnknown("no answer"), applied))
    await check(node, change, await CHANGES[change](node.node.topics))


@pytest.mark.parametrize("change", CHANGES)
@pytest.mark.parametrize("applied", [True, False])
async def test_also_if_others_change_it_meanwhile(
    cluster: Cluster, node: ClusterNode, change: str, applied: bool
) -> None:
    other = await cluster.node()
    node.faults.at("put topic", Fail(OutcomeUnknown("no answer"), applied))
    second_try = node.faults.at("put topic", Stall(), nth=2)
    changing = asyncio.ensure_future(CHANGES[change](node.node.topics))
    await second_try.reached.wait()
    await other.node.topics.alter_configs("orders", {"segment.ms": "9"})
    second_try.let_go()
    changed = await changing
    assert changed == await node.node.topics.get("orders")
    assert changed.configs.pop("segment.ms") == "9"
    await check_fields(changed, change)


async def check_fields(topic: TopicRecord, change: str) -> None:
    expected = (5, "1000") if change == "add partitions" else (3, "2000")
    assert (topic.partitions, topic.configs["retention.ms"]) == expected


@pytest.mark.parametrize("change", CHANGES)
async def test_one_that_lands_late_changes_nothing_any_more(node: ClusterNode, change: str) -> None:
    late = node.faults.at("put topic", Late())
    await CHANGES[change](node.node.topics)
    after = await node.node.topics.alter_configs("orders", {"retention.ms": "3000"})
    with pytest.raises(CatenaError):
        await late.arrive()
    assert await node.node.topics.get("orders") == after


@pytest.mark.parametrize("change", CHANGES)
async def test_a_store_that_goes_away_leaves_no_doubt_unsaid(node: ClusterNode, change: str) -> None:
    node.faults.at("put topic", Fail(StoreUnavailable("down")))
    with pytest.raises(StoreUnavailable):
        await CHANGES[change](node.node.topics)
    node.faults.at("put topic", Fail(OutcomeUnknown("no answer")))
    node.faults.at("put topic", Fail(StoreUnavailable("down")), nth=2)
    with pytest.raises(OutcomeUnknown, match="orders"):
        await CHANGES[change](node.node.topics)


async def test_many_change_at_once_and_none_is_lost(cluster: Cluster, node: ClusterNode) -> None:
    nodes = [await cluster.node() for _ in range(4)]
    names = ["segment.ms", "segment.bytes", "flush.ms", "retention.bytes"]
    await asyncio.gather(
        *(each.node.topics.alter_configs("orders", {name: "77"}) for each, name in zip(nodes, names, strict=True)),
        node.node.topics.add_partitions("orders", 9),
    )
    topic = await node.node.topics.get("orders")
    assert topic.partitions == 9
    assert [topic.configs[name] for name in names] == ["77"] * 4


async def test_a_change_that_depends_on_what_is_set_is_made_of_what_is_set_now(
    cluster: Cluster, node: ClusterNode
) -> None:
    nodes = [node, *[await cluster.node() for _ in range(4)]]

    def longer(configs: Mapping[str, str]) -> dict[str, str | None]:
        return {"retention.ms": str(int(configs["retention.ms"]) + 1)}

    await asyncio.gather(*(each.node.topics.alter_configs("orders", longer) for each in nodes))
    topic = await node.node.topics.get("orders")
    assert topic.configs["retention.ms"] == "1005"
    with pytest.raises(ConfigError, match="'nothing'"):
        await node.node.topics.alter_configs("orders", lambda _configs: {"nothing": "1"})
    assert await node.node.topics.get("orders") == topic


async def test_a_delete_and_a_change_do_not_mix(cluster: Cluster, node: ClusterNode) -> None:
    """A partition that was added just before the delete is deleted with the others."""
    other = await cluster.node()
    stall = other.faults.at("put topic", Stall())
    deleting = asyncio.ensure_future(other.node.topics.delete("orders"))
    await stall.reached.wait()
    await node.node.topics.add_partitions("orders", 4)
    log = await node.log(3, "orders")
    await log.append(make_entry("old"))
    stall.let_go()
    await deleting
    with pytest.raises(UnknownTopic):
        await log.append(make_entry("late"))
