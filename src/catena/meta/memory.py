"""A meta store in memory, for tests and the simulator, where several simulated processes share one.

No operation has an await point inside, so each takes effect at once and in the order of the calls; whoever wants
delays, failures and lost answers wraps it. Nothing here depends on hashes or addresses: the same calls at the same
times give the same answers.

A session lives until its deadline on the injected clock; a task of its owner moves the deadline. Every operation first
removes the sessions that are past theirs, so an expired record is never seen, and never comes back.
"""

from __future__ import annotations

from bisect import bisect_left, insort
from collections.abc import Sequence
from typing import NamedTuple

from catena.errors import Conflict, SessionExpired
from catena.meta.base import (
    SCAN_LIMIT,
    Check,
    Committed,
    Delete,
    Group,
    GroupResult,
    Op,
    Put,
    Record,
    Refused,
    Session,
    check_groups,
    check_put,
    expected,
)
from catena.meta.sessions import KeptSession
from catena.meta.watches import LocalWatch, Watches
from catena.runtime import Clock, Tasks
from catena.types import ANY, Expect, Version


class _Stored(NamedTuple):
    record: Record
    session: str | None


class MemoryMeta:
    """`close` ends the keeping of sessions and all watches; the records live as long as the object does."""

    def __init__(self, clock: Clock, can_transact: bool = True) -> None:
        self._clock = clock
        self._can_transact = can_transact
        self._keys: list[str] = []
        self._stored: dict[str, _Stored] = {}
        self._deadlines: dict[str, float] = {}
        self._last_version = 0
        self._last_session = 0
        self._watches = Watches()
        self._tasks = Tasks("memory meta store")

    @property
    def can_transact(self) -> bool:
        return self._can_transact

    async def get(self, key: str) -> Record | None:
        self._expire()
        return self._find(key)

    async def put(
        self, key: str, value: bytes, expect: Version | Expect = ANY, ephemeral: Session | None = None
    ) -> Version:
        check_put(key, value)
        self._expire()
        if ephemeral is not None and ephemeral.id not in self._deadlines:
            raise SessionExpired(f"session {ephemeral.id} is gone; open a new one")
        self._require(key, expect)
        return self._write(key, value, None if ephemeral is None else ephemeral.id)

    async def delete(self, key: str, expect: Version | Expect = ANY) -> None:
        self._expire()
        self._require(key, expect)
        self._remove(key)

    async def ceiling(self, key: str, end: str) -> Record | None:
        return next(iter(await self.scan(key, end, limit=1)), None)

    async def scan(self, start: str, end: str, limit: int = SCAN_LIMIT) -> list[Record]:
        self._expire()
        return [self._stored[key].record for key in self._range(start, end)[:limit]]

    async def delete_range(self, start: str, end: str) -> None:
        self._expire()
        for key in self._range(start, end):
            self._remove(key)

    async def transact(self, groups: Sequence[Group]) -> list[GroupResult]:
        assert self._can_transact, "callers ask can_transact first"
        check_groups(groups)
        self._expire()
        return [self._apply(group) for group in groups]

    def watch(self, prefix: str) -> LocalWatch:
        return self._watches.open(prefix)

    async def session(self, ttl_ms: int) -> KeptSession:
        self._last_session += 1
        now, name = self._clock.monotonic(), f"session-{self._last_session}"
        self._deadlines[name] = now + ttl_ms / 1000
        session = KeptSession(name, ttl_ms, now, self._clock, self._renew, self._end)
        self._tasks.spawn(f"keep {name} alive", session.keep_alive())
        return session

    async def close(self) -> None:
        self._watches.close()
        await self._tasks.close()

    def _find(self, key: str) -> Record | None:
        stored = self._stored.get(key)
        return None if stored is None else stored.record

    def _matches(self, key: str, expect: Version | Expect) -> bool:
        found = self._find(key)
        return expected(expect, None if found is None else found.version)

    def _require(self, key: str, expect: Version | Expect) -> None:
        if not self._matches(key, expect):
            raise Conflict(key, self._find(key))

    def _apply(self, group: Group) -> GroupResult:
        if not all(self._matches(op.key, op.expect) for op in group):
            return Refused(tuple(self._find(op.key) for op in group))
        return Committed(tuple(self._apply_op(op) for op in group))

    def _apply_op(self, op: Op) -> Version | None:
        match op:
            case Put(key, value):
                return self._write(key, value, session=None)
            case Delete(key):
                self._remove(key)
            case Check():
                pass
        return None

    def _write(self, key: str, value: bytes, session: str | None) -> Version:
        self._last_version += 1
        version = Version(str(self._last_version))
        if key not in self._stored:
            insort(self._keys, key)
        self._stored[key] = _Stored(Record(key, bytes(value), version), session)
        self._watches.wake((key,))
        return version

    def _remove(self, key: str) -> None:
        if self._stored.pop(key, None) is not None:
            del self._keys[bisect_left(self._keys, key)]
            self._watches.wake((key,))

    def _range(self, start: str, end: str) -> list[str]:
        return self._keys[bisect_left(self._keys, start) : bisect_left(self._keys, end)]

    def _expire(self) -> None:
        now = self._clock.monotonic()
        for session in [session for session, deadline in self._deadlines.items() if deadline <= now]:
            self._remove_session(session)

    async def _renew(self, session: str, ttl_ms: int) -> bool:
        self._expire()
        if session in self._deadlines:
            self._deadlines[session] = self._clock.monotonic() + ttl_ms / 1000
        return session in self._deadlines

    async def _end(self, session: str) -> None:
        self._remove_session(session)

    def _remove_session(self, session: str) -> None:
        if self._deadlines.pop(session, None) is not None:
            for key in [key for key in self._keys if self._stored[key].session == session]:
                self._remove(key)
