"""A process that uses the meta store in a file; its parent reads its lines, and may kill it."""

from __future__ import annotations

import asyncio
import sys
from pathlib import Path

from catena.errors import Conflict
from catena.meta.base import Committed, Put, Record
from catena.meta.sqlite import SqliteMeta
from catena.runtime import SystemClock, SystemEntropy
from catena.types import ABSENT


def say(line: object) -> None:
    print(line, flush=True)


async def count(store: SqliteMeta) -> None:
    """Add one to a shared counter as often as possible, from when a line comes in and for the seconds it says."""
    found = await store.get("count")
    say("ready")
    seconds = float(sys.stdin.readline())
    clock = SystemClock()
    end = clock.monotonic() + seconds
    done = 0
    while clock.monotonic() < end:
        value = b"%d" % (int(found.value) + 1 if found else 1)
        try:
            version = await store.put("count", value, found.version if found else ABSENT)
        except Conflict as conflict:
            found = conflict.current
        else:
            found = Record("count", value, version)
            done += 1
    say(done)


async def register(store: SqliteMeta) -> None:
    """Put an ephemeral record and keep it alive for ever."""
    await store.put("nodes/a", b"", ephemeral=await store.session(ttl_ms=400))
    say("registered")
    await asyncio.Event().wait()


async def write_pairs(store: SqliteMeta) -> None:
    """Put pairs of records, several at a time, and say which are stored."""
    earlier = await store.scan("left/", "left0", limit=1_000_000)
    start = int(earlier[-1].value) + 1 if earlier else 0

    async def write(number: int) -> None:
        while True:
            value = b"%d" % number
            group = [Put(f"left/{number:06d}", value, ABSENT), Put(f"right/{number:06d}", value, ABSENT)]
            (result,) = await store.transact([group])
            assert isinstance(result, Committed)
            say(number)
            number += 8

    await asyncio.gather(*[write(start + lane) for lane in range(8)])


async def main() -> None:
    work = {"count": count, "register": register, "pairs": write_pairs}[sys.argv[1]]
    store = SqliteMeta(Path(sys.argv[2]), SystemClock(), SystemEntropy())
    await work(store)
    await store.close()


if __name__ == "__main__":
    asyncio.run(main())
