"""POST /fence, POST /unfence, GET /state: end a log for now, let it go on, and how it stands.

A fenced log takes no appends, of anybody, until it is unfenced; it can be read. Both may be asked again: a log that is
fenced stays as it is, with the same tail. `virtual_log/reconfigure.py` says what a crash leaves at each step; whoever
comes next finishes it.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from urllib.parse import parse_qsl

import msgspec

from catena.broker.base import OpenLog
from catena.broker.handling import Logs
from catena.errors import CatenaError, Contended, InvalidTopic, RetryLater, UnknownPartition, UnknownTopic
from catena.http.base import HttpRequest, HttpResponse
from catena.rest import bodies
from catena.rest.answers import answer, refusal
from catena.rest.bodies import InvalidBody, LogName, LogState, ShownLink
from catena.virtual_log.chain import Chain
from catena.virtual_log.log import VirtualLog
from catena.virtual_log.topic_view import TopicView

MAX_PARAMETERS = 16
MAX_ATTEMPTS = 20

_decoder = msgspec.json.Decoder(LogName)


class Fencing:
    def __init__(self, view: TopicView, open_log: OpenLog) -> None:
        self._view = view
        self._open_log = open_log

    async def fence(self, request: HttpRequest) -> HttpResponse:
        return await self._do(bodies.decode(_decoder, request.body), VirtualLog.seal)

    async def unfence(self, request: HttpRequest) -> HttpResponse:
        return await self._do(bodies.decode(_decoder, request.body), _reopen)

    async def state(self, request: HttpRequest) -> HttpResponse:
        return await self._do(_named_by(request.query), VirtualLog.refresh)

    async def _do(self, name: LogName, what: Callable[[VirtualLog], Awaitable[object]]) -> HttpResponse:
        async def ask(log: VirtualLog) -> LogState:
            await what(log)
            tail = await log.tail()
            return _shown(name, await log.chain(), tail)

        try:
            return answer(await Logs(self._view, self._open_log).ask(name.topic, name.partition, ask))
        except (UnknownTopic, UnknownPartition, InvalidTopic) as error:
            return refusal(404, error)
        except RetryLater as error:
            return refusal(503, error)
        except CatenaError as error:
            return refusal(409, error)


async def _reopen(log: VirtualLog) -> None:
    for _ in range(MAX_ATTEMPTS):
        chain = await log.refresh()
        if chain.last.is_open and chain.intent is None:
            return
        await log.reconfigure(log.kind)
    raise Contended(f"{log.tp}: others fence the log all the time")


def _shown(name: LogName, chain: Chain, tail: int) -> LogState:
    return LogState(
        name.topic,
        name.partition,
        "OPEN" if chain.last.is_open else "FENCED",
        chain.start,
        tail,
        chain.boundary,
        chain.last.epoch,
        [ShownLink(link.kind, link.epoch, link.base, link.end) for link in chain.links],
    )


def _named_by(query: str) -> LogName:
    """Of `topic=NAME&partition=NUMBER`."""
    try:
        given = parse_qsl(
            query, keep_blank_values=True, strict_parsing=True, errors="strict", max_num_fields=MAX_PARAMETERS
        )
    except ValueError:
        given = []
    values = dict(given)
    if len(given) != len(values) or set(values) != {"topic", "partition"}:
        raise InvalidBody("say which log, as in: /state?topic=orders&partition=0")
    number = values["partition"]
    if not (number.isascii() and number.isdigit() and int(number) <= bodies.INT32_MAX):
        raise InvalidBody("a partition is a number from 0 on", "partition")
    if not values["topic"]:
        raise InvalidBody("a topic has a name", "topic")
    return LogName(values["topic"], int(number))
