"""The object store: immutable-by-habit blobs under sorted string keys, with conditional writes.

Contract (the suite in `catena.testing.contracts.objects` runs it against every backend):

- A put is atomic: readers see the old object, or the whole new one, and never a torn one; after `put` returned the
  object survives a crash of the process and of the machine (as far as the medium can).
- `expect=ABSENT` MUST fail with Conflict when the key exists, `expect=<etag>` when the object has another etag or is
  gone; of several racing puts with the same expectation exactly one succeeds. This holds between processes.
- An etag changes with the content. Equal content may have equal etags (S3 hashes it), so whoever must tell A-B-A apart
  puts an id of its own into the content.
- Reads are read-after-write: what a put that returned wrote is seen by every get, head and list that starts later.
- `list` yields keys in byte order, all of those that exist during the whole call, each at most once.
- Errors: ObjectMissing (get, get_ranges, head of an absent key), Conflict, StoreUnavailable (nothing applied),
  OutcomeUnknown (a put or delete that may have been applied), StoreFull, StoreRefused. Deleting an absent key is fine.

Keys are relative, made of `/`-joined parts of [A-Za-z0-9._=-], no part empty, `.` or `..`; a part has up to 255
characters, a key up to 900. No key goes on where another one ends (`a` and `a/b`): a folder can't hold both.
A key that breaks these rules is a bug of the caller, and a ValueError where the backend can see it.
"""

from __future__ import annotations

import re
from collections.abc import AsyncIterator, Sequence
from typing import NamedTuple, Protocol

from catena.types import ANY, Buffer, Buffers, ETag, Expect

MAX_KEY_CHARS = 900
_PART = r"(?!\.{1,2}(?:/|\Z))[A-Za-z0-9._=-]{1,255}"
_KEY = re.compile(rf"{_PART}(?:/{_PART})*")


def check_key(key: str) -> None:
    """Raise ValueError unless `key` is made as the contract says."""
    if len(key) > MAX_KEY_CHARS or not _KEY.fullmatch(key):
        raise ValueError(f"{key!r} cannot be the key of an object: see catena.objects.base for what can")


class ObjectInfo(NamedTuple):
    key: str
    size: int
    etag: ETag
    modified_ms: int


class Blob(NamedTuple):
    data: bytes
    etag: ETag


class Range(NamedTuple):
    """Bytes [start, start + length) of an object."""

    start: int
    length: int


class ObjectStore(Protocol):
    async def put(self, key: str, data: Buffers, expect: Expect | ETag = ANY) -> ETag:
        """Store the concatenation of `data` under `key`. The buffers are not kept and not changed."""

    async def get(self, key: str) -> Blob: ...

    async def get_ranges(self, key: str, ranges: Sequence[Range]) -> list[Buffer]:
        """The bytes of each range, in the order asked. A range past the end of the object raises Corrupt.

        A range of length 0 is empty and reads nothing: when all are, not even an absent object is noticed. While an
        object is replaced, ranges of one call may come from the old and the new one.
        """

    async def head(self, key: str) -> ObjectInfo: ...

    def list(self, prefix: str, after: str = "") -> AsyncIterator[ObjectInfo]:
        """Objects whose key starts with `prefix` and is greater than `after`, in byte order of their keys."""

    async def delete(self, keys: Sequence[str]) -> None: ...

    async def close(self) -> None: ...
