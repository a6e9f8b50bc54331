from __future__ import annotations

from typing import Literal

import pytest
from hypothesis import given
from hypothesis import strategies as st

from catena.loadtest.routing import DOWN_S, Router, make_manifest, owners

NODES = st.lists(st.text("abcdefgh0123-", min_size=1, max_size=6), min_size=1, max_size=8, unique=True)
PLACES = st.lists(st.tuples(st.sampled_from(["orders", "clicks"]), st.integers(0, 50)), min_size=1, unique=True)
SELECTIONS: tuple[Literal["round_robin", "least_inflight"], ...] = ("round_robin", "least_inflight")


@given(st.integers(), st.text(), st.integers(0, 9999), NODES, st.integers(1, 10))
def test_owners_are_nodes_each_once_and_do_not_depend_on_their_order(
    seed: int, topic: str, partition: int, nodes: list[str], count: int
) -> None:
    found = owners(seed, topic, partition, nodes, count)
    assert len(found) == len(set(found)) == min(count, len(nodes))
    assert set(found) <= set(nodes)
    assert owners(seed, topic, partition, nodes[::-1], count) == found


@given(st.integers(), st.integers(0, 9999), NODES.filter(lambda nodes: len(nodes) > 1), st.integers(1, 4))
def test_a_node_that_goes_takes_only_its_own_place_with_it(
    seed: int, partition: int, nodes: list[str], count: int
) -> None:
    before = owners(seed, "t", partition, nodes, count)
    for gone in nodes:
        after = owners(seed, "t", partition, [node for node in nodes if node != gone], count)
        kept = [node for node in before if node != gone]
        assert list(after[: len(kept)]) == kept


def test_load_is_spread_and_the_seed_matters() -> None:
    nodes = [f"node-{number}" for number in range(5)]
    firsts = [owners(1, "t", partition, nodes, 1)[0] for partition in range(2_000)]
    assert all(300 <= firsts.count(node) <= 500 for node in nodes)
    others = [owners(2, "t", partition, nodes, 1)[0] for partition in range(2_000)]
    assert 200 <= sum(a == b for a, b in zip(firsts, others, strict=True)) <= 600


@given(
    st.integers(),
    PLACES,
    NODES,
    st.integers(1, 4),
    st.sampled_from(SELECTIONS),
    st.lists(st.tuples(st.integers(0, 7), st.sampled_from(["ask", "fail", "work", "later"])), max_size=60),
)
def test_whatever_fails_requests_stay_inside_the_owner_set(
    seed: int,
    places: list[tuple[str, int]],
    nodes: list[str],
    count: int,
    selection: Literal["round_robin", "least_inflight"],
    acts: list[tuple[int, str]],
) -> None:
    manifest = make_manifest(seed, places, nodes, count, selection)
    router = Router(manifest)
    now = 0.0
    down: dict[str, float] = {}
    for number, act in acts:
        node = nodes[number % len(nodes)]
        place = places[number % len(places)]
        if act == "fail":
            told = router.fails(node, "gone", now)
            assert (told is None) == (node in down)
            down[node] = now + DOWN_S
        elif act == "work":
            assert (router.works(node, now) is None) == (node not in down)
            down.pop(node, None)
        elif act == "later":
            now += DOWN_S / 2
        else:
            there = [each for each in router.owners(place) if down.get(each, now) <= now]
            chosen = router.choose(place, now)
            assert (chosen is None) == (not there)
            assert chosen is None or chosen in there


def test_round_robin_takes_turns_for_each_partition_by_itself() -> None:
    router = Router(make_manifest(1, [("t", 0), ("t", 1)], ["a", "b", "c"], 3, "round_robin"))
    first = [router.choose(("t", 0), 0.0) for _ in range(6)]
    assert first == [*router.owners(("t", 0))] * 2
    assert router.choose(("t", 1), 0.0) == router.owners(("t", 1))[0]


def test_nodes_with_roles_get_what_they_take_only() -> None:
    places = [("t", number) for number in range(40)]
    nodes = ["w0", "r0", "both", "w1"]
    manifest = make_manifest(1, places, nodes, 2, "round_robin", but_writing=["r0"], but_reading=["w0", "w1"])
    writing, reading = Router(manifest), Router(manifest, reads=True)
    assert {owner for place in places for owner in writing.owners(place)} == {"w0", "both", "w1"}
    assert {owner for place in places for owner in reading.owners(place)} == {"r0", "both"}
    assert {len(router.owners(place)) for place in places for router in (writing, reading)} == {2}
    same = make_manifest(1, places, nodes, 2, "round_robin")
    assert all(route.owners == route.readers for route in same.routes)


def test_least_inflight_goes_to_who_has_the_fewest() -> None:
    router = Router(make_manifest(1, [("t", 0)], ["a", "b"], 2, "least_inflight"))
    one = router.choose(("t", 0), 0.0)
    assert one is not None
    router.begin(one)
    other = router.choose(("t", 0), 0.0)
    assert other not in (one, None)
    router.end(one)
    assert router.choose(("t", 0), 0.0) == one


def test_a_remap_says_whom_it_concerns() -> None:
    places = [("t", number) for number in range(40)]
    router = Router(make_manifest(3, places, ["a", "b", "c"], 2, "round_robin"))
    owned = [place for place in places if "a" in router.owners(place)]
    first = router.fails("a", "refused", 0.0)
    assert first is not None
    assert (first.node, first.why, first.partitions, first.alone) == ("a", "refused", len(owned), 0)
    second = router.fails("b", "refused", 0.0)
    assert second is not None
    assert second.alone == sum({*router.owners(place)} == {"a", "b"} for place in places) > 0
    back = router.works("a", 0.1)
    assert back is not None
    assert back.why == ""
    assert router.works("a", 0.2) is None


@pytest.mark.parametrize("selection", SELECTIONS)
def test_one_who_refused_just_now_is_not_asked_again_for_the_same_request(
    selection: Literal["round_robin", "least_inflight"],
) -> None:
    router = Router(make_manifest(1, [("t", 0)], ["a", "b"], 2, selection))
    assert router.choose(("t", 0), 0.0, ["a"]) == "b"
    assert router.choose(("t", 0), 0.0, ["a", "b"]) is None
