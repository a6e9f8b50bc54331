"""Sessions with no common clock.

A session is an object that its owner overwrites, by its etag, before its time-to-live is over. Others compare what they
see with what they saw: one who has seen the same etag for the whole time-to-live and a margin, on a clock of its own,
ends the session by overwriting it, by that etag. If the owner renewed it after all, one of the two overwrites fails,
and that one tells who was right. An owner that was paused finds out with its next renewal.

A session that is over never comes back: only its creator creates it, once, with an id that nobody else draws. So it
may be deleted outright, and a session that is missing is over. An id ends with the time-to-live, so that whoever meets
it in a record knows how long to watch.

Time only passes for those who look: a session whose owner died is over a time-to-live after somebody first met it.
"""

from __future__ import annotations

from typing import NamedTuple

from catena.errors import Conflict, ObjectMissing, OutcomeUnknown, StoreUnavailable
from catena.meta.object_storage.envelope import Envelope, decode, encode
from catena.objects.base import Blob, ObjectStore
from catena.runtime import Clock, Entropy
from catena.types import ABSENT, Buffers, ETag

PREFIX = "meta-sessions/"
EXPIRY_MARGIN = 1.25
ATTEMPTS = 4


class _Sighting(NamedTuple):
    etag: ETag
    since: float


class Sessions:
    def __init__(self, objects: ObjectStore, clock: Clock, entropy: Entropy) -> None:
        self._objects = objects
        self._clock = clock
        self._entropy = entropy
        self._own: dict[str, ETag] = {}
        self._sightings: dict[str, _Sighting] = {}

    async def create(self, ttl_ms: int) -> str:
        session = f"{self._entropy.hex_id()}.{ttl_ms}"
        self._own[session] = await self._objects.put(PREFIX + session, self._beat(), ABSENT)
        return session

    async def renew(self, session: str, _ttl_ms: int) -> bool:
        etag = self._own[session]
        for _ in range(ATTEMPTS):
            try:
                self._own[session] = await self._objects.put(PREFIX + session, self._beat(), etag)
            except Conflict:
                # Either somebody ended it, or an earlier renewal was applied though its answer was lost.
                living = await self._find(session)
                if living is None:
                    return False
                etag = living.etag
            else:
                return True
        raise StoreUnavailable(f"session {session} could not be renewed in {ATTEMPTS} attempts")

    async def end(self, session: str) -> None:
        await self._objects.delete([PREFIX + session])
        self._forget(session)

    async def is_alive(self, session: str) -> bool:
        """Linearizable: once it was false for one, it is false for all."""
        for _ in range(ATTEMPTS):
            living = await self._find(session)
            if living is None:
                self._forget(session)
                return False
            if not self._is_overdue(session, living.etag):
                return True
            if await self._terminate(session, living.etag):
                self._forget(session)
                return False
        raise StoreUnavailable(f"it could not be told in {ATTEMPTS} attempts whether session {session} is alive")

    async def look_around(self) -> bool:
        """Begin to watch the sessions of others, and clear away those that are overdue; returns whether any were."""
        some_ended = False
        async for info in self._objects.list(PREFIX):
            session = info.key.removeprefix(PREFIX)
            if self._is_overdue(session, info.etag) and not await self.is_alive(session):
                await self._objects.delete([info.key])
                some_ended = True
        return some_ended

    async def _find(self, session: str) -> Blob | None:
        try:
            blob = await self._objects.get(PREFIX + session)
        except ObjectMissing:
            return None
        return None if decode(PREFIX + session, blob.data).value is None else blob

    def _is_overdue(self, session: str, etag: ETag) -> bool:
        now = self._clock.monotonic()
        sighting = self._sightings.get(session)
        if sighting is None or sighting.etag != etag:
            self._sightings[session] = sighting = _Sighting(etag, now)
        return now - sighting.since >= EXPIRY_MARGIN * _ttl_s(session)

    async def _terminate(self, session: str, etag: ETag) -> bool:
        tombstone = encode(Envelope(self._entropy.hex_id(), None))
        try:
            await self._objects.put(PREFIX + session, tombstone, etag)
        except (Conflict, OutcomeUnknown):
            return False
        return True

    def _beat(self) -> Buffers:
        return encode(Envelope(self._entropy.hex_id(), b""))

    def _forget(self, session: str) -> None:
        self._own.pop(session, None)
        self._sightings.pop(session, None)


def _ttl_s(session: str) -> float:
    return int(session.rpartition(".")[2]) / 1000
