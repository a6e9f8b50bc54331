"""Rows go where Kafka's clients would send them."""

from __future__ import annotations

import random

import pyarrow as pa
import pytest

from catena.cli.partitioning import murmur2 as murmur2_of_one
from catena.cli.partitioning import partition_of
from catena.columns.partitioning import Routed, join, murmur2, route
from catena.errors import InvalidBatch, UnknownPartition, UnknownTopic

JAVA = {
    b"21": -973932308,
    b"foobar": -790332482,
    b"a-little-bit-long-string": -985981536,
    b"a-little-bit-longer-string": -1486304829,
    b"lkjh234lh9fiuh90y23oiuhsafujhadof229phr9h19h89h8": -58897971,
    b"abc": 479470107,
}
"""From the tests of Kafka's Java client."""


def keys_of(*keys: bytes | None) -> pa.Array:
    return pa.array(keys, pa.large_binary())


def test_the_hash_is_that_of_the_java_client() -> None:
    assert [int(each) for each in murmur2(keys_of(*JAVA))] == [each & 0xFFFFFFFF for each in JAVA.values()]


def test_keys_of_all_lengths_at_once_are_hashed_as_one_by_one() -> None:
    chance = random.Random(7)
    keys = [chance.randbytes(size) for size in (*range(70), 255, 256, 257, 258, 259, 3000, 0)]
    chance.shuffle(keys)
    assert murmur2(keys_of(*keys)).tolist() == [murmur2_of_one(key) for key in keys]
    assert murmur2(keys_of(*keys).slice(5, 20)).tolist() == [murmur2_of_one(key) for key in keys[5:25]]
    assert murmur2(keys_of()).tolist() == []


def routed(rows: dict[str, pa.Array], topic: str | None = "t", sticky: int = 0, count: int = 3) -> list[Routed]:
    def partitions(name: str) -> int:
        if name == "missing":
            raise UnknownTopic(name)
        return count

    return list(route(pa.RecordBatch.from_pydict(rows), topic, partitions, sticky))


def shown(found: list[Routed]) -> dict[tuple[str, int], list[str]]:
    return {(each.topic, each.partition): each.rows.column("value").to_pylist() for each in found}


def test_rows_stay_in_order_within_their_partitions() -> None:
    keys = [f"{number}" for number in range(100)]
    found = shown(routed({"key": pa.array(keys), "value": pa.array(keys)}))
    expected: dict[tuple[str, int], list[str]] = {}
    for key in keys:
        expected.setdefault(("t", partition_of(key.encode(), 3)), []).append(key)
    assert found == expected


def test_rows_without_a_key_stick_together() -> None:
    values = pa.array(["a", "b", "c"])
    for sticky in range(5):
        assert shown(routed({"value": values}, sticky=sticky)) == {("t", sticky % 3): ["a", "b", "c"]}
    nulls = pa.array([None, "21", None])
    assert shown(routed({"key": nulls, "value": values}, sticky=1)) == {
        ("t", 1): ["a", "c"],
        ("t", partition_of(b"21", 3)): ["b"],
    }


def test_a_column_names_partitions_and_leaves_others_to_the_key() -> None:
    rows = {
        "key": pa.array(["21", "21", "21"]),
        "value": pa.array(["a", "b", "c"]),
        "partition": pa.array([2, None, 0], pa.int32()),
    }
    keyed = partition_of(b"21", 3)
    expected: dict[tuple[str, int], list[str]] = {}
    for number, value in ((2, "a"), (keyed, "b"), (0, "c")):
        expected.setdefault(("t", number), []).append(value)
    assert shown(routed(rows)) == expected
    for wrong in (3, -1):
        rows["partition"] = pa.array([0, wrong, 1], pa.int32())
        with pytest.raises(UnknownPartition, match=f"partitions 0 to 2, not {wrong}"):
            routed(rows)


def test_a_column_names_topics() -> None:
    rows = {"value": pa.array(["a", "b", "c"]), "topic": pa.array(["x", "y", "x"])}
    assert shown(routed(rows, topic=None)) == {("x", 0): ["a", "c"], ("y", 0): ["b"]}
    assert shown(routed(rows)) == {("t", 0): ["a", "b", "c"]}
    with pytest.raises(UnknownTopic):
        routed({**rows, "topic": pa.array(["x", "missing", "x"])}, topic=None)
    with pytest.raises(InvalidBatch, match="row 1: column topic is null, and there is no option topic"):
        routed({**rows, "topic": pa.array(["x", None, "x"])}, topic=None)


def test_no_rows_go_nowhere() -> None:
    assert routed({"value": pa.array([], pa.string())}) == []


def test_rows_are_joined() -> None:
    one = pa.RecordBatch.from_pydict({"value": ["a"]})
    assert join([one, one]).column("value").to_pylist() == ["a", "a"]
