"""Read partitions at their tail over HTTP, by long polls: partitions with the same owners are asked for together."""

from __future__ import annotations

import asyncio
import os
from typing import Any

import msgspec

from catena.loadtest.hammers.base import Orders, Tally
from catena.loadtest.http_client import HttpClient, NotSent
from catena.loadtest.records import due_s
from catena.loadtest.routing import Router
from catena.runtime import Clock, Tasks

MAX_WAIT_MS = 500
MAX_BYTES = 4 << 20
PAUSE_S = 0.1
LOOK_S = 0.05


class Found(msgspec.Struct):
    """Of one partition."""

    topic: str
    partition: int
    ok: bool = True
    records: list[Any] = []
    next_offset: int | None = None
    error_type: str = ""


class Results(msgspec.Struct):
    results: list[Found]


async def consume_over_http(orders: Orders, clock: Clock) -> None:
    order = orders.order
    start = await asyncio.get_running_loop().run_in_executor(None, orders.wait_for_start)
    tally, router = Tally(order, start), Router(order.manifest, reads=True)
    offsets = dict(zip(order.places, order.starts, strict=True))
    groups: dict[tuple[str, ...], dict[tuple[str, int], int]] = {}
    for place, offset in offsets.items():
        groups.setdefault(router.owners(place), {})[place] = offset
    tasks = Tasks(order.name)
    for number, group in enumerate(groups.values()):
        tasks.spawn(f"group {number}", _Reader(orders, router, tally, clock, group).read())
    while not orders.stopped.is_set():
        tally.tell(clock.monotonic())
        await clock.sleep(LOOK_S)
    await tasks.close()
    tally.tell(clock.monotonic(), last=True)


class _Reader:
    """Of partitions that have the same owners."""

    def __init__(
        self, orders: Orders, router: Router, tally: Tally, clock: Clock, offsets: dict[tuple[str, int], int]
    ) -> None:
        order = orders.order
        token = os.environ.get("CATENA_TOKEN", "")
        self._clients = {
            name: HttpClient(address, order.http_load.timeout_s, token) for name, address in order.http.items()
        }
        self._router, self._tally, self._clock = router, tally, clock
        self._offsets = offsets

    async def read(self) -> None:
        first = next(iter(self._offsets))
        try:
            while True:
                node = self._router.choose(first, self._clock.monotonic())
                if node is None or not await self._poll(node):
                    await self._clock.sleep(PAUSE_S)
        finally:
            for client in self._clients.values():
                client.close()

    async def _poll(self, node: str) -> bool:
        """False if there is a reason to wait before the next one."""
        wanted = [
            {"topic": topic, "partition": partition, "fetch_offset": offset}
            for (topic, partition), offset in self._offsets.items()
        ]
        request = {"topic_partitions": wanted, "max_wait_ms": MAX_WAIT_MS, "min_bytes": 1, "max_bytes": MAX_BYTES}
        try:
            answer = await self._clients[node].ask("POST", "/consume", msgspec.json.encode(request))
        except (NotSent, OSError) as error:
            why = str(error) or type(error).__name__
            self._tally.error(why)
            self._tally.remap(self._router.fails(node, why, self._clock.monotonic()))
            return False
        self._tally.remap(self._router.works(node, self._clock.monotonic()))
        try:
            results = msgspec.json.decode(answer.body, type=Results).results
        except msgspec.MsgspecError:
            self._tally.error(f"HTTP {answer.status}")
            return False
        now = self._clock.monotonic()
        for found in results:
            self._take(found, now)
        return all(found.ok for found in results)

    def _take(self, found: Found, now: float) -> None:
        if not found.ok:
            self._tally.error(found.error_type or "refused")
            return
        for record in found.records:
            try:
                self._tally.read(due_s(record), now, len(record))
            except (TypeError, ValueError):
                self._tally.error("a record that no hammer has sent")
        if found.next_offset is not None:
            self._offsets[found.topic, found.partition] = found.next_offset
