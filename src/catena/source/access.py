"""Reads planned by a node, for those who have a token and no access to the stores.

    POST /v1/read/plan      a Question, with the token    -> an Answer: offsets, or splits with links to their objects
    GET  /v1/read/object    a link of this or another node, with a byte range; no token

So Spark's driver needs the address of a node and a token, and its tasks need nothing: neither the meta store's password
nor the object store's keys ever leave the nodes. Where the object store signs addresses tasks read from it directly;
where it can't, they read through the node. Links expire, and open nothing but the one object.

Bounded: how many plans are made at once, how many extents a plan has, how many bytes of an object come at once.
"""

from __future__ import annotations

import asyncio
import re
from collections.abc import Awaitable, Callable, Sequence

import msgspec

from catena.config import HttpSettings
from catena.errors import (
    CatenaError,
    Corrupt,
    NeedsOperator,
    ObjectMissing,
    Rejected,
    RetryLater,
    StoreRefused,
)
from catena.http.base import HttpRequest, HttpResponse, Routes, error_response, json_response
from catena.http.bearer import Bearer, who_are_you
from catena.node import Node
from catena.objects.base import ObjectStore, Range, check_key
from catena.runtime import Clock
from catena.source import links
from catena.source.options import parse_batch, parse_stream
from catena.source.planner import Planner
from catena.source.questions import (
    PLAN_PATH,
    Answer,
    InitialOffsets,
    LatestOffsets,
    PlanBatch,
    PlanStream,
    Question,
    Tails,
    Trouble,
)
from catena.source.splitting import Split

Presign = Callable[[Sequence[str], float], Awaitable[Sequence[str]]]
"""Addresses by which these objects can be read for so many seconds."""

READ_PATHS = {PLAN_PATH: "POST", links.PATH: "GET"}
PLANS_AT_ONCE = 4
MAX_EXTENTS = 100_000
MAX_SPLITS = 20_000
LINKS_AT_ONCE = 1_000
"""Then others get their turn."""
MAX_RANGE_BYTES = 4 << 20
LAST_BYTE = (1 << 63) - 1
_RANGE = re.compile(rb"bytes=(\d{1,19})-(\d{0,19})")
_OCTETS = "application/octet-stream"


class ReadAccess:
    """Without a token in the settings nothing is handed out, and whoever asks is told how to switch it on."""

    def __init__(
        self, node: Node, objects: ObjectStore, presign: Presign | None, settings: HttpSettings, clock: Clock
    ) -> None:
        self._node = node
        self._objects = objects
        self._presign = presign
        self._bearer = Bearer(settings.token)
        self._secret = links.secret_of(settings.token)
        self._valid_ms = settings.links_valid_ms
        self._clock = clock
        self._plans = asyncio.Semaphore(PLANS_AT_ONCE)

    @property
    def routes(self) -> Routes:
        return {PLAN_PATH: {"POST": self.plan}, links.PATH: {"GET": self.read_object}}

    async def plan(self, request: HttpRequest) -> HttpResponse:
        if not self._bearer:
            return error_response(403, "this node plans no reads for others: give it a token by the setting http.token")
        if not self._bearer.knows(request):
            return who_are_you("reads are planned for those who send the token of this cluster")
        try:
            question = msgspec.json.decode(request.body, type=Question)
        except (msgspec.MsgspecError, UnicodeDecodeError) as error:
            return _trouble(400, Rejected(f"this is no question: {error}"))
        try:
            async with self._plans:
                return json_response(await self._answer(question))
        except RetryLater as error:
            return _trouble(503, error)
        except NeedsOperator as error:
            return _trouble(409, error)
        except CatenaError as error:
            return _trouble(400, error)

    async def read_object(self, request: HttpRequest) -> HttpResponse:
        key = links.key_of(self._secret, request.query, self._clock.now_ms()) if self._bearer else None
        if key is None:
            return error_response(403, "this link is not valid, or not any more")
        asked = next((value for name, value in request.headers if name == b"range"), b"")
        wanted = _RANGE.fullmatch(asked)
        if wanted is None:
            return error_response(400, "say which bytes, as in: Range: bytes=0-4095")
        start, last = int(wanted[1]), int(wanted[2] or LAST_BYTE)
        try:
            check_key(key)
            size = (await self._objects.head(key)).size
            if start >= size or last < start:
                return error_response(416, f"it has {size} bytes", (("content-range", f"bytes */{size}"),))
            length = min(last + 1, size, start + MAX_RANGE_BYTES) - start
            (data,) = await self._objects.get_ranges(key, [Range(start, length)])
        except (ObjectMissing, ValueError):
            return error_response(404, "there is no such object; what nobody needs any more is collected by vacuum")
        except RetryLater as error:
            return _trouble(503, error)
        except (Corrupt, StoreRefused) as error:
            return _trouble(409, error)
        where = (("content-range", f"bytes {start}-{start + length - 1}/{size}"),)
        return HttpResponse(206, bytes(data), _OCTETS, where)

    async def _answer(self, question: Question) -> Answer:
        warnings: list[str] = []
        parse = parse_stream if question.is_stream else parse_batch
        options = parse(question.options)
        planner = Planner(self._node, options, warnings.append, is_shared=True, max_ranges=MAX_SPLITS)
        match question.ask:
            case PlanBatch():
                return await self._with_links(await planner.plan_batch(), warnings)
            case PlanStream(start, end):
                return await self._with_links(await planner.plan_stream(start, end), warnings)
            case InitialOffsets():
                return Answer(offsets=await planner.initial_offsets(), warnings=warnings)
            case Tails():
                return Answer(offsets=await planner.tails(), warnings=warnings)
            case LatestOffsets(start, max_offsets, target):
                latest = await planner.latest_offsets(start, max_offsets, target)
                return Answer(offsets=latest.end, tails=latest.tails, warnings=warnings)

    async def _with_links(self, splits: list[Split], warnings: list[str]) -> Answer:
        count = sum(len(split.extents) for split in splits)
        if count > MAX_EXTENTS or len(splits) > MAX_SPLITS:
            raise Rejected(
                f"the plan has {len(splits)} tasks and {count} ranges of objects, and a node hands out {MAX_SPLITS} "
                f"and {MAX_EXTENTS} at a time: read less at once (topics, offsets, times, maxOffsetsPerTrigger), or "
                "tier the topic"
            )
        keys = sorted({extent.key for split in splits for extent in split.extents})
        found: dict[str, str] = {}
        until_ms = self._clock.now_ms() + self._valid_ms
        for at in range(0, len(keys), LINKS_AT_ONCE):
            some = keys[at : at + LINKS_AT_ONCE]
            if self._presign is not None:
                addresses: Sequence[str] = await self._presign(some, self._valid_ms / 1000)
            else:
                addresses = [links.link(self._secret, key, until_ms) for key in some]
            found.update(zip(some, addresses, strict=True))
            await self._clock.sleep(0)
        return Answer(splits=splits, links=found, warnings=warnings)


def _trouble(status: int, error: CatenaError) -> HttpResponse:
    return json_response(Trouble(str(error), type(error).__name__), status)
