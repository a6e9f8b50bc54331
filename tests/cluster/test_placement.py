"""All nodes agree on who leads what; a change moves what it must and no more; the load is even."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable

import pytest
from hypothesis import given
from hypothesis import strategies as st

from catena.cluster import placement
from catena.cluster.placement import DEALT, NO_NODE, NodeId, PartitionOf, Placement
from catena.types import TopicId

topic_ids = st.text("0123456789abcdef", min_size=32, max_size=32).map(TopicId)
places = st.tuples(st.integers(0, 100_000), st.integers(1, 1_000)).map(lambda drawn: (drawn[0], sum(drawn)))
"""A partition, and how many there are."""
groups = st.text(max_size=50)
node_lists = st.lists(st.integers(0, 2**31 - 1), unique=True, min_size=1, max_size=12)

KEYS = 20_000
TOPIC = TopicId("0" * 32)
LEADERS = [0, 0, 1, 0, 2, 1, 2, 2, 2, 0, 1, 1]
COORDINATORS = [1, 1, 2, 1, 0, 1, 2, 1]


def leaders(nodes: list[NodeId]) -> list[NodeId]:
    """Of many topics with a few partitions each, and of one with many."""
    chosen, ids = Placement(nodes), [TopicId(f"{number:032x}") for number in range(KEYS // 8)]
    many = [leader for topic_id in ids for leader in of_topic(chosen, topic_id, 4)]
    return many + of_topic(chosen, TopicId("f" * 32), KEYS // 2)


def of_topic(chosen: Placement, topic_id: TopicId, partitions: int) -> list[NodeId]:
    return [chosen.leader(PartitionOf(topic_id, number, partitions)) for number in range(partitions)]


def coordinators(nodes: list[NodeId]) -> list[NodeId]:
    chosen = Placement(nodes)
    return [chosen.coordinator(f"group-{number}") for number in range(KEYS)]


@given(node_lists, topic_ids, places, groups)
def test_all_who_see_the_same_nodes_say_the_same(
    nodes: list[NodeId], topic_id: TopicId, place: tuple[int, int], group: str
) -> None:
    one, two = Placement(nodes), Placement(nodes[::-1])
    of = PartitionOf(topic_id, *place)
    assert one.leader(of) == two.leader(of) == one.leader(of)
    assert one.coordinator(group) == two.coordinator(group)
    assert one.leader(of) in nodes
    assert one.coordinator(group) in nodes


@given(node_lists, st.integers(0, 2**31 - 1), groups)
def test_only_the_groups_that_the_new_node_takes_move(nodes: list[NodeId], new: NodeId, group: str) -> None:
    """Read the other way round: only what a node had moves when it goes."""
    before, after = Placement(nodes), Placement(list(dict.fromkeys([*nodes, new])))
    assert after.coordinator(group) in (before.coordinator(group), new)


@given(node_lists, topic_ids, st.integers(1, 5 * DEALT))
def test_every_node_leads_as_many_partitions_of_a_topic(
    nodes: list[NodeId], topic_id: TopicId, partitions: int
) -> None:
    found = of_topic(Placement(nodes), topic_id, partitions)
    for first in range(0, partitions, DEALT):
        load = Counter(found[first : first + DEALT])
        assert max(load.values()) - min(load[node] for node in nodes) <= 1


@pytest.mark.parametrize(("partitions", "nodes"), [(3, 3), (8, 3), (12, 3), (12, 5), (50, 3), (50, 10), (200, 20)])
def test_few_partitions_move_that_need_not(partitions: int, nodes: int) -> None:
    moved = stayed = 0
    for number in range(200):
        before, after = Placement(range(nodes)), Placement(range(1, nodes))
        topic_id = TopicId(f"{number:032x}")
        for old, new in zip(*(of_topic(chosen, topic_id, partitions) for chosen in (before, after)), strict=True):
            if old != 0:
                moved, stayed = moved + (old != new), stayed + (old == new)
    assert moved / (moved + stayed) < 0.15


def test_more_partitions_of_a_topic_move_only_those_of_its_last_deal() -> None:
    chosen = Placement(range(5))
    before, after = of_topic(chosen, TOPIC, 3 * DEALT + 10), of_topic(chosen, TOPIC, 4 * DEALT)
    assert after[: 3 * DEALT] == before[: 3 * DEALT]


@pytest.mark.parametrize(("before", "after"), [(8, 16), (10, DEALT), (6, 7)])
def test_more_partitions_of_a_topic_move_few_that_were_there(before: int, after: int) -> None:
    chosen, topics = Placement(range(3)), [TopicId(f"{number:032x}") for number in range(200)]
    moved = sum(
        old != new
        for topic_id in topics
        for old, new in zip(of_topic(chosen, topic_id, before), of_topic(chosen, topic_id, after), strict=False)
    )
    assert moved / (before * len(topics)) < 0.25


@pytest.mark.parametrize("place", [leaders, coordinators])
@pytest.mark.parametrize("nodes", [[0, 1], [0, 1, 2], [7, 100, 2**31 - 1], list(range(10)), list(range(40, 60))])
def test_the_load_is_even(place: Callable[[list[NodeId]], list[NodeId]], nodes: list[NodeId]) -> None:
    load = Counter(place(nodes))
    share = KEYS / len(nodes)
    tolerance = 5 * share**0.5
    assert all(abs(load[node] - share) < tolerance for node in nodes), load


@pytest.mark.parametrize("place", [leaders, coordinators])
def test_what_a_node_leaves_behind_goes_to_all_the_others(place: Callable[[list[NodeId]], list[NodeId]]) -> None:
    before, after = place([0, 1, 2, 3]), place([0, 1, 3])
    heirs = Counter(new for old, new in zip(before, after, strict=True) if old == 2)
    share = heirs.total() / 3
    assert all(abs(heirs[node] - share) < 5 * share**0.5 for node in (0, 1, 3)), heirs


def test_it_is_the_same_in_every_version() -> None:
    """Where nodes of two versions do not agree they send clients to and fro: change it for a good reason."""
    chosen = Placement([0, 1, 2])
    assert of_topic(chosen, TOPIC, 12) == LEADERS
    assert [chosen.coordinator(f"group-{number}") for number in range(8)] == COORDINATORS


def test_where_nobody_is_there_is_no_leader() -> None:
    assert of_topic(Placement([]), TOPIC, 3) == [NO_NODE] * 3
    assert Placement([]).coordinator("group") == NO_NODE


def test_a_name_of_any_characters_has_a_coordinator() -> None:
    assert Placement([4]).coordinator("\udc80 \x00 \N{GREEK SMALL LETTER ALPHA}") == 4


def test_what_is_kept_is_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    expected = of_topic(Placement([0, 1, 2]), TOPIC, 10 * DEALT)
    monkeypatch.setattr(placement, "MAX_KEPT", 2 * DEALT)
    chosen = Placement([0, 1, 2])
    assert of_topic(chosen, TOPIC, 10 * DEALT) == expected
    assert sum(map(len, chosen._dealt.values())) <= 2 * DEALT
