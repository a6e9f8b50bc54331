"""Linearizable reads of control records, those that are asked for at one moment in one call.

A thousand long polls that end together, or a consumer of a thousand partitions, ask for a thousand tails. Where the
store can transact they become one call of checks against what this node knows: a record that nobody else has changed
since is not even sent.
"""

from __future__ import annotations

import asyncio
from itertools import islice
from typing import TypeAlias

from catena.errors import CatenaError, OutcomeUnknown, StoreUnavailable
from catena.loglets.diskless.partition import Partition
from catena.loglets.diskless.records import Control, decode_control
from catena.meta import keys
from catena.meta.base import Check, Committed, MetaStore, Record
from catena.runtime import Tasks, shielded

_Waiter: TypeAlias = asyncio.Future[Control | None]

MAX_CHECKS = 1000
CALLS_AT_ONCE = 4


class Controls:
    def __init__(self, meta: MetaStore, tasks: Tasks) -> None:
        self._meta = meta
        self._tasks = tasks
        self._waiting: dict[Partition, _Waiter] = {}
        self._calls = 0
        self._scheduled = False

    async def read(self, partition: Partition) -> Control | None:
        """The record as it is at some moment of the call."""
        if not self._meta.can_transact or self._tasks.closed:
            return _seen(partition, await self._meta.get(keys.control(partition.tp)))
        waiter = self._waiting.get(partition)
        if waiter is None:
            waiter = self._waiting[partition] = asyncio.get_running_loop().create_future()
            if not self._scheduled and self._calls < CALLS_AT_ONCE:
                # Not yet: what else is asked for in this turn of the loop comes along.
                self._scheduled = True
                asyncio.get_running_loop().call_soon(self._begin)
        return await shielded(waiter)

    def _begin(self) -> None:
        self._scheduled = False
        if self._tasks.closed:
            self._fail(self._waiting, StoreUnavailable("the node is shutting down"))
        elif self._waiting and self._calls < CALLS_AT_ONCE:
            self._calls += 1
            self._tasks.spawn("read control records", self._serve())

    async def _serve(self) -> None:
        try:
            while self._waiting:
                some = dict(islice(self._waiting.items(), MAX_CHECKS))
                for partition in some:
                    del self._waiting[partition]
                await self._answer(some)
        finally:
            self._calls -= 1
            if self._tasks.closed:
                self._begin()

    async def _answer(self, some: dict[Partition, _Waiter]) -> None:
        try:
            controls = await self._load(list(some))
        except OutcomeUnknown as error:
            self._fail(some, StoreUnavailable(str(error)))  # nothing was to be written
        except CatenaError as error:
            self._fail(some, error)
        except BaseException:
            self._fail(some, StoreUnavailable("the node is shutting down"))
            raise
        else:
            for (partition, waiter), control in zip(some.items(), controls, strict=True):
                if isinstance(control, CatenaError):
                    self._fail({partition: waiter}, control)
                else:
                    waiter.set_result(control)

    def _fail(self, waiting: dict[Partition, _Waiter], error: CatenaError) -> None:
        for waiter in waiting.values():
            waiter.set_exception(error)
            waiter.exception()  # whoever asked may be gone
        waiting.clear()

    async def _load(self, partitions: list[Partition]) -> list[Control | CatenaError | None]:
        if len(partitions) == 1:
            (partition,) = partitions
            return [_decoded(partition, await self._meta.get(keys.control(partition.tp)))]
        known = [(partition.expect, partition.control) for partition in partitions]
        checks = [
            [Check(keys.control(partition.tp), expect)]
            for partition, (expect, _) in zip(partitions, known, strict=True)
        ]
        results = await self._meta.transact(checks)
        return [
            control if isinstance(result, Committed) else _decoded(partition, result.found[0])
            for partition, (_, control), result in zip(partitions, known, results, strict=True)
        ]


def _decoded(partition: Partition, record: Record | None) -> Control | CatenaError | None:
    """One that can't be read is an error of its own partition only."""
    try:
        return _seen(partition, record)
    except CatenaError as error:
        return error


def _seen(partition: Partition, record: Record | None) -> Control | None:
    if record is None:
        return None
    control = decode_control(record.key, record.value)
    partition.see_tail(control.next)
    return control
