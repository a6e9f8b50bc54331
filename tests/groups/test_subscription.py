"""Reading a consumer's subscription: right bytes, cut bytes, any bytes."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from catena.groups.subscription import subscribed_topics
from tests.groups.classic_world import subscription


def test_topics_are_read_whatever_follows_them() -> None:
    assert subscribed_topics(subscription("a", "bc", tail=b"user data")) == frozenset({"a", "bc"})
    assert subscribed_topics(subscription()) == frozenset()


@given(st.integers(0, 11))
def test_cut_bytes_are_no_subscription(length: int) -> None:
    assert subscribed_topics(subscription("a", "bc")[:length]) is None


def test_a_million_topics_in_six_bytes_are_no_subscription() -> None:
    assert subscribed_topics(b"\x00\x00\x00\x0f\x42\x40") is None
    assert subscribed_topics(b"\x00\x00\xff\xff\xff\xff") is None


def test_names_that_are_not_utf8_are_no_subscription() -> None:
    assert subscribed_topics(b"\x00\x00\x00\x00\x00\x01\x00\x01\xff") is None


@given(st.binary(max_size=40))
def test_any_bytes_are_read_without_an_error(data: bytes) -> None:
    subscribed_topics(data)
