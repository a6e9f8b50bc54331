"""Tells other nodes which keys changed, and wakes the watches of this one for what they tell.

PostgreSQL commits transactions that NOTIFY one after the other, in the whole database. So no write does: keys that
changed are collected for a few milliseconds after the commit, and sent as one small transaction on a connection that
serves for nothing else but this and to LISTEN. A signal gets lost when a node dies just then: a watch is a hint.

A connection that was lost is replaced, and then everybody is woken, since nobody knows what went by in between.
"""

from __future__ import annotations

import asyncio
from collections.abc import Collection, Iterable
from typing import Any

from catena.errors import CatenaError
from catena.meta.postgres.database import Database
from catena.meta.watches import Watches
from catena.runtime import Clock, Tasks

COLLECT_S = 0.003
PING_S = 10.0
RECONNECT_MIN_S = 0.1
RECONNECT_MAX_S = 5.0
PAYLOAD_BYTES_MAX = 7_900
PAYLOADS_MAX = 16
KEYS_MAX = 10_000
EVERYTHING = "*"

_NOTIFY = "SELECT pg_notify($1, payload) FROM unnest($2::text[]) AS payload"


class Signals:
    def __init__(self, database: Database, channel: str, clock: Clock, tasks: Tasks, watches: Watches) -> None:
        self._database = database
        self._channel = channel
        self._clock = clock
        self._tasks = tasks
        self._watches = watches
        self._changed: dict[str, None] = {}
        self._something_to_do = asyncio.Event()
        self._running = False

    def announce(self, keys: Iterable[str]) -> None:
        """Wake the watches of this node at once, and those of others soon, if `ensure_running` was called."""
        keys = list(keys)
        if not keys:
            return
        self._watches.wake(keys)
        self._changed.update(dict.fromkeys(keys))
        if len(self._changed) > KEYS_MAX:
            self._changed = {EVERYTHING: None}
        self._something_to_do.set()

    def ensure_running(self) -> None:
        if not self._running:
            self._running = True
            self._tasks.spawn("signals", self._run())
            self._tasks.spawn("signals ping", self._ping())

    async def _run(self) -> None:
        pause = RECONNECT_MIN_S
        while True:
            try:
                connection = await self._database.connect()
            except CatenaError:
                await self._clock.sleep(pause)
                pause = min(2 * pause, RECONNECT_MAX_S)
                continue
            pause = RECONNECT_MIN_S
            try:
                await self._serve(connection)
            except self._database.failures:
                self._watches.wake_all()
            finally:
                connection.terminate()

    async def _serve(self, connection: Any) -> None:
        own_pid = connection.get_server_pid()

        def heard(_connection: Any, pid: int, _channel: str, payload: str) -> None:
            if pid != own_pid:
                self._wake(payload)

        connection.add_termination_listener(lambda _: self._something_to_do.set())
        await connection.add_listener(self._channel, heard)
        self._watches.wake_all()
        while True:
            await self._something_to_do.wait()
            self._something_to_do.clear()
            await self._clock.sleep(COLLECT_S)
            sending, self._changed = self._changed, {}
            try:
                # With nothing to tell, this still shows whether the connection lives.
                await connection.execute(_NOTIFY, self._channel, payloads(sending))
            except BaseException:
                self._changed = sending | self._changed
                raise

    async def _ping(self) -> None:
        while True:
            await self._clock.sleep(PING_S)
            self._something_to_do.set()

    def _wake(self, payload: str) -> None:
        if payload == EVERYTHING:
            self._watches.wake_all()
        else:
            self._watches.wake(payload.split("\n"))


def payloads(keys: Collection[str]) -> list[str]:
    """The keys, joined to pieces that PostgreSQL takes; or the one that says everything, if they were too many."""
    pieces: list[str] = []
    for key in keys:
        if pieces and len(pieces[-1]) + 1 + len(key) <= PAYLOAD_BYTES_MAX:
            pieces[-1] += "\n" + key
        else:
            pieces.append(key)
    return pieces if len(pieces) <= PAYLOADS_MAX and EVERYTHING not in keys else [EVERYTHING]
