"""What handlers have in common: find the topic and the log that a request names, and say what went wrong."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from contextlib import suppress
from typing import NamedTuple, TypeVar

from catena.broker.base import OpenLog, TopicDefaults
from catena.broker.error_codes import code_of
from catena.errors import CatenaError, TopicExists, UnknownPartition, UnknownTopic
from catena.types import TopicId
from catena.virtual_log.log import VirtualLog
from catena.virtual_log.topic_view import TopicView
from catena.virtual_log.topics import TopicRecord, Topics, check_name
from catena.wire.codes import Code

R = TypeVar("R")

READS_MAX = 32
"""Topics that are looked up in the store one by one, for one request."""


class Refused(Exception):
    """One item of a request can't be done, for a reason that only Kafka's protocol knows."""

    def __init__(self, code: Code, message: str) -> None:
        super().__init__(message)
        self.code = code


class Fault(NamedTuple):
    code: Code
    message: str


def fault_of(error: Refused | CatenaError) -> Fault:
    return Fault(error.code if isinstance(error, Refused) else code_of(error), str(error))


class _Listed(NamedTuple):
    by_name: Mapping[str, TopicRecord]
    by_id: Mapping[str, TopicRecord]


class TopicLookup:
    """The topics that one request names; made for it, and gone with it.

    What is known here costs a look into a dict. What is not, the store is asked for before it is called unknown: a few
    one by one; but a request may name 100,000 that are not there, so beyond a few all topics are listed, once. The list
    begins after the request came in, and so it decides about all others that the request names.
    """

    def __init__(self, view: TopicView) -> None:
        self._view = view
        self._reads = 0
        self._listed: _Listed | CatenaError | None = None

    async def find(self, name: str, topic_id: str | None = None, partition: int = 0) -> TopicRecord:
        """By id if there is one. If it lacks the partition the store is asked: another node may have added it.

        Whether the topic has the partition then is for the caller. Raises UnknownTopic, InvalidTopic.
        """
        known = self._view.cached(name) if topic_id is None else self._view.cached_by_id(TopicId(topic_id))
        if known is not None and partition < known.partitions:
            return known
        if topic_id is not None:
            name = "" if known is None else known.name
        if name and self._listed is None and self._reads < READS_MAX:
            self._reads += 1
            found = await self._view.read(name)
        else:
            found = await self._find_listed(name, topic_id)
        if topic_id is not None and found.topic_id != topic_id:
            raise UnknownTopic(found.name)
        return found

    async def find_or_create(
        self, name: str, topics: Topics, defaults: TopicDefaults, partition: int = 0
    ) -> TopicRecord:
        """As `find` by name; but a topic that is not there is made, if the defaults say so.

        It is told as it is, at once: to some of Kafka's clients a leader that is not there yet is the end.
        """
        try:
            return await self.find(name, None, partition)
        except UnknownTopic:
            if not defaults.auto_create:
                raise
        with suppress(TopicExists):
            await topics.create(name, defaults.partitions)
        return await self._view.read(name)

    async def _find_listed(self, name: str, topic_id: str | None) -> TopicRecord:
        if topic_id is None:
            check_name(name)
        if self._listed is None:
            self._listed = await self._list()
        if isinstance(self._listed, CatenaError):
            # Raised as often as there are topics, and each time it would grow longer.
            raise self._listed.with_traceback(None)
        found = self._listed.by_name.get(name) if topic_id is None else self._listed.by_id.get(topic_id)
        if found is None:
            raise UnknownTopic(name or topic_id or "")
        return found

    async def _list(self) -> _Listed | CatenaError:
        try:
            await self._view.refresh()
        except CatenaError as error:
            return error
        topics = self._view.all()
        return _Listed({topic.name: topic for topic in topics}, {topic.topic_id: topic for topic in topics})


class Logs:
    """The logs of the topics that one request names, as this node sees them; made for it, and gone with it."""

    def __init__(self, view: TopicView, open_log: OpenLog) -> None:
        self._view = view
        self.topics = TopicLookup(view)
        self._open_log = open_log

    async def find(self, topic: str, partition: int) -> VirtualLog:
        record = await self.topics.find(topic, None, partition)
        if not 0 <= partition < record.partitions:
            raise UnknownPartition(topic, partition, record.partitions)
        return self._open_log(record, partition)

    async def ask(self, topic: str, partition: int, question: Callable[[VirtualLog], Awaitable[R]]) -> R:
        """What the log says; if it says that its topic was deleted, the view hears of it."""
        try:
            return await question(await self.find(topic, partition))
        except UnknownTopic:
            self._view.forget(topic)
            raise
