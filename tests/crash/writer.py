"""A process that writes to a log, says on its standard output what was acked, and dies at the step it is told.

It is started as `python -m tests.crash.writer PLAN`, with the plan as JSON. What was written to the pipe before the end
can be read from it afterwards, so every ack that a client can have got is known.
"""

from __future__ import annotations

import asyncio
import os
import sys
from collections.abc import AsyncIterator, Awaitable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Literal

import msgspec

from catena.config import Settings
from catena.loglets.base import Entry
from catena.meta.base import MetaStore
from catena.meta.object_storage import ObjectMeta
from catena.meta.postgres import PostgresMeta
from catena.meta.sqlite import SqliteMeta
from catena.node import Node
from catena.objects.base import ObjectStore
from catena.objects.folder import FolderObjects
from catena.runtime import Disk, SystemClock, SystemEntropy
from catena.testing.contracts.loglet import Stamp, make_entry
from catena.testing.faults import Faults, FaultyMeta, FaultyObjects, Kill
from catena.types import Offset

TOPIC = "topic"
PARTITIONS = 2


class Place(msgspec.Struct, frozen=True):
    """Where the stores are."""

    backend: str
    """Of the meta store; its objects are in a folder in any case."""
    folder: str
    dsn: str = ""
    schema: str = ""


class Death(msgspec.Struct, frozen=True):
    """When the process is to die: the nth time, counted from the moment it is armed, that it takes this step."""

    step: str
    nth: int = 1
    applied: bool = False


class Plan(msgspec.Struct, frozen=True):
    place: Place
    name: str
    """What its values begin with."""
    producer_id: int
    rounds: int
    """Of appends; in each, two to the first partition, one of them idempotent, and one to the second."""
    death: Death | None = None
    armed_after: int = 0
    """Rounds."""
    then: Literal["end", "reconfigure"] = "end"


@asynccontextmanager
async def open_stores(place: Place, transact: bool | None = None) -> AsyncIterator[tuple[MetaStore, ObjectStore]]:
    """`transact`: whether the meta store is used with it, where it could be; None: as the place says."""
    clock, entropy, disk = SystemClock(), SystemEntropy(), Disk(threads=2)
    backend, _, without = place.backend.partition(" without ")
    can_transact = not without if transact is None else transact
    objects = await FolderObjects.open(Path(place.folder) / "objects", disk, clock, entropy)
    meta: MetaStore
    match backend:
        case "sqlite":
            meta = SqliteMeta(Path(place.folder) / "meta.db", clock, entropy, can_transact)
        case "postgres":
            meta = PostgresMeta(place.dsn, clock, entropy, place.schema, can_transact)
        case "objects":
            meta = ObjectMeta(objects, clock, entropy)
        case _:
            raise AssertionError(backend)
    try:
        yield meta, objects
    finally:
        await meta.close()
        disk.close()


async def write(plan: Plan) -> None:
    async with open_stores(plan.place) as (meta, objects):
        faults = Faults()
        node = await Node.start(
            Settings(), FaultyMeta(meta, faults), FaultyObjects(objects, faults), SystemClock(), SystemEntropy()
        )
        for number in range(plan.rounds):
            if number == plan.armed_after:
                arm(faults, plan)
            await write_round(node, plan, number)
            await node.drain()
        if plan.rounds == plan.armed_after:
            arm(faults, plan)
        if plan.then == "reconfigure":
            await (await node.log(TOPIC, 0)).reconfigure("diskless")
            say("reconfigured")
        await node.close()


def arm(faults: Faults, plan: Plan) -> None:
    if plan.death is not None:
        faults.at(plan.death.step, Kill(plan.death.applied), plan.death.nth)


async def write_round(node: Node, plan: Plan, number: int) -> None:
    first, second = await node.log(TOPIC, 0), await node.log(TOPIC, 1)
    stamped = make_entry(f"{plan.name}-idempotent-{number}", stamp=Stamp(plan.producer_id, 0, number))

    async def told(value: str, partition: int, append: Awaitable[Offset]) -> None:
        say(f"try {partition} {value}")
        say(f"ack {partition} {value} {await append}")

    await asyncio.gather(
        told(f"{plan.name}-plain-{number}", 0, first.append(plain(f"{plan.name}-plain-{number}"))),
        told(f"{plan.name}-idempotent-{number}", 0, first.append(stamped)),
        told(f"{plan.name}-other-{number}", 1, second.append(plain(f"{plan.name}-other-{number}"))),
    )


def plain(value: str) -> Entry:
    return make_entry(value)


def say(line: str) -> None:
    os.write(sys.stdout.fileno(), f"{line}\n".encode())


if __name__ == "__main__":
    asyncio.run(write(msgspec.json.decode(sys.argv[1], type=Plan)))
