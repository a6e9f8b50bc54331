"""A node that serves: stores, node, membership, coordinator, broker, listeners, started and ended in this order.

    start:  stores -> node -> listeners are bound -> joined, others see it -> requests are answered
    end:    it leaves, others take over -> what was taken is answered -> connections, node and stores are closed

A request that comes in before the node has joined waits until it has: the client found the port, and the answer to its
first question names the node itself.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from importlib.metadata import version

from catena.broker.base import Answer, Client
from catena.broker.broker import Broker
from catena.broker.coordinator import Coordinator
from catena.broker.server import Server
from catena.cluster.membership import Membership
from catena.cluster.view import Address, NodeProfile
from catena.config import Settings
from catena.node import Node
from catena.runtime import Clock, Entropy, Network, SystemClock, SystemEntropy, SystemNetwork
from catena.stores import open_stores
from catena.virtual_log.topic_view import TopicView
from catena.wire.requests import Request

log = logging.getLogger(__name__)


class ServingNode:
    """What runs; made by `serve`."""

    def __init__(self, settings: Settings, node: Node, server: Server, membership: Membership) -> None:
        self.settings = settings
        self.node = node
        self.server = server
        self.membership = membership

    @property
    def is_ready(self) -> bool:
        """Whether others see this node, so that clients are sent to it."""
        return self.membership.alive

    def address(self, listener: str = "main") -> Address:
        """What clients are told."""
        return self.membership.record.listeners[listener]


class _Gate:
    """Requests wait here until there is a broker."""

    def __init__(self) -> None:
        self._broker: asyncio.Future[Broker] = asyncio.get_running_loop().create_future()

    def open(self, broker: Broker) -> None:
        self._broker.set_result(broker)

    async def handle(self, request: Request, client: Client) -> Answer:
        return await (await asyncio.shield(self._broker)).handle(request, client)


@asynccontextmanager
async def serve(
    settings: Settings,
    clock: Clock | None = None,
    entropy: Entropy | None = None,
    network: Network | None = None,
) -> AsyncIterator[ServingNode]:
    """A node that serves for as long as the context lasts. When it ends what was taken is answered first."""
    clock, entropy = clock or SystemClock(), entropy or SystemEntropy()
    async with AsyncExitStack() as opened:
        stores = await opened.enter_async_context(open_stores(settings, clock, entropy))
        node = await Node.start(settings, stores.meta, stores.objects, clock, entropy)
        opened.push_async_callback(node.close)
        view = TopicView(stores.meta, clock)
        await view.start()
        opened.push_async_callback(view.close)
        gate = _Gate()
        server = Server(network or SystemNetwork(), clock, gate.handle, settings.kafka.connections)
        opened.push_async_callback(server.close)
        listeners = await _listen(server, settings)
        profile = NodeProfile(
            listeners=listeners, rack=settings.node.rack, roles=settings.node.roles, version=version("catena-log")
        )
        membership = await Membership.join(stores.meta, clock, entropy, profile, settings.node.id, settings.cluster)
        opened.push_async_callback(membership.close)
        coordinator = Coordinator(stores.meta, membership, view, clock, entropy)
        await coordinator.start()
        opened.push_async_callback(coordinator.close)
        broker = Broker(
            node.cluster_id,
            stores.meta,
            membership,
            node.topics,
            view,
            node.open_log,
            coordinator,
            clock,
            entropy,
            settings.kafka.topics,
        )
        opened.push_async_callback(broker.close)
        gate.open(broker)
        log.info("node %d serves at %s", membership.node_id, ", ".join(f"{n}={a}" for n, a in listeners.items()))
        try:
            yield ServingNode(settings, node, server, membership)
        finally:
            log.info("node %d ends", membership.node_id)
            await membership.close()
            await server.drain(settings.kafka.drain_max_ms / 1000)


async def _listen(server: Server, settings: Settings) -> dict[str, Address]:
    addresses = {}
    for name, listener in settings.kafka.listeners.items():
        port = await server.listen(name, listener.host, listener.port)
        addresses[name] = Address(listener.advertised_host or listener.host, listener.advertised_port or port)
    return addresses
