"""A node that serves: HTTP, stores, node, listeners, membership, coordinator, broker, started and ended in this order.

    start:  /health answers -> stores -> node -> listeners are bound -> joined, others see it -> requests are answered
    end:    it leaves, others take over -> what was taken is answered -> connections, node and stores are closed

A request that comes in before the node has joined waits until it has: the client found the port, and the answer to its
first question names the node itself. HTTP is there first and goes last, so that /ready can say that it is not.

All that a node writes goes through `node.meta` and `node.objects`, which take nothing once the meta store turns out to
have been set back (`virtual_log/incarnation.py`). Such a node serves what can be read, and is not ready.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator, Mapping
from contextlib import AsyncExitStack, asynccontextmanager
from importlib.metadata import version
from typing import NamedTuple

from catena.broker.base import Answer, AnswerBudget, Client, TopicDefaults
from catena.broker.broker import Broker
from catena.broker.coordinator import Coordinator
from catena.broker.request_counts import RequestCounts
from catena.broker.retention import Retention
from catena.broker.server import Server
from catena.cluster.membership import Membership
from catena.cluster.view import Address, NodeProfile
from catena.config import Settings
from catena.errors import ConfigError
from catena.http.base import Handler, Routes, not_any_more, not_yet
from catena.http.connection import HttpLimits
from catena.http.health import Health, NodeState, Status
from catena.http.server import HttpServer
from catena.metrics.http_counts import HttpCounts
from catena.metrics.node_metrics import PATHS as METRICS_PATHS
from catena.metrics.node_metrics import Counting, NodeMetrics
from catena.node import Node
from catena.rest.api import REST_PATHS, description_routes, rest_routes
from catena.rest.gate import Gate
from catena.runtime import Clock, Entropy, Network, SystemClock, SystemEntropy, SystemNetwork, Tasks, shielded
from catena.source.access import READ_PATHS, ReadAccess
from catena.stores import addresses_of_objects, open_stores, presigning
from catena.virtual_log.topic_view import TopicView
from catena.wire.requests import Request

log = logging.getLogger(__name__)

ALL_ADDRESSES = ("", "0.0.0.0", "::")

VERSION = version("catena-log")


class ServingNode:
    """What runs; made by `serve`."""

    def __init__(self, settings: Settings, node: Node, view: TopicView, server: Server, membership: Membership) -> None:
        self.settings = settings
        self.node = node
        self.view = view
        self.server = server
        self.membership = membership
        self.draining = False

    @property
    def is_ready(self) -> bool:
        """Whether others see this node, so that clients are sent to it, and it takes what they write."""
        return self.state.status == "ready"

    @property
    def state(self) -> NodeState:
        read_only = self.node.incarnation.read_only
        status: Status = "ready" if self.membership.alive else "unlisted"
        if self.draining:
            status = "draining"
        elif read_only is not None:
            status = "read-only"
        return NodeState(status, self.membership.node_id, self.node.cluster_id, read_only)

    @property
    def listeners(self) -> dict[str, Address]:
        """What clients are told, by the name of the listener that they come in through."""
        return self.membership.record.listeners

    @property
    def http(self) -> Address:
        assert self.membership.record.http is not None
        return self.membership.record.http

    def address(self, listener: str = "main") -> Address:
        """What clients are told."""
        return self.listeners[listener]


class _Gate:
    """Requests wait here until there is a broker; whoever asks for the node's health is told that it starts."""

    def __init__(self) -> None:
        self._broker: asyncio.Future[Broker] = asyncio.get_running_loop().create_future()
        self._serving: ServingNode | None = None

    def open(self, broker: Broker, serving: ServingNode) -> None:
        self._broker.set_result(broker)
        self._serving = serving

    async def handle(self, request: Request, client: Client) -> Answer:
        if not self._broker.done():
            await shielded(self._broker)
        return await self._broker.result().handle(request, client)

    def state(self) -> NodeState:
        return NodeState("starting") if self._serving is None else self._serving.state


@asynccontextmanager
async def serve(
    settings: Settings,
    clock: Clock | None = None,
    entropy: Entropy | None = None,
    network: Network | None = None,
) -> AsyncIterator[ServingNode]:
    """A node that serves for as long as the context lasts. When it ends what was taken is answered first."""
    clock, entropy, network = clock or SystemClock(), entropy or SystemEntropy(), network or SystemNetwork()
    async with AsyncExitStack() as opened:
        gate, http_counts = _Gate(), HttpCounts()
        http = await _open_http(settings, clock, network, gate, http_counts, opened)
        stores = await opened.enter_async_context(open_stores(settings, clock, entropy))
        node = await Node.start(settings, stores.meta, stores.objects, clock, entropy)
        opened.push_async_callback(node.incarnation.close)
        opened.push_async_callback(node.close)
        await node.incarnation.start(raise_now=True)
        view = TopicView(node.meta, clock)
        await view.start()
        opened.push_async_callback(view.close)
        tasks = Tasks("serve")
        tasks.spawn("forget deleted topics", _forget_deleted(node, view))
        opened.push_async_callback(tasks.close)
        answers = AnswerBudget(settings.kafka.connections.answers_max_bytes)
        counts = RequestCounts(settings.node.rack)
        server = Server(network, clock, gate.handle, settings.kafka.connections, answers, counts)
        opened.push_async_callback(server.close)
        profile = NodeProfile(
            listeners=await _listen(server, settings),
            http=http.address,
            rack=settings.node.rack,
            roles=settings.node.roles,
            version=VERSION,
        )
        membership = await Membership.join(node.meta, clock, entropy, profile, settings.node.id, settings.cluster)
        opened.push_async_callback(membership.close)
        retention = Retention(membership, view, node.open_log, clock, entropy, settings.kafka.retention)
        await retention.start()
        opened.push_async_callback(retention.close)
        coordinator = Coordinator(node.meta, membership, view, clock, entropy, settings.kafka.groups)
        await coordinator.start()
        opened.push_async_callback(coordinator.close)
        broker = _broker(node, view, membership, coordinator, clock, entropy, settings.kafka.topics, answers)
        opened.push_async_callback(broker.close)
        serving = ServingNode(settings, node, view, server, membership)
        http.routes.update(ReadAccess(node, stores.objects, presigning(settings), settings.http, clock).routes)
        http.routes.update(_rest(settings, node, view, broker, clock, http.server))
        counting = Counting(
            settings, stores, node, view, server, broker, coordinator, membership, retention, http_counts, gate.state
        )
        http.routes.update(NodeMetrics(counting, clock, tasks).routes)
        gate.open(broker, serving)
        log.info("serves", extra={**_about(serving), "rack": settings.node.rack, "cluster": node.cluster_id})
        try:
            yield serving
        finally:
            serving.draining = True
            http.routes.update(not_any_more(REST_PATHS))
            log.info("drains", extra={"node": membership.node_id, "connections": server.connections})
            await membership.close()
            broker.end_waits()
            await server.drain(settings.kafka.drain_max_ms / 1000)
    log.info("has ended", extra={"node": membership.node_id})


class _Http(NamedTuple):
    server: HttpServer
    routes: dict[str, Mapping[str, Handler]]
    """Those that need a node are put in once there is one."""
    address: Address


async def _open_http(
    settings: Settings, clock: Clock, network: Network, gate: _Gate, counts: HttpCounts, opened: AsyncExitStack
) -> _Http:
    host, port = settings.http.host, settings.http.port
    health = Health(clock, VERSION, gate.state, lambda: (host, port))
    routes = {
        **health.routes,
        **description_routes(VERSION),
        **not_yet({**READ_PATHS, **REST_PATHS, **METRICS_PATHS}),
    }
    limits = HttpLimits(max_connections=settings.http.max_connections)
    server = HttpServer(network, clock, routes, limits, counts.observe)
    opened.push_async_callback(server.close)
    port = await server.listen(host, port)
    return _Http(server, routes, Address(host, port))


def _rest(settings: Settings, node: Node, view: TopicView, broker: Broker, clock: Clock, server: HttpServer) -> Routes:
    http = settings.http
    return rest_routes(
        Gate(http.token, http.max_requests_per_s, settings.node.roles, clock),
        node.topics,
        view,
        node.open_log,
        broker.polls,
        broker.sent,
        clock,
        settings.kafka.topics,
        addresses_of_objects(settings),
        lambda: server.room,
        http.max_connections * 3 // 4,
        http.hot_records_bytes,
    )


def _broker(
    node: Node,
    view: TopicView,
    membership: Membership,
    coordinator: Coordinator,
    clock: Clock,
    entropy: Entropy,
    defaults: TopicDefaults,
    answers: AnswerBudget,
) -> Broker:
    return Broker(
        node.cluster_id,
        node.meta,
        membership,
        node.topics,
        view,
        node.open_log,
        coordinator,
        clock,
        entropy,
        defaults,
        answers,
    )


def shown(listeners: dict[str, Address]) -> str:
    return ",".join(f"{name}={address}" for name, address in listeners.items())


def _about(serving: ServingNode) -> dict[str, object]:
    return {"node": serving.membership.node_id, "kafka": shown(serving.listeners), "http": serving.http}


def new_event_loop() -> asyncio.AbstractEventLoop:
    """The one that a node runs on: uvloop, which takes far less CPU for a connection, where it can be had."""
    try:
        import uvloop
    except ImportError:
        return asyncio.new_event_loop()
    return uvloop.new_event_loop()


async def _forget_deleted(node: Node, view: TopicView) -> None:
    revision = view.revision
    while True:
        revision = await view.changed(revision)
        node.keep_topics({topic.topic_id for topic in view.all()})


async def _listen(server: Server, settings: Settings) -> dict[str, Address]:
    addresses = {}
    for name, listener in settings.kafka.listeners.items():
        if listener.host in ALL_ADDRESSES and not listener.advertised_host:
            raise ConfigError(
                f"listener {name!r} is on all addresses of this host: say which one clients are to use, as in "
                f"--listener {name}={listener.host}:{listener.port}@HOST:{listener.port}, or by its advertised_host"
            )
        port = await server.listen(name, listener.host, listener.port)
        addresses[name] = Address(listener.advertised_host or listener.host, listener.advertised_port or port)
    return addresses
