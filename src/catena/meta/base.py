"""The meta store: small versioned records under sorted string keys, changed by compare-and-set.

Contract (the suite in `catena.testing.contracts.meta` runs it against every backend):

- **Linearizable**: every call takes effect at one point between its start and its return, for all processes. Only a
  `scan` or `ceiling` of a store that can't transact sees each record at a moment of its own within the call.
- A write that expects a version (or ABSENT) succeeds only if the record has just that version (or is not there); else
  it raises Conflict, which carries the record that was found. A version of a key is never used again, not even after
  a delete, so a compare-and-set can't be fooled by A-B-A.
- A write whose outcome can't be known raises OutcomeUnknown; a write that surely was not applied raises
  StoreUnavailable. Callers put ids of their own into their values, so that a re-read settles the unknown ones.
- **A watch is a hint.** It may coalesce, wake for nothing, or (rarely) miss a change; whoever wakes re-reads.
- An ephemeral record lives as long as its session. A session that its owner has not kept alive for its time-to-live
  is gone for good: its records count as absent, and a put with it raises SessionExpired. Ephemeral records have the
  same versions and conditions as others.
- `close` of a store does not end its sessions: they are no longer kept alive, and expire as after a crash.
- `transact` is a capability: stores that lack it say `can_transact = False` and their `transact` is never called.
  Each group is atomic by itself; a refused group changes nothing and does not touch its neighbours. A key MUST NOT
  stand in two groups of one call, nor twice in a group.
- Writing over an ephemeral record without a session makes it an ordinary one, and the other way round.

Keys are made as those of objects are: `/`-joined parts of [A-Za-z0-9._=-], no part empty, longer than 255, `.` or `..`,
no key goes on where another one ends (`a` and `a/b`); up to 512 bytes, in byte order. The bounds of a range may be any
ASCII. Values are bytes of up to 1 MiB. A put that breaks one of these rules is Rejected where the backend can see it.
Who may change which key under which condition is catalogued in `catena.meta.keys`.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import NamedTuple, Protocol, TypeAlias

from catena.errors import Rejected
from catena.types import ABSENT, ANY, Expect, Version

SCAN_LIMIT = 1000
MAX_KEY_BYTES = 512
MAX_VALUE_BYTES = 1 << 20

_PART = r"(?!\.{1,2}(?:/|\Z))[A-Za-z0-9._=-]{1,255}"
_KEY = re.compile(rf"{_PART}(?:/{_PART})*")


class Record(NamedTuple):
    key: str
    value: bytes
    version: Version


class Put(NamedTuple):
    key: str
    value: bytes
    expect: Version | Expect = ANY


class Delete(NamedTuple):
    key: str
    expect: Version | Expect = ANY


class Check(NamedTuple):
    """Writes nothing; the group is refused unless the record is as expected."""

    key: str
    expect: Version | Expect


Op: TypeAlias = Put | Delete | Check
Group: TypeAlias = Sequence[Op]


class Committed(NamedTuple):
    """The group was applied; `versions` has the new version of each Put, None for other operations, in their order."""

    versions: tuple[Version | None, ...]


class Refused(NamedTuple):
    """The group was not applied; `found` has the record of each operation's key as it was then (None: absent)."""

    found: tuple[Record | None, ...]


GroupResult: TypeAlias = Committed | Refused


class Watch(Protocol):
    async def changed(self) -> None:
        """Return once something under the prefix may have changed since the watch began or last returned."""

    def close(self) -> None: ...


class Session(Protocol):
    """Kept alive by the backend in the background until it is closed or lost."""

    @property
    def id(self) -> str: ...

    @property
    def alive(self) -> bool:
        """False once the session is known to be closed or lost; True proves nothing."""

    async def close(self) -> None:
        """End the session and delete its records."""


class MetaStore(Protocol):
    @property
    def can_transact(self) -> bool: ...

    async def get(self, key: str) -> Record | None: ...

    async def put(
        self, key: str, value: bytes, expect: Version | Expect = ANY, ephemeral: Session | None = None
    ) -> Version: ...

    async def delete(self, key: str, expect: Version | Expect = ANY) -> None:
        """With ANY, deleting what is absent is fine."""

    async def ceiling(self, key: str, end: str) -> Record | None:
        """The first record with `key <= its key < end`."""

    async def scan(self, start: str, end: str, limit: int = SCAN_LIMIT) -> list[Record]:
        """Up to `limit` records with `start <= key < end`, in order."""

    async def delete_range(self, start: str, end: str) -> None:
        """Delete all records with `start <= key < end`; not atomic, and safe to repeat."""

    async def transact(self, groups: Sequence[Group]) -> list[GroupResult]:
        """Apply each group atomically, all in one round trip. OutcomeUnknown speaks of the whole call."""

    def watch(self, prefix: str) -> Watch:
        """Of all keys that begin with `prefix`, which ends with `/`; or of one key, which is then given whole.

        Where stores have to be polled, one key is looked at every second, and a prefix where nothing changes every
        half minute.
        """

    async def session(self, ttl_ms: int) -> Session: ...

    async def close(self) -> None: ...


def check_put(key: str, value: bytes) -> None:
    """Raise Rejected for a record that no backend may take."""
    if len(key) > MAX_KEY_BYTES or _KEY.fullmatch(key) is None:
        raise Rejected(f"{key!r} cannot be a meta key: see catena.meta.base for what can")
    if len(value) > MAX_VALUE_BYTES:
        raise Rejected(f"the value of {key} has {len(value)} bytes, and {MAX_VALUE_BYTES} is the limit")


def check_groups(groups: Sequence[Group]) -> None:
    """Raise Rejected for groups that no backend may take."""
    seen: set[str] = set()
    for group in groups:
        for op in group:
            if op.key in seen:
                raise Rejected(f"{op.key} stands twice in one transact")
            seen.add(op.key)
            if isinstance(op, Put):
                check_put(op.key, op.value)


def expected(expect: Version | Expect, found: Version | None) -> bool:
    """Whether a record of version `found` (None: absent) is what a write expects."""
    return expect is ANY or (found is None if expect is ABSENT else expect == found)
