"""What handlers have in common: find the log that a request names, and say what went wrong."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import NamedTuple, TypeVar

from catena.broker.base import OpenLog
from catena.broker.error_codes import code_of
from catena.errors import CatenaError, UnknownPartition, UnknownTopic
from catena.types import TopicId
from catena.virtual_log.log import VirtualLog
from catena.virtual_log.topic_view import TopicView
from catena.virtual_log.topics import TopicRecord
from catena.wire.codes import Code

R = TypeVar("R")


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


class Logs:
    """The logs of topics by their names, as this node sees them."""

    def __init__(self, view: TopicView, open_log: OpenLog) -> None:
        self._view = view
        self._open_log = open_log

    async def find(self, topic: str, partition: int) -> VirtualLog:
        record = await find_topic(self._view, topic, None, partition)
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


async def find_topic(view: TopicView, name: str, topic_id: str | None, partition: int) -> TopicRecord:
    """By id if there is one. If it lacks the partition the store is asked: another node may have added it.

    For the hot path: what is known costs a look into a dict. Whether the topic has the partition is for the caller.
    """
    if topic_id is None:
        topic = view.cached(name) or await view.get(name)
    else:
        topic = view.cached_by_id(TopicId(topic_id)) or await view.by_id(TopicId(topic_id))
    if partition < topic.partitions:
        return topic
    again = await view.read(topic.name)
    if topic_id is not None and again.topic_id != topic_id:
        raise UnknownTopic(topic.name)
    return again
