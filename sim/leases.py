"""Clients that hold a lease: an ephemeral record, created where there is none, of a session that is kept alive.

What a session promises: while its owner believes in it, its records are there, and so nobody else's are in their place.
That has to hold through renewals that fail or come late and through pauses of the owner, who wakes up long after the
store has given its record to another. And a lease whose owner died is free again some time later.
"""

from __future__ import annotations

from contextlib import suppress

from catena.errors import Conflict, OutcomeUnknown, RetryLater, SessionExpired
from catena.meta.base import Session
from catena.node import Node
from catena.types import ABSENT
from sim.checker import Violation
from sim.clients import NOT_DONE, NOT_KNOWN, Client
from sim.cluster import LEASE, LogMachine

TTL_MS = (300, 1500, 6000)
HELD_S = 6.0
LOOKS = 12
"""How often the owner of a lease asks itself whether it still has it."""


async def hold(client: Client) -> None:
    for _ in range(client.random.randint(1, 4)):
        await client.think(0.5)
        machine = client.some_machine()
        try:
            await machine.call(lambda node: _hold(client, node), 2 * HELD_S)
        except (*NOT_DONE, *NOT_KNOWN) as error:
            client.history.note(f"{client.name} lease on {machine.name}: {type(error).__name__}")


async def take_at_last(client: Client, machine: LogMachine) -> None:
    """After healing: whoever held the lease is gone, or has let it go."""
    if not await machine.call(lambda node: _hold(client, node)):
        client.world.violations.append(Violation("liveness", f"{machine.name} does not get the lease after healing"))


async def _hold(client: Client, node: Node) -> bool:
    """Take the lease, look at it for a while, and let it go; whether it was free. Runs in the node's process."""
    session = await node.meta.session(client.random.choice(TTL_MS))
    try:
        if not await _take(node, session):
            return False
        client.history.note(f"{client.name} has the lease by {session.id}")
        for _ in range(LOOKS):
            _check(client, session)
            await node.clock.sleep(HELD_S / LOOKS * 2 * client.random.random())
        _check(client, session)
        return True
    finally:
        with suppress(RetryLater, OutcomeUnknown):  # then it is not kept alive any more, and expires
            await session.close()


async def _take(node: Node, session: Session) -> bool:
    try:
        await node.meta.put(LEASE, session.id.encode(), ABSENT, session)
    except (Conflict, SessionExpired):
        return False
    except OutcomeUnknown:
        record = await node.meta.get(LEASE)
        return record is not None and record.value == session.id.encode()
    return True


def _check(client: Client, session: Session) -> None:
    if session.alive and client.world.holder() != session.id:
        what = f"{client.name} believes in {session.id}, and {client.world.holder()} has the lease"
        client.world.violations.append(Violation("session", what))
