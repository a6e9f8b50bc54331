"""Offsets of a stream survive the checkpoint; equal ones have equal texts."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from catena.errors import Corrupt, StoreRefused
from catena.source.offsets import StreamOffsets, TopicOffsets, decode, encode
from catena.types import TopicId

numbers = st.dictionaries(st.integers(0, 200), st.integers(0, 2**63 - 1), max_size=5)
topics = st.builds(TopicOffsets, st.text("0123456789abcdef", min_size=32, max_size=32).map(TopicId), numbers)
some_offsets = st.builds(StreamOffsets, st.dictionaries(st.text("abc.-", min_size=1, max_size=5), topics, max_size=5))


def text(offsets: StreamOffsets) -> str:
    return json.dumps(encode(offsets))


@given(some_offsets)
def test_they_come_back_from_json(offsets: StreamOffsets) -> None:
    assert decode(json.loads(text(offsets))) == offsets


@given(some_offsets, st.randoms())
def test_equal_ones_have_one_text(offsets: StreamOffsets, random: Any) -> None:
    names = list(offsets.topics)
    random.shuffle(names)
    shuffled: dict[str, TopicOffsets] = {}
    for name in names:
        numbers = list(offsets.topics[name].partitions.items())
        random.shuffle(numbers)
        shuffled[name] = TopicOffsets(offsets.topics[name].id, dict(numbers))
    assert text(StreamOffsets(shuffled)) == text(offsets)


def test_the_text() -> None:
    offsets = StreamOffsets({"orders": TopicOffsets(TopicId("aa"), {10: 7, 2: 123})})
    assert text(offsets) == '{"version": 1, "topics": {"orders": {"id": "aa", "partitions": {"2": 123, "10": 7}}}}'


def test_another_topic_of_the_same_name_was_not_read() -> None:
    offsets = StreamOffsets({"orders": TopicOffsets(TopicId("aa"), {0: 5})})
    assert offsets.find("orders", TopicId("aa"), 0) == 5
    assert offsets.find("orders", TopicId("aa"), 1) is None
    assert offsets.find("orders", TopicId("bb"), 0) is None
    assert offsets.find("others", TopicId("aa"), 0) is None


def test_a_newer_version_is_refused() -> None:
    with pytest.raises(StoreRefused, match="version 2, and this version of Catena knows up to 1"):
        decode({"version": 2, "topics": []})


@pytest.mark.parametrize(
    "stored",
    [
        {},
        {"version": "1", "topics": {}},
        {"version": 1},
        {"version": 1, "topics": {"orders": {"partitions": {}}}},
        {"version": 1, "topics": {"orders": {"id": "aa", "partitions": {"x": 1}}}},
        {"version": 1, "topics": {"orders": {"id": "aa", "partitions": {"0": -1}}}},
        {"version": 1, "topics": {"orders": {"id": "aa", "partitions": {"0": "1"}}}},
        {"orders": {"0": 1}},
    ],
)
def test_what_is_no_offset_of_ours(stored: dict[str, Any]) -> None:
    with pytest.raises(Corrupt, match="the checkpoint's offsets can't be read"):
        decode(stored)
