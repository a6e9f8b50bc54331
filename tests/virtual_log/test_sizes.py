"""Sizes of logs; estimates of large ones are in tests/broker/test_describe.py."""

from __future__ import annotations

from catena.config import Settings
from catena.loglets.memory import MemoryMedium
from catena.meta.memory import MemoryMeta
from catena.node import Node
from catena.objects.memory import MemoryObjects
from catena.runtime import SystemClock, SystemEntropy
from catena.testing.contracts.loglet import make_entry
from catena.virtual_log.sizes import estimated_size


async def test_a_log_of_few_runs_is_told_exactly() -> None:
    clock = SystemClock()
    meta = MemoryMeta(clock)
    node = await Node.start(Settings(), meta, MemoryObjects(clock), clock, SystemEntropy(), MemoryMedium())
    await node.topics.create("t")
    log = await node.log("t", 0)
    assert await estimated_size(log, await log.tail()) == 0
    entries = [make_entry("x" * 1000), make_entry("a", "b", "c")]
    for entry in entries:
        await log.append(entry)
    await node.drain()
    assert await estimated_size(log, await log.tail()) == sum(entry.size for entry in entries)
    await log.trim(1)
    assert await estimated_size(log, await log.tail()) == entries[1].size
    await node.close()
    await meta.close()
