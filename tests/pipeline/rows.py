"""Tasks that list rows, done by real workers."""

from __future__ import annotations

import msgspec

from catena.errors import StoreUnavailable
from catena.pipeline.tasks import TaskContext
from catena.pipeline.tasks.listing import Listed


async def list_rows(name: str, context: TaskContext, plan: bytes) -> bytes:
    match name:
        case "numbers":
            start, end = map(int, plan.split())
            await context.objects.put(f"listed/{start}-{context.entropy.hex_id()}", [b""])
            listed = Listed([f"row/{number}" for number in range(start, end)], list(range(start, end)), {"tasks": 1})
            return msgspec.msgpack.encode(listed)
        case "fail":
            raise ValueError(f"{plan.decode()} is no good")
        case "fail later":
            raise StoreUnavailable("the store is down")
        case _:
            raise AssertionError(name)
