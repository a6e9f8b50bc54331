"""All paths of the HTTP API, with the handlers of a node that serves."""

from __future__ import annotations

from collections.abc import Callable

from catena.broker.base import OpenLog, TopicDefaults
from catena.broker.long_polls import LongPolls
from catena.counting import Sent
from catena.http.base import HttpRequest, HttpResponse, Routes, json_response
from catena.rest.consume import Consume
from catena.rest.fencing import Fencing
from catena.rest.gate import Gate
from catena.rest.hot import HotRecords
from catena.rest.openapi import document
from catena.rest.page import page
from catena.rest.produce import Produce
from catena.runtime import Clock
from catena.virtual_log.topic_view import TopicView
from catena.virtual_log.topics import Topics

PRODUCE, CONSUME, FENCE, UNFENCE, STATE = "/produce", "/consume", "/fence", "/unfence", "/state"
REST_PATHS = {PRODUCE: "POST", CONSUME: "POST", FENCE: "POST", UNFENCE: "POST", STATE: "GET"}
"""By method; they are there once the node serves."""
WRITE, READ = "write", "read"


def rest_routes(
    gate: Gate,
    topics: Topics,
    view: TopicView,
    open_log: OpenLog,
    polls: LongPolls,
    sent: Sent,
    clock: Clock,
    defaults: TopicDefaults,
    address_of: Callable[[str], str],
    room: Callable[[], int],
    max_waiting: int,
    hot_bytes: int,
) -> Routes:
    """`sent` counts what is consumed; `address_of` an object by its key; `room` for answers, in bytes; `max_waiting`:
    how many may wait for news; `hot_bytes` of memory for what came in last."""
    hot = HotRecords(hot_bytes)
    produce = Produce(topics, view, open_log, clock, defaults, address_of, hot)
    consume = Consume(view, open_log, polls, sent, hot, clock, room, max_waiting)
    fencing = Fencing(view, open_log)
    return {
        PRODUCE: {"POST": gate.guarded(produce.produce, WRITE)},
        CONSUME: {"POST": gate.guarded(consume.consume, READ)},
        FENCE: {"POST": gate.guarded(fencing.fence)},
        UNFENCE: {"POST": gate.guarded(fencing.unfence)},
        STATE: {"GET": gate.guarded(fencing.state)},
    }


def description_routes(version: str) -> Routes:
    """What describes the API, to programs and to people; there from the start."""
    described = document(version)

    async def openapi(_request: HttpRequest) -> HttpResponse:
        return json_response(described)

    async def docs(_request: HttpRequest) -> HttpResponse:
        return HttpResponse(200, page(described).encode(), "text/html; charset=utf-8")

    return {"/openapi.json": {"GET": openapi}, "/docs": {"GET": docs}}
