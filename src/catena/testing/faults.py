"""Stores that fail, stall or kill the process at a named step, around real ones: what is not struck is forwarded.

A step is an operation and the kind of record it touches: "put control", "get chain", "scan index", "transact",
"blob put". The kinds are those of the catalogue in `catena.meta.keys`. Faults are armed by step and number, strike
once, and then the step works again:

    faults = Faults()
    meta = FaultyMeta(store, faults)
    stall = faults.at("put index", Stall())                            # the next one waits for `stall.let_go()`
    faults.at("put control", Fail(OutcomeUnknown("..."), applied=True), nth=2)

Every fault can strike before the real store applies the step or after it (`applied=True`): the two ways in which an
answer can be missing.
"""

from __future__ import annotations

import asyncio
import os
import signal
from collections import Counter
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from typing import Any, NoReturn, Protocol, TypeVar

from catena.errors import CatenaError, OutcomeUnknown
from catena.meta import keys
from catena.meta.base import SCAN_LIMIT, Group, GroupResult, MetaStore, Record, Session, Watch
from catena.objects.base import Blob, ObjectInfo, ObjectStore, Range
from catena.types import ANY, Buffer, Buffers, ETag, Expect, Version

T = TypeVar("T")


class Fault(Protocol):
    async def strike(self, apply: Callable[[], Awaitable[Any]]) -> Any:
        """Stand in for the step; `apply` does it."""


FaultT = TypeVar("FaultT", bound=Fault)


class Fail:
    """The caller is told this error; the step is done all the same if `applied`."""

    def __init__(self, error: CatenaError, applied: bool = False) -> None:
        self._error = error
        self._applied = applied

    async def strike(self, apply: Callable[[], Awaitable[Any]]) -> NoReturn:
        if self._applied:
            await apply()
        raise self._error


class Stall:
    """The step waits until it is let go; whoever tests waits until it is `reached`."""

    def __init__(self, applied: bool = False) -> None:
        self._applied = applied
        self._gate = asyncio.Event()
        self.reached = asyncio.Event()

    async def strike(self, apply: Callable[[], Awaitable[Any]]) -> Any:
        if not self._applied:
            await self._wait()
            return await apply()
        result = await apply()
        await self._wait()
        return result

    def let_go(self) -> None:
        self._gate.set()

    async def _wait(self) -> None:
        self.reached.set()
        await self._gate.wait()


class Late:
    """The caller hears that the outcome is unknown; the step is done later, when the test calls `arrive`."""

    def __init__(self) -> None:
        self._apply: Callable[[], Awaitable[Any]] | None = None
        self.reached = asyncio.Event()

    async def strike(self, apply: Callable[[], Awaitable[Any]]) -> NoReturn:
        self._apply = apply
        self.reached.set()
        raise OutcomeUnknown("the request is still under way")

    async def arrive(self) -> Any:
        """What the store makes of it now."""
        assert self._apply is not None, "nothing is under way"
        return await self._apply()


class Kill:
    """The process ends as by `kill -9`."""

    def __init__(self, applied: bool = False) -> None:
        self._applied = applied

    async def strike(self, apply: Callable[[], Awaitable[Any]]) -> NoReturn:
        if self._applied:
            await apply()
        os.kill(os.getpid(), signal.SIGKILL)
        raise AssertionError("nobody survives this")


class Faults:
    """What is to strike where, and how often each step was taken, over all stores that are given it."""

    def __init__(self) -> None:
        self.taken: Counter[str] = Counter()
        self._armed: dict[tuple[str, int], Fault] = {}

    def at(self, step: str, fault: FaultT, nth: int = 1) -> FaultT:
        """Strike the nth time from now on that this step is taken."""
        when = (step, self.taken[step] + nth)
        assert when not in self._armed, f"{step} is armed already"
        self._armed[when] = fault
        return fault

    @property
    def armed(self) -> list[str]:
        """The steps that have not been struck yet."""
        return [step for step, _ in self._armed]

    async def take(self, step: str, apply: Callable[[], Awaitable[T]]) -> T:
        self.taken[step] += 1
        fault = self._armed.pop((step, self.taken[step]), None)
        if fault is None:
            return await apply()
        result: T = await fault.strike(apply)
        return result


def kind_of(key: str) -> str:
    """The kind of a record, or of the records that start with this prefix."""
    if key.startswith(keys.WAL_BLOBS):
        return "blob"
    if key.startswith(keys.TOPICS):
        return "topic"
    if key.startswith(keys.DELETED):
        return "deleted"
    _, _, in_partition = key.partition("/partitions/")
    parts = in_partition.split("/")
    if len(parts) < 3:
        return key.rpartition("/")[2]
    return parts[2] if parts[1] == "meta" else parts[1].removesuffix("s")


class FaultyMeta:
    def __init__(self, store: MetaStore, faults: Faults) -> None:
        self._store = store
        self._faults = faults

    @property
    def can_transact(self) -> bool:
        return self._store.can_transact

    async def get(self, key: str) -> Record | None:
        return await self._faults.take(f"get {kind_of(key)}", lambda: self._store.get(key))

    async def put(
        self, key: str, value: bytes, expect: Version | Expect = ANY, ephemeral: Session | None = None
    ) -> Version:
        step = f"put {kind_of(key)}"
        return await self._faults.take(step, lambda: self._store.put(key, value, expect, ephemeral))

    async def delete(self, key: str, expect: Version | Expect = ANY) -> None:
        await self._faults.take(f"delete {kind_of(key)}", lambda: self._store.delete(key, expect))

    async def ceiling(self, key: str, end: str) -> Record | None:
        return await self._faults.take(f"ceiling {kind_of(key)}", lambda: self._store.ceiling(key, end))

    async def scan(self, start: str, end: str, limit: int = SCAN_LIMIT) -> list[Record]:
        return await self._faults.take(f"scan {kind_of(start)}", lambda: self._store.scan(start, end, limit))

    async def delete_range(self, start: str, end: str) -> None:
        await self._faults.take(f"delete_range {kind_of(start)}", lambda: self._store.delete_range(start, end))

    async def transact(self, groups: Sequence[Group]) -> list[GroupResult]:
        return await self._faults.take("transact", lambda: self._store.transact(groups))

    def watch(self, prefix: str) -> Watch:
        return self._store.watch(prefix)

    async def session(self, ttl_ms: int) -> Session:
        return await self._store.session(ttl_ms)

    async def close(self) -> None:
        await self._store.close()


class FaultyObjects:
    def __init__(self, store: ObjectStore, faults: Faults) -> None:
        self._store = store
        self._faults = faults

    async def put(self, key: str, data: Buffers, expect: Expect | ETag = ANY) -> ETag:
        return await self._faults.take(f"{kind_of(key)} put", lambda: self._store.put(key, data, expect))

    async def get(self, key: str) -> Blob:
        return await self._faults.take(f"{kind_of(key)} get", lambda: self._store.get(key))

    async def get_ranges(self, key: str, ranges: Sequence[Range]) -> list[Buffer]:
        return await self._faults.take(f"{kind_of(key)} get_ranges", lambda: self._store.get_ranges(key, ranges))

    async def head(self, key: str) -> ObjectInfo:
        return await self._faults.take(f"{kind_of(key)} head", lambda: self._store.head(key))

    def list(self, prefix: str, after: str = "") -> AsyncIterator[ObjectInfo]:
        return self._store.list(prefix, after)

    async def delete(self, keys: Sequence[str]) -> None:
        await self._faults.take("delete objects", lambda: self._store.delete(keys))

    async def close(self) -> None:
        await self._store.close()
