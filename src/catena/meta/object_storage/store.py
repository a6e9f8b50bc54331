"""The meta store on object storage: a record is an object, and its version is its etag.

Every write is a conditional put of one object, so one record is linearizable and several are not tied together: there
is no `transact`. Even a put or delete with ANY goes by the etag that was read before, since a store's retry of an
unconditional write could undo what somebody wrote after its first try.

Tombstones (see `envelope`) of conditional deletes stay, about 100 bytes each, until their key is put again or
`delete_range` takes them. It alone deletes objects outright, which is only safe where nobody creates keys any more: a
create that comes while it runs may be gone when both have returned. Whoever deletes many keys for good should use it.

An ephemeral record counts as absent when its session is over. Whoever finds such a record replaces it by a tombstone
before saying that it is absent: so a put that expects the old version can't succeed after somebody saw it gone. The
version of an ephemeral record names the session, and a put that expects it asks for the session first.

A `scan` lists, and then gets only what it does not remember (`remembered`): who looks through the same keys again and
again pays for the listing and for what has changed.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, AsyncIterator, Sequence
from contextlib import aclosing, suppress
from typing import NamedTuple

from catena.errors import CatenaError, Conflict, Contended, ObjectMissing, OutcomeUnknown, RetryLater, SessionExpired
from catena.meta.base import SCAN_LIMIT, Group, GroupResult, Record, Session, check_put
from catena.meta.object_storage.envelope import Envelope, decode, encode
from catena.meta.object_storage.polling import Polling
from catena.meta.object_storage.remembered import Remembered
from catena.meta.object_storage.sessions import Sessions
from catena.meta.sessions import KeptSession
from catena.meta.watches import LocalWatch, Watches
from catena.objects.base import ObjectInfo, ObjectStore
from catena.runtime import Clock, Entropy, Tasks
from catena.types import ABSENT, ANY, ETag, Expect, Version

PREFIX = "meta/"
ATTEMPTS = 20
GETS_MAX = 16
DELETES_MAX = 1000
LOOKS_APART = 0.5
"""Times-to-live between two looks at the sessions of others."""
REMEMBERED_MAX_BYTES = 16 << 20


class _Found(NamedTuple):
    """What is stored under a key: an object with or without a record in it, or nothing at all."""

    record: Record | None = None
    etag: ETag | None = None
    nonce: str | None = None

    @property
    def expectation(self) -> ETag | Expect:
        """What a put must expect in order to replace just this."""
        return ABSENT if self.etag is None else self.etag


_NOTHING = _Found()


class ObjectMeta:
    """The object store belongs to the caller, and must outlive this."""

    can_transact = False

    def __init__(self, store: ObjectStore, clock: Clock, entropy: Entropy) -> None:
        self._objects = store
        self._clock = clock
        self._entropy = entropy
        self._tasks = Tasks("meta store on objects")
        self._watches = Watches()
        self._sessions = Sessions(store, clock, entropy)
        self._polling = Polling(clock, self._tasks, self._watches, store, PREFIX)
        self._listed = Remembered(REMEMBERED_MAX_BYTES)
        self._look_around_at = clock.monotonic()

    async def get(self, key: str) -> Record | None:
        return (await self._find(key)).record

    async def put(
        self, key: str, value: bytes, expect: Version | Expect = ANY, ephemeral: Session | None = None
    ) -> Version:
        check_put(key, value)
        if ephemeral is not None and not (ephemeral.alive and await self._sessions.is_alive(ephemeral.id)):
            raise SessionExpired(f"session {ephemeral.id} is gone; open a new one")
        session = None if ephemeral is None else ephemeral.id
        etag = await self._replace(key, Envelope(self._entropy.hex_id(), value, session), expect)
        return _version(etag, session)

    async def delete(self, key: str, expect: Version | Expect = ANY) -> None:
        if isinstance(expect, Expect):
            found = await self._find(key)
            if found.record is None:
                return
            if expect is ABSENT:
                raise Conflict(key, found.record)
        await self._replace(key, Envelope(self._entropy.hex_id(), None), expect)

    async def ceiling(self, key: str, end: str) -> Record | None:
        return next(iter(await self.scan(key, end, limit=1)), None)

    async def scan(self, start: str, end: str, limit: int = SCAN_LIMIT) -> list[Record]:
        records: list[Record] = []
        async with aclosing(self._infos(start, end)) as infos:
            while len(records) < limit and (batch := await _take(infos, min(limit - len(records), GETS_MAX))):
                found = await asyncio.gather(*[self._find_listed(info) for info in batch])
                records += [record for record in found if record is not None]
        return records

    async def delete_range(self, start: str, end: str) -> None:
        async with aclosing(self._infos(start, end)) as infos:
            while batch := await _take(infos, DELETES_MAX):
                await self._objects.delete([info.key for info in batch])
                self._watches.wake([info.key.removeprefix(PREFIX) for info in batch])

    async def transact(self, groups: Sequence[Group]) -> list[GroupResult]:
        raise AssertionError(f"{len(groups)} groups, but callers ask can_transact first")

    def watch(self, prefix: str) -> LocalWatch:
        watch = self._watches.open(prefix)
        self._polling.ensure(prefix)
        return watch

    async def session(self, ttl_ms: int) -> KeptSession:
        started = self._clock.monotonic()
        session_id = await self._sessions.create(ttl_ms)
        session = KeptSession(session_id, ttl_ms, started, self._clock, self._renew, self._sessions.end)
        self._tasks.spawn(f"keep session {session_id} alive", session.keep_alive())
        return session

    async def close(self) -> None:
        self._watches.close()
        await self._tasks.close()

    async def _renew(self, session: str, ttl_ms: int) -> bool:
        renewed = await self._sessions.renew(session, ttl_ms)
        if (now := self._clock.monotonic()) >= self._look_around_at:
            self._look_around_at = now + ttl_ms / 1000 * LOOKS_APART
            with suppress(RetryLater, OutcomeUnknown):  # others look as well
                if await self._sessions.look_around():
                    self._watches.wake_all()  # nothing tells which records are gone with it
        return renewed

    async def _find(self, key: str) -> _Found:
        for _ in range(ATTEMPTS):
            try:
                blob = await self._objects.get(PREFIX + key)
            except ObjectMissing:
                return _NOTHING
            found = await self._understand(key, blob.etag, decode(PREFIX + key, blob.data))
            if found is not None:
                return found
        raise Contended(f"{key} changed {ATTEMPTS} times while it was read")

    async def _find_listed(self, info: ObjectInfo) -> Record | None:
        """What a listing has just shown, or what has come in its place since."""
        key = info.key.removeprefix(PREFIX)
        envelope = self._listed.get(key, info.etag)
        if envelope is not None and (known := await self._understand(key, info.etag, envelope)) is not None:
            return known.record
        record, etag, nonce = await self._find(key)
        if etag is not None and nonce is not None:
            session = None if record is None else _parse(record.version)[1]
            self._listed.keep(key, etag, Envelope(nonce, None if record is None else record.value, session))
        return record

    async def _understand(self, key: str, etag: ETag, envelope: Envelope) -> _Found | None:
        """What an object says; None if it is one that died with its session: then it has been replaced."""
        nonce, value, session = envelope
        if value is None:
            return _Found(None, etag, nonce)
        if session is None or await self._sessions.is_alive(session):
            return _Found(Record(key, value, _version(etag, session)), etag, nonce)
        await self._bury(key, etag)
        return None

    async def _bury(self, key: str, etag: ETag) -> None:
        try:
            await self._objects.put(PREFIX + key, encode(Envelope(self._entropy.hex_id(), None)), etag)
        except (Conflict, OutcomeUnknown):
            return  # whoever looks again sees what came of it
        self._watches.wake((key,))

    async def _replace(self, key: str, envelope: Envelope, expect: Version | Expect) -> ETag:
        """Put the envelope in the place of what is expected there, or raise Conflict."""
        if not isinstance(expect, Expect):
            return await self._replace_version(key, envelope, expect)
        found = _NOTHING if expect is ABSENT else await self._find(key)
        for _ in range(ATTEMPTS):
            outcome = await self._swap(key, envelope, found.expectation)
            if not isinstance(outcome, _Found):
                return outcome
            if expect is ABSENT and outcome.record is not None:
                raise Conflict(key, outcome.record)
            found = outcome
        raise Contended(f"{key} changed {ATTEMPTS} times while it was written")

    async def _replace_version(self, key: str, envelope: Envelope, version: Version) -> ETag:
        etag, session = _parse(version)
        if session is not None and not await self._sessions.is_alive(session):
            raise Conflict(key, await self.get(key))
        outcome = await self._swap(key, envelope, etag)
        if isinstance(outcome, _Found):
            raise Conflict(key, outcome.record)
        return outcome

    async def _swap(self, key: str, envelope: Envelope, expect: ETag | Expect) -> ETag | _Found:
        """One conditional put: the new etag, or what was found instead."""
        try:
            etag = await self._objects.put(PREFIX + key, encode(envelope), expect)
        except (Conflict, OutcomeUnknown) as error:
            # A store that tries again by itself may have been refused because of its own first try.
            try:
                found = await self._find(key)
            except CatenaError as second:
                raise OutcomeUnknown(f"put {key}: {error}; and then: {second}") from error
            if found.nonce != envelope.nonce or found.etag is None:
                if isinstance(error, OutcomeUnknown):
                    raise
                return found
            etag = found.etag
        self._watches.wake((key,))
        return etag

    async def _infos(self, start: str, end: str) -> AsyncGenerator[ObjectInfo, None]:
        """Of all objects in the range, tombstones included."""
        prefix = PREFIX + _common_prefix(start, end)
        async for info in self._objects.list(prefix, _just_below(PREFIX + start)):
            key = info.key.removeprefix(PREFIX)
            if key >= end:
                return
            if key >= start:
                yield info


def _version(etag: ETag, session: str | None) -> Version:
    return Version(f"{session or ''}:{etag}")


def _parse(version: Version) -> tuple[ETag, str | None]:
    session, _, etag = version.partition(":")
    return ETag(etag), session or None


def _common_prefix(start: str, end: str) -> str:
    length = 0
    while length < min(len(start), len(end)) and start[length] == end[length]:
        length += 1
    return start[:length]


def _just_below(key: str) -> str:
    """Less than `key`, and not less than any lesser key that can be: their characters go from `-` to `z`."""
    return key[:-1] if key[-1] <= "-" else key[:-1] + chr(ord(key[-1]) - 1) + "~"


async def _take(infos: AsyncIterator[ObjectInfo], count: int) -> list[ObjectInfo]:
    taken: list[ObjectInfo] = []
    while len(taken) < count and (info := await anext(infos, None)) is not None:
        taken.append(info)
    return taken
