"""What the members of a consumer group subscribe to, by name and by expression, and which topics that is.

Members with the same subscription are counted, not listed: a group of a thousand alike costs as much as one of one.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping
from typing import TypeAlias

from catena.groups.consumer_values import TopicInfo
from catena.groups.patterns import TopicPattern
from catena.types import TopicId

Subscription: TypeAlias = tuple[tuple[str, ...], str]
"""Names, and a regular expression or nothing."""


class Subscriptions:
    def __init__(self, topics: Mapping[str, TopicInfo]) -> None:
        self._topics = topics
        self._members: Counter[Subscription] = Counter()
        self._patterns: dict[str, TopicPattern] = {}
        self._resolved: dict[Subscription, dict[str, TopicInfo]] = {}

    def set_topics(self, topics: Mapping[str, TopicInfo]) -> None:
        self._topics = topics
        self._resolved.clear()

    def check_regex(self, regex: str) -> None:
        """ValueError, with a message for the client, when it can't be read."""
        if regex not in self._patterns:
            TopicPattern(regex)

    def add(self, subscription: Subscription) -> None:
        if subscription[1] and subscription[1] not in self._patterns:
            self._patterns[subscription[1]] = TopicPattern(subscription[1])
        self._members[subscription] += 1

    def remove(self, subscription: Subscription) -> None:
        self._members[subscription] -= 1
        if not self._members[subscription]:
            del self._members[subscription]
            self._resolved.pop(subscription, None)
            if all(regex != subscription[1] for _, regex in self._members):
                self._patterns.pop(subscription[1], None)

    def __iter__(self) -> Iterator[Subscription]:
        return iter(self._members)

    def topic_ids(self, subscription: Subscription) -> frozenset[TopicId]:
        return frozenset(info.topic_id for info in self._resolve(subscription).values())

    def topics(self) -> dict[str, TopicInfo]:
        """Every topic that exists and that somebody subscribes to."""
        found: dict[str, TopicInfo] = {}
        for subscription in self._members:
            found.update(self._resolve(subscription))
        return found

    def _resolve(self, subscription: Subscription) -> dict[str, TopicInfo]:
        resolved = self._resolved.get(subscription)
        if resolved is None:
            names, regex = subscription
            resolved = {name: info for name in names if (info := self._topics.get(name)) is not None}
            if regex:
                matches = self._patterns[regex].matches
                resolved.update({name: info for name, info in self._topics.items() if matches(name)})
            self._resolved[subscription] = resolved
        return resolved
