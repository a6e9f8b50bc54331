"""Nodes that trim by the topics' configs, with the product's own rules, while others tier and read."""

from __future__ import annotations

from typing import Any, cast

from catena.node import Node
from catena.pipeline.retention import Kept, Trimmed, trim_all
from catena.types import Offset
from catena.virtual_log.log import VirtualLog
from sim.checker import Violation
from sim.clients import NOT_DONE, NOT_KNOWN, Client
from sim.history import LogId, Trim


async def retain(client: Client) -> None:
    """Rounds over all partitions, each on any node."""
    for _ in range(client.random.randint(2, 6)):
        await client.think(client.random.choice((0.2, 1.0, 5.0)))
        try:
            await client.some_machine().call(lambda node: _round(client, node))
        except (*NOT_DONE, *NOT_KNOWN) as error:
            client.history.note(f"{client.name} retention: {type(error).__name__}: {error}")


async def _round(client: Client, node: Node) -> None:
    topics = await node.topics.list()
    calls = {
        (topic.name, number): Trim(LogId(topic.name, topic.topic_id, number), client.name, 0)
        for topic in topics
        for number in range(topic.partitions)
    }
    for call in calls.values():
        client.history.invoke(call, "retention")
    kept = [
        Kept(topic, cast(VirtualLog, _Noted(node.open_log(topic, number), calls[topic.name, number])))
        for topic in topics
        for number in range(topic.partitions)
    ]
    trimmed = await trim_all(kept, node.topics.get, node.clock, dry_run=False)
    failed = {(each.topic, each.partition): each for each in trimmed if each.error}
    for at, call in calls.items():
        _settle(client, call, failed.get(at))


def _settle(client: Client, call: Trim, failed: Trimmed | None) -> None:
    if failed is None:
        client.history.ok(call, str(call.offset))
        return
    client.history.unknown(call, failed.error)
    if failed.error.startswith("Corrupt"):
        client.world.violations.append(Violation("corrupt", f"{client.name} {failed}"))


class _Noted:
    """A log, and the call in the history that says what it is trimmed to: before it is, whatever comes of it."""

    def __init__(self, log: VirtualLog, call: Trim) -> None:
        self._log = log
        self._call = call

    def __getattr__(self, name: str) -> Any:
        return getattr(self._log, name)

    async def trim(self, offset: Offset) -> Offset:
        self._call.offset = offset
        return await self._log.trim(offset)
