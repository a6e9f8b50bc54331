"""Tasks that misbehave, done by real workers; what they share, they share through the object store."""

from __future__ import annotations

import gc
import os
import signal
from pathlib import Path

import msgspec

from catena.errors import Corrupt, StoreUnavailable
from catena.objects.base import Range
from catena.pipeline.spark.session import TRIES
from catena.pipeline.tasks import TaskContext

POLL_S = 0.02


class Seen(msgspec.Struct):
    pid: int
    frozen: int
    """Objects that the garbage collector looks at no more."""


async def run_deed(name: str, context: TaskContext, plan: bytes) -> bytes:
    match name:
        case "echo":
            return plan
        case "look around":
            return msgspec.json.encode(Seen(os.getpid(), gc.get_freeze_count()))
        case "fail":
            raise ValueError(f"{plan.decode()} is no good")
        case "fail later":
            raise StoreUnavailable("the store is down")
        case "find it damaged":
            raise Corrupt(f"object {plan.decode()} is damaged")
        case "copy":
            source, target = plan.decode().split()
            [half] = await context.objects.get_ranges(source, [Range(0, 500)])
            await context.objects.put(target, [half])
            return b"copied"
        case "wait":
            return await wait(context, plan.decode())
        case "meet":
            me, other = plan.decode().split()
            await context.objects.put(f"here/{me}", [b""])
            while not await exists(context, f"here/{other}"):
                await context.clock.sleep(POLL_S)
            return b"met"
        case "die":
            await die(context, plan)
            return plan
        case "die once":
            if plan == b"dies" and await is_first(context, "died"):
                os.kill(os.getpid(), signal.SIGKILL)
            return plan
        case "kill the executor once":
            if plan == b"kills" and await is_first(context, "killed"):
                os.kill(parent_of(os.getppid()), signal.SIGKILL)
            return plan
        case _:
            raise AssertionError(name)


async def wait(context: TaskContext, words: str) -> bytes:
    """`started/x go/y`: say that it has begun and by whom, then wait for the other; without `go` it never ends."""
    names = words.split()
    for name in names:
        if name.startswith("started/"):
            await context.objects.put(name, [str(os.getpid()).encode()])
    while not any([name.startswith("go/") and await exists(context, name) for name in names]):
        await context.clock.sleep(POLL_S)
    return b"went"


async def die(context: TaskContext, plan: bytes) -> None:
    """`dies` always does; `waits` does its work only once that has been given up, and has died some more."""
    if plan == b"dies":
        await context.objects.put(f"died/{context.entropy.hex_id()}", [b""])
        os.kill(os.getpid(), signal.SIGKILL)
    while plan == b"waits" and len([info async for info in context.objects.list("died/")]) <= TRIES:
        await context.clock.sleep(POLL_S)


async def exists(context: TaskContext, name: str) -> bool:
    return [info.key async for info in context.objects.list(name)] == [name]


async def is_first(context: TaskContext, name: str) -> bool:
    """Whether nobody has said so before."""
    if await exists(context, name):
        return False
    await context.objects.put(name, [b""])
    return True


def parent_of(pid: int) -> int:
    return int(Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[1])
