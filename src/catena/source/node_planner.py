"""Plans reads by asking a node, instead of the stores: the same questions as `Planner`, over HTTP with a token.

Calls block, as Spark's do. A node that does not answer is asked again a few times: plans change nothing.
"""

from __future__ import annotations

import http.client
import logging
from collections.abc import Mapping, Sequence
from typing import NamedTuple
from urllib.parse import urlsplit

import msgspec

from catena.errors import (
    CatenaError,
    ConfigError,
    Contended,
    Corrupt,
    DataLoss,
    MetaBehind,
    Rejected,
    StoreRefused,
    StoreUnavailable,
)
from catena.runtime import Clock
from catena.source.offsets import StreamOffsets
from catena.source.planner import Latest
from catena.source.questions import (
    LOCAL_OPTIONS,
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

log = logging.getLogger(__name__)

TIMEOUT_S = 300.0
"""For a plan of very many partitions."""
PAUSES_S = (0.2, 1.0, 3.0)
PLAIN = (DataLoss, Contended, Corrupt, MetaBehind, StoreRefused, StoreUnavailable, ConfigError)
"""Errors that are raised here as they were there; the others have more than a message."""


class Linked(NamedTuple):
    """The work of one task, with what it needs to read it."""

    split: Split
    links: Mapping[str, str]


class NodePlanner:
    def __init__(self, address: str, token: str, options: Mapping[str, str], is_stream: bool, clock: Clock) -> None:
        self._address = _checked(address)
        token = token.strip()
        if not token:
            raise ConfigError("option token is needed to read through a node, or CATENA_TOKEN in the environment")
        if not (token.isascii() and token.isprintable()):
            raise ConfigError("option token, or CATENA_TOKEN, has characters that no token has")
        self._token = token
        self._options = {name: value for name, value in options.items() if name.lower() not in LOCAL_OPTIONS}
        self._is_stream = is_stream
        self._clock = clock

    async def plan_batch(self) -> list[Linked]:
        return self._linked(await self._ask(PlanBatch()))

    async def plan_stream(self, start: StreamOffsets, end: StreamOffsets) -> list[Linked]:
        return self._linked(await self._ask(PlanStream(start, end)))

    async def initial_offsets(self) -> StreamOffsets:
        return _offsets(await self._ask(InitialOffsets()))

    async def tails(self) -> StreamOffsets:
        return _offsets(await self._ask(Tails()))

    async def latest_offsets(
        self, start: StreamOffsets, max_offsets: int | None = None, target: StreamOffsets | None = None
    ) -> Latest:
        answer = await self._ask(LatestOffsets(start, max_offsets, target))
        assert answer.tails is not None
        return Latest(_offsets(answer), answer.tails)

    def _linked(self, answer: Answer) -> list[Linked]:
        return [Linked(split, self._links_of(split, answer.links)) for split in answer.splits]

    def _links_of(self, split: Split, links: Mapping[str, str]) -> dict[str, str]:
        return {extent.key: self._absolute(links[extent.key]) for extent in split.extents}

    def _absolute(self, link: str) -> str:
        """A node may be behind a proxy, below some path, and does not know it."""
        return f"{self._address}{link}" if link.startswith("/") else link

    async def _ask(self, ask: PlanBatch | InitialOffsets | Tails | LatestOffsets | PlanStream) -> Answer:
        body = msgspec.json.encode(Question(self._is_stream, self._options, ask))
        for pause_s in (*PAUSES_S, None):
            try:
                return self._ask_once(body)
            except StoreUnavailable:
                if pause_s is None:
                    raise
                await self._clock.sleep(pause_s)
        raise AssertionError

    def _ask_once(self, body: bytes) -> Answer:
        address = urlsplit(self._address)
        secure = address.scheme == "https"
        connection = (http.client.HTTPSConnection if secure else http.client.HTTPConnection)(
            address.netloc, timeout=TIMEOUT_S
        )
        headers = {"authorization": f"Bearer {self._token}", "content-type": "application/json"}
        try:
            connection.request("POST", f"{address.path}{PLAN_PATH}", body, headers)
            response = connection.getresponse()
            status, said = response.status, response.read()
        except (OSError, http.client.HTTPException) as error:
            raise StoreUnavailable(f"the node at {self._address} does not answer: {error!r}") from error
        finally:
            connection.close()
        try:
            if status != 200:
                raise _error(self._address, status, msgspec.json.decode(said, type=Trouble))
            answer = msgspec.json.decode(said, type=Answer)
        except msgspec.MsgspecError as error:
            raise StoreRefused(f"{self._address} does not answer as a node does (status {status}): {error}") from error
        for warning in answer.warnings:
            log.warning("goes on without what is lost: %s", warning)
        return answer


def _checked(address: str) -> str:
    try:
        parts = urlsplit(address)
        _ = parts.port  # looked at, it is checked
    except ValueError:
        parts = urlsplit("")
    if parts.scheme not in ("http", "https") or not parts.hostname or parts.query or parts.fragment:
        raise ConfigError("option node is the address of a node, as in http://host:8080")
    if "@" in parts.netloc:
        raise ConfigError("option node: no credentials in the address; the option token is for them")
    return f"{parts.scheme}://{parts.netloc}{parts.path.rstrip('/')}"


def _offsets(answer: Answer) -> StreamOffsets:
    assert answer.offsets is not None
    return answer.offsets


def _error(address: str, status: int, trouble: Trouble) -> CatenaError:
    known: Sequence[type[CatenaError]] = [each for each in PLAIN if each.__name__ == trouble.error]
    if known:
        return known[0](trouble.message)
    if status in (401, 403):
        return ConfigError(f"option token: {trouble.message}")
    if status == 503:
        return StoreUnavailable(f"{address}: {trouble.message}")
    return Rejected(trouble.message)
