"""What a handler is given, and what it may answer."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Annotated, NamedTuple, TypeAlias

import msgspec

from catena.virtual_log.log import VirtualLog
from catena.virtual_log.topics import TopicRecord
from catena.wire.requests import Request
from catena.wire.schema import Message


class Client(NamedTuple):
    """Who asks, and through which listener: it is told of the addresses that this listener advertises."""

    host: str
    listener: str


class HangUp(Exception):
    """There is no other way to tell the client."""


class Later(NamedTuple):
    """The request has taken its place, and the next one of its connection may start; the answer comes.

    It goes on when the client is gone: an append does. HangUp is a value here, since nothing has gone wrong.
    """

    answer: asyncio.Future[Message | HangUp | None]


Answer: TypeAlias = Message | Later | None
"""None: the client asked for no answer."""

Handler: TypeAlias = Callable[[Request, Client], Awaitable[Answer]]
"""Requests of one connection are handled one after the other, as Kafka does; only what is Later goes on beside them."""


class AnswerBudget:
    """Bytes of answers, of all connections, that clients have not taken yet. Fetches ask for no more than is left."""

    def __init__(self, max_bytes: int) -> None:
        self._max_bytes = max_bytes
        self._bytes = 0

    @property
    def left(self) -> int:
        return max(0, self._max_bytes - self._bytes)

    def take(self, size: int) -> None:
        self._bytes += size

    def give_back(self, size: int) -> None:
        self._bytes -= size


OpenLog: TypeAlias = Callable[[TopicRecord, int], VirtualLog]


class TopicDefaults(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Of topics that clients create."""

    auto_create: bool = True
    """Whether asking for a topic that is not there creates it, if the client agrees; as Kafka's default."""
    partitions: Annotated[int, msgspec.Meta(ge=1)] = 1
