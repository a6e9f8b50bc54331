"""Subscriptions of many members, resolved to topics."""

from __future__ import annotations

import pytest

from catena.groups.consumer_topics import Subscriptions
from tests.groups.consumer_world import topic_id, topics


def test_topics_of_all_members_are_joined_and_forgotten_with_their_last_member() -> None:
    subscriptions = Subscriptions(topics(a=1, b=2, c=3))
    subscriptions.add((("a", "none"), ""))
    subscriptions.add((("a",), "b|c"))
    subscriptions.add((("a",), "b|c"))
    assert set(subscriptions.topics()) == {"a", "b", "c"}
    subscriptions.remove((("a",), "b|c"))
    assert set(subscriptions.topics()) == {"a", "b", "c"}
    subscriptions.remove((("a",), "b|c"))
    assert set(subscriptions.topics()) == {"a"}
    assert subscriptions._patterns == {}


def test_new_topics_are_seen() -> None:
    subscriptions = Subscriptions(topics(a=1))
    subscriptions.add(((), "a.*"))
    assert subscriptions.topic_ids(((), "a.*")) == {topic_id("a")}
    subscriptions.set_topics(topics(a=1, ab=1))
    assert subscriptions.topic_ids(((), "a.*")) == {topic_id("a"), topic_id("ab")}


def test_expressions_are_checked() -> None:
    subscriptions = Subscriptions({})
    subscriptions.check_regex("a+")
    with pytest.raises(ValueError, match="nothing to repeat"):
        subscriptions.check_regex("+")
