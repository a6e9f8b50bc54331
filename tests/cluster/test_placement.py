"""All nodes agree on who leads what; a change moves what it must and no more; the load is even."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable

import pytest
from hypothesis import given
from hypothesis import strategies as st

from catena.cluster import placement
from catena.cluster.placement import NO_NODE, NodeId, Placement
from catena.types import TopicId

topic_ids = st.text("0123456789abcdef", min_size=32, max_size=32).map(TopicId)
partitions = st.integers(0, 100_000)
groups = st.text(max_size=50)
node_lists = st.lists(st.integers(0, 2**31 - 1), unique=True, min_size=1, max_size=12)

KEYS = 20_000
LEADERS = [0, 0, 1, 0, 2, 1, 2, 2, 2, 2, 1, 0]
COORDINATORS = [1, 1, 2, 1, 0, 1, 2, 1]


def leaders(nodes: list[NodeId]) -> list[NodeId]:
    """Of many topics with a few partitions each, and of one with many."""
    chosen, ids = Placement(nodes), [TopicId(f"{number:032x}") for number in range(KEYS // 8)]
    many = [chosen.leader(topic_id, partition) for topic_id in ids for partition in range(4)]
    return many + [chosen.leader(TopicId("f" * 32), partition) for partition in range(KEYS // 2)]


def coordinators(nodes: list[NodeId]) -> list[NodeId]:
    chosen = Placement(nodes)
    return [chosen.coordinator(f"group-{number}") for number in range(KEYS)]


@given(node_lists, topic_ids, partitions, groups)
def test_all_who_see_the_same_nodes_say_the_same(
    nodes: list[NodeId], topic_id: TopicId, partition: int, group: str
) -> None:
    one, two = Placement(nodes), Placement(nodes[::-1])
    assert one.leader(topic_id, partition) == two.leader(topic_id, partition) == one.leader(topic_id, partition)
    assert one.coordinator(group) == two.coordinator(group)
    assert one.leader(topic_id, partition) in nodes
    assert one.coordinator(group) in nodes


@given(node_lists, st.integers(0, 2**31 - 1), topic_ids, partitions, groups)
def test_only_what_the_new_node_takes_moves(
    nodes: list[NodeId], new: NodeId, topic_id: TopicId, partition: int, group: str
) -> None:
    """Read the other way round: only what a node had moves when it goes."""
    before, after = Placement(nodes), Placement(list(dict.fromkeys([*nodes, new])))
    assert after.leader(topic_id, partition) in (before.leader(topic_id, partition), new)
    assert after.coordinator(group) in (before.coordinator(group), new)


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
    """Nodes of two versions in one cluster must agree: change this only together with what they say to each other."""
    chosen = Placement([0, 1, 2])
    assert [chosen.leader(TopicId("0" * 32), partition) for partition in range(12)] == LEADERS
    assert [chosen.coordinator(f"group-{number}") for number in range(8)] == COORDINATORS


def test_where_nobody_is_there_is_no_leader() -> None:
    assert Placement([]).leader(TopicId("0" * 32), 3) == NO_NODE
    assert Placement([]).coordinator("group") == NO_NODE


def test_a_name_of_any_characters_has_a_coordinator() -> None:
    assert Placement([4]).coordinator("\udc80 \x00 \N{GREEK SMALL LETTER ALPHA}") == 4


def test_what_is_kept_is_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    expected = [Placement([0, 1, 2]).leader(TopicId("0" * 32), partition) for partition in range(100)]
    monkeypatch.setattr(placement, "MAX_KEPT", 3)
    chosen = Placement([0, 1, 2])
    assert [chosen.leader(TopicId("0" * 32), partition) for partition in range(100)] == expected
    assert len(chosen._leaders) <= 3
