"""The data source `mortal`: as `catena`, but the process that commits is killed at a step, as by `kill -9`.

Spark makes that process, so it can't be reached from a test otherwise.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from typing import Any, TypeVar

from pyspark.sql.datasource import WriterCommitMessage
from pyspark.sql.types import StructType

from catena.config import Settings
from catena.runtime import Clock, Entropy
from catena.source.spark import write_process
from catena.source.spark.datasource import CatenaSource
from catena.source.spark.writers import StreamWriter
from catena.source.write_options import parse_stream_write
from catena.stores import Stores, open_stores
from catena.testing.faults import Faults, FaultyMeta, FaultyObjects, Kill

T = TypeVar("T")

STEP = "killatstep"
ON_WRITES = ("put ", "delete ", "delete_range ", "transact")


class Killing(Faults):
    """At the nth step that writes: before it is done, or, if the number is odd, after it."""

    def __init__(self, at: int) -> None:
        super().__init__()
        self._left = at // 2 + 1
        self._kill = Kill(applied=bool(at % 2))

    async def take(self, step: str, apply: Callable[[], Awaitable[T]]) -> T:
        if step.startswith(ON_WRITES):
            self._left -= 1
            if self._left == 0:
                await self._kill.strike(apply)
        return await super().take(step, apply)


class MortalWriter(StreamWriter):
    def __init__(self, at: int, options: dict[str, str], schema: StructType, overwrite: bool) -> None:
        super().__init__(parse_stream_write(options), schema, overwrite)
        self._at = at

    def commit(self, messages: list[WriterCommitMessage | None], batchId: int) -> None:
        faults = Killing(self._at)

        @asynccontextmanager
        async def open_faulty(settings: Settings, clock: Clock, entropy: Entropy) -> AsyncIterator[Stores]:
            async with open_stores(settings, clock, entropy) as stores:
                yield stores._replace(
                    meta=FaultyMeta(stores.meta, faults), objects=FaultyObjects(stores.objects, faults)
                )

        vars(write_process)["open_stores"] = open_faulty
        super().commit(messages, batchId)


class MortalSource(CatenaSource):
    @classmethod
    def name(cls) -> str:
        return "mortal"

    def streamWriter(self, schema: StructType, overwrite: bool) -> StreamWriter:
        options: dict[str, Any] = dict(self.options)
        at = int(next(options.pop(name) for name in list(options) if name.lower() == STEP))
        return MortalWriter(at, options, schema, overwrite)
