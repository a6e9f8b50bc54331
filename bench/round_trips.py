"""Meta-store operations of one flush of 100 partitions, with `transact` and without."""

from __future__ import annotations

import asyncio
from collections import Counter
from pathlib import Path
from typing import Any

from bench.figures import Figure, at_most
from bench.stand import entry_of
from catena.config import Settings
from catena.meta.memory import MemoryMeta
from catena.node import Node
from catena.objects.memory import MemoryObjects
from catena.runtime import SystemClock, SystemEntropy

PARTITIONS = 100
COUNTED = ("get", "put", "delete", "ceiling", "scan", "delete_range", "transact")


class CountedMeta:
    """Forwards to a meta store and counts its operations."""

    def __init__(self, meta: MemoryMeta) -> None:
        self._meta = meta
        self.counts: Counter[str] = Counter()

    def __getattr__(self, name: str) -> Any:
        found = getattr(self._meta, name)
        if name not in COUNTED:
            return found

        async def counted(*arguments: Any, **options: Any) -> Any:
            self.counts[name] += 1
            return await found(*arguments, **options)

        return counted


def run(_: Path) -> list[Figure]:
    grouped = asyncio.run(flush_twice(can_transact=True, idempotent=False))
    idempotent = asyncio.run(flush_twice(can_transact=True, idempotent=True))
    pending = asyncio.run(flush_twice(can_transact=False, idempotent=False))
    pending_idempotent = asyncio.run(flush_twice(can_transact=False, idempotent=True))
    return [
        at_most("round trips of the first flush, with transact", grouped[0], 2),
        at_most("round trips of the next flush, with transact", grouped[1], 2),
        at_most("round trips of the next flush, with transact, idempotent", idempotent[1], 2),
        at_most("operations a partition, first flush, without", pending[0] / PARTITIONS, 3),
        at_most("operations a partition, next flush, without", pending[1] / PARTITIONS, 3),
        Figure("operations a partition, next flush, without, idempotent", pending_idempotent[1] / PARTITIONS),
    ]


async def flush_twice(can_transact: bool, idempotent: bool) -> list[int]:
    """Operations of two flushes, each of a batch for every partition."""
    clock, entropy = SystemClock(), SystemEntropy()
    meta = CountedMeta(MemoryMeta(clock, can_transact))
    node = await Node.start(Settings(), meta, MemoryObjects(clock), clock, entropy)
    await node.topics.create("bench", PARTITIONS)
    logs = [await node.log("bench", number) for number in range(PARTITIONS)]
    for log in logs:
        await log.chain()
    counts = []
    for sequence in range(2):
        meta.counts.clear()
        entries = [
            entry_of([b"x"], producer=(number, sequence) if idempotent else None) for number in range(PARTITIONS)
        ]
        await asyncio.gather(*(log.append(entry) for log, entry in zip(logs, entries, strict=True)))
        await node.drain()
        counts.append(sum(meta.counts.values()))
    await node.close()
    return counts
