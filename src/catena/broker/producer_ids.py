"""InitProducerId: numbers that no two producers share.

A node reserves a block of ids by compare-and-set and hands them out from memory. What is left of a block when the node
ends is never used, and so is a block whose reservation has an unknown outcome: there are 2**63 of them.

A meta store that was restored has forgotten which ids it gave out since its backup, and producers that have them live
on. If two had the same, batches of one would pass for those of the other, and be dropped as duplicates. So whoever goes
on from an older meta store skips more ids (`skip_ids`) than can have been given out.
"""

from __future__ import annotations

import asyncio
from typing import Annotated, cast

import msgspec

from catena.broker.base import Client
from catena.broker.error_codes import code_of
from catena.errors import CatenaError, Conflict, Contended, Corrupt, OutcomeUnknown
from catena.meta import keys
from catena.meta.base import MetaStore, Record
from catena.runtime import Clock
from catena.types import ABSENT
from catena.wire.codes import Code
from catena.wire.messages.init_producer_id import InitProducerIdRequest, InitProducerIdResponse
from catena.wire.requests import Request

BLOCK = 1000
SKIPPED = 2**40
"""More than any cluster gives out between two backups, and few enough to do it a million times."""
MAX_ATTEMPTS = 50
BACKOFF_S = 0.01


class _NextId(msgspec.Struct, frozen=True):
    next: Annotated[int, msgspec.Meta(ge=0)] = 0


_decoder = msgspec.json.Decoder(_NextId)


class ProducerIds:
    def __init__(self, meta: MetaStore, clock: Clock) -> None:
        self._meta = meta
        self._clock = clock
        self._turn = asyncio.Lock()
        self._reserved = iter(range(0))

    async def init_producer_id(self, request: Request, _client: Client) -> InitProducerIdResponse:
        """Whoever says which id and epoch it has (version 3 on) gets a new id, too: only transactional ones keep it."""
        body = cast(InitProducerIdRequest, request.body)
        if body.transactional_id is not None:
            # There is no place for words here. Fatal to librdkafka and to Java clients, so that they do not try again.
            return InitProducerIdResponse(error_code=Code.TRANSACTIONAL_ID_AUTHORIZATION_FAILED, producer_epoch=-1)
        try:
            return InitProducerIdResponse(producer_id=await self.fresh(), producer_epoch=0)
        except CatenaError as error:
            return InitProducerIdResponse(error_code=_code_of(error), producer_epoch=-1)

    async def fresh(self) -> int:
        async with self._turn:
            for number in self._reserved:
                return number
            first = await self._reserve()
            self._reserved = iter(range(first + 1, first + BLOCK))
            return first

    async def skip_ids(self) -> None:
        """Go on far above those that may have been given out and are forgotten."""
        await self._reserve(SKIPPED)

    async def _reserve(self, count: int = BLOCK) -> int:
        """The first id of a block that is ours."""
        record = await self._meta.get(keys.PRODUCER_IDS)
        for attempt in range(MAX_ATTEMPTS):
            first = _decode(record)
            value = msgspec.json.encode(_NextId(first + count))
            try:
                await self._meta.put(keys.PRODUCER_IDS, value, ABSENT if record is None else record.version)
            except Conflict as conflict:
                record = conflict.current
            except OutcomeUnknown:
                record = await self._meta.get(keys.PRODUCER_IDS)
                # Whether it was applied by now or will be, the next try is for a block of its own, or is refused.
                await self._clock.sleep(BACKOFF_S * min(attempt, 10))
            else:
                return first
        raise Contended("producer ids could not be reserved: others do so all the time")


def _decode(record: Record | None) -> int:
    if record is None:
        return 0
    try:
        return _decoder.decode(record.value).next
    except msgspec.MsgspecError as error:
        raise Corrupt(f"meta record {record.key} can't be read: {error}") from error


def _code_of(error: CatenaError) -> Code:
    """What clients know to try again after: a store in trouble is a coordinator that is busy."""
    code = code_of(error)
    retriable = (Code.NOT_ENOUGH_REPLICAS, Code.REQUEST_TIMED_OUT, Code.NOT_LEADER_OR_FOLLOWER)
    return Code.COORDINATOR_LOAD_IN_PROGRESS if code in retriable else code
