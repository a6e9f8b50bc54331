"""Keys sort as the numbers in them do, and a partition's keys stay together."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from catena.meta import keys
from catena.meta.base import check_put
from catena.types import TopicId, TopicPartition

ID = TopicId("0123456789abcdef" * 2)
OFFSETS = st.integers(0, 2**63 - 1)
PARTITIONS = st.builds(TopicPartition, st.just("topic"), st.just(ID), st.integers(0, 10**6))


@given(PARTITIONS, OFFSETS, OFFSETS)
def test_index_keys_sort_by_offset(tp: TopicPartition, first: int, second: int) -> None:
    assert (keys.index(tp, first) < keys.index(tp, second)) == (first < second)


@given(PARTITIONS, OFFSETS)
def test_keys_of_a_partition_can_be_put_and_share_its_prefix_and_route(tp: TopicPartition, number: int) -> None:
    made = (
        keys.chain(tp),
        keys.control(tp),
        keys.handoff(tp, number),
        keys.index(tp, number),
        keys.producer(tp, number),
    )
    assert len(dict.fromkeys(map(keys.routing_key, made))) == 1
    for key in made:
        check_put(key, b"")
        assert keys.partition(tp) < key < keys.after(keys.partition(tp))


@given(PARTITIONS, PARTITIONS)
def test_partitions_do_not_overlap(one: TopicPartition, two: TopicPartition) -> None:
    if one != two:
        assert not keys.control(one).startswith(keys.partition(two))
        assert keys.routing_key(keys.control(one)) != keys.routing_key(keys.control(two))


def test_other_keys_route_by_themselves() -> None:
    for key in (keys.CLUSTER, keys.topic("partitions"), keys.deleted(ID)):
        assert keys.routing_key(key) == key
