"""What Kafka clients have asked for: requests, errors, bytes and latencies of each API; see `catena.counting`.

A request counts when its answer goes out. Its latency begins when it is its turn on its connection: waits that clients
ask for (a long poll, a rebalance) are part of it, and so is the wait for answers in front of it.

Errors are the codes within an answer, one for each partition, topic or group that has one. Where an answer can have
them is found once for each class of messages.
"""

from __future__ import annotations

from functools import cache
from typing import Any, NamedTuple, get_args, get_origin, get_type_hints

import msgspec

from catena.counting import Histogram, add_to
from catena.wire.apis import APIS, Api
from catena.wire.codes import Code
from catena.wire.messages.fetch import FetchRequest
from catena.wire.requests import Request
from catena.wire.schema import Message

UNSUPPORTED = "unsupported"
"""Whatever is not in the table of APIs."""
UNKNOWN_CODE = "unknown"
_OTHERS = -1


class ApiCounts(msgspec.Struct):
    requests: int = 0
    errors: dict[str, int] = {}
    """By the name of the code."""
    bytes_in: int = 0
    bytes_out: int = 0
    seconds: Histogram = msgspec.field(default_factory=Histogram)


class Zones(msgspec.Struct):
    """Fetches by where the client says it is."""

    same: int = 0
    """In the rack of this node."""
    other: int = 0
    unknown: int = 0
    """The client does not say, or this node has none."""


class RequestCounts:
    def __init__(self, rack: str | None = None) -> None:
        self._rack = rack
        self._by_key: dict[int, ApiCounts] = {}
        self.fetch_zones = Zones()
        self.connections_opened = 0
        self.connections_cut_off = 0
        """By this node, because of what clients did."""

    def answered(self, request: Request, seconds: float, bytes_in: int, bytes_out: int, answer: Message | None) -> None:
        """None: the client asked for no answer."""
        counts = self._of(request.api)
        counts.requests += 1
        counts.bytes_in += bytes_in
        counts.bytes_out += bytes_out
        counts.seconds.observe(seconds)
        if answer is not None:
            _count_errors(answer, counts.errors)
        if isinstance(request.body, FetchRequest):
            self._count_zone(request.body.rack_id)

    @property
    def apis(self) -> dict[str, ApiCounts]:
        """Of those that were asked, by name."""
        return {UNSUPPORTED if key == _OTHERS else APIS[key].name: counts for key, counts in self._by_key.items()}

    def _of(self, api: Api) -> ApiCounts:
        key = api.key if APIS.get(api.key) is api else _OTHERS
        counts = self._by_key.get(key)
        if counts is None:
            counts = self._by_key[key] = ApiCounts()
        return counts

    def _count_zone(self, rack: str) -> None:
        if not rack or self._rack is None:
            self.fetch_zones.unknown += 1
        elif rack == self._rack:
            self.fetch_zones.same += 1
        else:
            self.fetch_zones.other += 1


class _Shape(NamedTuple):
    """Where messages of a class have error codes: themselves, or in these lists."""

    has_code: bool
    lists: tuple[tuple[str, _Shape], ...]


def _count_errors(message: Any, errors: dict[str, int]) -> None:
    kind: type[Message] = type(message)
    _walk(message, _shape(kind), errors)


def _walk(message: Any, shape: _Shape, errors: dict[str, int]) -> None:
    if shape.has_code and message.error_code:
        add_to(errors, _name_of(message.error_code))
    for name, inner in shape.lists:
        if inner.lists:
            for each in getattr(message, name) or ():
                _walk(each, inner, errors)
        else:
            for each in getattr(message, name) or ():
                if each.error_code:
                    add_to(errors, _name_of(each.error_code))


@cache
def _shape(kind: type[Message]) -> _Shape:
    hints = get_type_hints(kind)
    lists = [(name, item) for name, hint in hints.items() if (item := _item(hint)) is not None]
    shapes = [(name, _shape(item)) for name, item in lists]
    return _Shape("error_code" in hints, tuple((name, each) for name, each in shapes if each.has_code or each.lists))


def _item(hint: Any) -> type[Message] | None:
    """Of what a list is, if it is one of messages; it may be one that can be null."""
    for each in (hint, *get_args(hint)):
        if get_origin(each) is list:
            (item,) = get_args(each)
            if isinstance(item, type) and issubclass(item, Message):
                return item
    return None


def _name_of(code: int) -> str:
    try:
        return Code(code).name
    except ValueError:
        return UNKNOWN_CODE
