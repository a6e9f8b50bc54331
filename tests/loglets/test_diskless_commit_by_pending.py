"""What only the way without `transact` has to settle."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Any

import pytest

from catena.config import Settings
from catena.errors import Conflict, StoreUnavailable
from catena.meta.object_storage import ObjectMeta
from catena.node import Node
from catena.objects.memory import MemoryObjects
from catena.runtime import SystemClock, SystemEntropy
from catena.testing.contracts.loglet import make_entry
from catena.testing.faults import Fail, Faults, FaultyMeta
from catena.types import ANY, Buffers, ETag, Expect
from tests.virtual_log.cluster import read_all


class SendsTwice:
    """On the way to a store: sends one put of a control record again, and passes on the second answer only."""

    def __init__(self, objects: MemoryObjects) -> None:
        self._objects = objects
        self.meanwhile: Callable[[], Awaitable[object]] | None = None

    def __getattr__(self, name: str) -> Any:
        return getattr(self._objects, name)

    async def put(self, key: str, data: Buffers, expect: Expect | ETag = ANY) -> ETag:
        etag = await self._objects.put(key, data, expect)
        if self.meanwhile is not None and key.endswith("meta/control"):
            meanwhile, self.meanwhile = self.meanwhile, None
            await meanwhile()
            raise Conflict(key)
        return etag


@pytest.mark.parametrize("look_fails", [False, True])
async def test_a_commit_that_was_sent_twice_while_others_committed_is_made_once(look_fails: bool) -> None:
    clock, entropy = SystemClock(), SystemEntropy()
    objects = MemoryObjects(clock)
    proxy = SendsTwice(objects)
    faults = Faults()
    meta = FaultyMeta(ObjectMeta(proxy, clock, entropy), faults)
    node = await Node.start(Settings(), meta, objects, clock, entropy)
    other = await Node.start(Settings(), ObjectMeta(objects, clock, entropy), objects, clock, entropy)
    await node.topics.create("t")
    log, others_log = await node.log("t", 0), await other.log("t", 0)
    await log.append(make_entry("first"))
    proxy.meanwhile = lambda: others_log.append(make_entry("other"))
    if look_fails:
        faults.at("get index", Fail(StoreUnavailable("down")))
    assert await log.append(make_entry("once")) == 1
    assert not faults.armed
    assert await read_all(others_log) == ["first", "once", "other"]
    await node.close()
    await other.close()
