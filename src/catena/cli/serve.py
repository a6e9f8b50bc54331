"""`catena serve`: a node that speaks Kafka, until it is told to end.

SIGTERM and Ctrl-C drain it: it leaves the cluster, answers what it has taken, and ends with exit code 0. A second
signal ends it at once. So does the time limit: what can't be drained (a store that is away) does not keep the process.
"""

from __future__ import annotations

import asyncio
import gc
import logging
import os
import signal
import sys
import threading
from collections.abc import Callable
from typing import TYPE_CHECKING, Annotated, Any, TypeAlias

import typer

from catena.cli.listeners import FORM, parse_listeners
from catena.cli.options import Common, Config, Data, Debug, Json, common
from catena.cli.output import print_json
from catena.cli.running import TROUBLE, reporting
from catena.errors import ConfigError
from catena.logs import LogFormat, configure
from catena.runtime.heaps import share_heaps

if TYPE_CHECKING:
    from catena.config import Settings
    from catena.serve import ServingNode

log = logging.getLogger("catena.serve")

ENDS = (signal.SIGTERM, signal.SIGINT)
CLOSE_MAX_S = 10.0
"""How long the stores may take to close, once everything is drained or given up."""
CLUSTER = "Its place in the cluster"
PORTS = "Where clients reach it"


Port: TypeAlias = Annotated[
    int | None,
    typer.Option(
        "--port",
        min=0,
        max=65535,
        metavar="N",
        rich_help_panel=PORTS,
        help="Kafka; 9092 if nothing is said, 0 is any free one.",
    ),
]
Listener: TypeAlias = Annotated[
    list[str] | None,
    typer.Option(
        "--listener",
        metavar=FORM,
        rich_help_panel=PORTS,
        help="A named listener, and the address that its clients are told. --port is short for that of `main`.",
    ),
]
HttpPort: TypeAlias = Annotated[
    int | None,
    typer.Option(
        "--http-port",
        min=0,
        max=65535,
        metavar="N",
        rich_help_panel=PORTS,
        help="HTTP: /produce, /consume, /metrics, /health, /docs and more; any free one if nothing is said.",
    ),
]
NodeId: TypeAlias = Annotated[
    int | None,
    typer.Option(
        "--node-id", min=0, metavar="N", rich_help_panel=CLUSTER, help="The lowest that is free if nothing is said."
    ),
]
Rack: TypeAlias = Annotated[
    str | None, typer.Option("--rack", metavar="NAME", rich_help_panel=CLUSTER, help="Or availability zone.")
]
Roles: TypeAlias = Annotated[
    str | None,
    typer.Option(
        "--roles",
        metavar="ROLE,...",
        rich_help_panel=CLUSTER,
        help="What it does: write, read; both if nothing is said.",
    ),
]


def serve(
    context: typer.Context,
    port: Port = None,
    listener: Listener = None,
    http_port: HttpPort = None,
    node_id: NodeId = None,
    rack: Rack = None,
    roles: Roles = None,
    log_format: Annotated[LogFormat, typer.Option("--log-format", help="Of the log, on stderr.")] = LogFormat.TEXT,
    as_json: Json = False,
    data: Data = None,
    config: Config = None,
    debug: Debug = False,
) -> None:
    """Serve the log to Kafka clients, until SIGTERM or Ctrl-C.

    Nodes that share their stores are a cluster: on one host those of one folder, elsewhere those with the same settings
    `meta` and `objects`. With --json one line on stdout says when the node is ready, and where.
    """
    options = common(context, data, config, debug, as_json)
    configure(log_format, debug=options.debug)
    with reporting(options):
        listeners = parse_listeners(listener or [])
        if port is not None:
            if "main" in listeners:
                raise ConfigError("options --port and --listener main=...: both say the port of the listener 'main'")
            listeners["main"] = {"port": port}
        settings = load_settings(options, listeners, http_port, {"id": node_id, "rack": rack, "roles": roles})

        def announce(node: ServingNode) -> None:
            if as_json:
                print_json(_fields(node))
                sys.stdout.flush()
            elif log_format is LogFormat.TEXT:
                print("\n".join(banner(node)), file=sys.stderr, flush=True)

        run_until_ended(settings, announce)


def load_settings(
    options: Common, listeners: dict[str, dict[str, Any]], http_port: int | None, node: dict[str, Any]
) -> Settings:
    from catena.config import load

    given: dict[str, dict[str, Any]] = {"node": {name: value for name, value in node.items() if value is not None}}
    if listeners:
        given["kafka"] = {"listeners": listeners}
    if http_port is not None:
        given["http"] = {"port": http_port}
    return load(
        options.config, os.environ, data=options.data, **{name: group for name, group in given.items() if group}
    )


def run_until_ended(settings: Settings, announce: Callable[[ServingNode], None]) -> None:
    from catena.serve import new_event_loop

    share_heaps()
    with asyncio.Runner(loop_factory=new_event_loop) as runner:
        runner.run(_serve(settings, announce))
    # All is closed. Python looks at every object several times before it ends, 2 s for 10,000 partitions; not at these.
    gc.freeze()


async def _serve(settings: Settings, announce: Callable[[ServingNode], None]) -> None:
    from catena.serve import serve as serving

    ending = _Ending(settings.kafka.drain_max_ms / 1000 + CLOSE_MAX_S)
    try:
        async with serving(settings) as node:
            ending.starts = None
            _collect_less_garbage()
            announce(node)
            await ending.asked.wait()
    except asyncio.CancelledError:
        if not ending.asked.is_set():
            raise


def _collect_less_garbage() -> None:
    """What is here now stays, and requests make few cycles: a look after every 700 objects is 5% of the CPU."""
    gc.collect()
    gc.freeze()
    gc.set_threshold(50_000, 20, 20)


class _Ending:
    """The first signal asks the node to end, or gives up its start; from then on signals do what they always do."""

    def __init__(self, max_s: float) -> None:
        self.asked = asyncio.Event()
        self.starts = asyncio.current_task()
        self._max_s = max_s
        self._loop = asyncio.get_running_loop()
        for number in ENDS:
            self._loop.add_signal_handler(number, self._end)

    def _end(self) -> None:
        for number in ENDS:
            self._loop.remove_signal_handler(number)
            signal.signal(number, signal.SIG_DFL)
        # In a thread of its own: it has to end the process also if the event loop is stuck.
        limit = threading.Timer(self._max_s, _give_up, [self._max_s])
        limit.daemon = True
        limit.start()
        self.asked.set()
        if self.starts is not None:
            self.starts.cancel()


def _give_up(after_s: float) -> None:
    log.error("could not be drained in time, and is given up", extra={"after_s": after_s})
    os._exit(TROUBLE)


def banner(node: ServingNode) -> list[str]:
    from catena.config import without_password

    address = next(iter(node.listeners.values()))
    width = max(len(name) for name in node.listeners)
    listeners = [f"{name:<{width}}  {address}" for name, address in node.listeners.items()]
    return [
        f"catena: node {node.membership.node_id} serves; Ctrl-C ends it",
        "",
        *(f"  {'kafka' if number == 0 else '':<8} {listener}" for number, listener in enumerate(listeners)),
        f"  {'http':<8} http://{node.http}/health",
        f"  {'meta':<8} {without_password(node.settings.meta_url)}",
        f"  {'objects':<8} {without_password(node.settings.objects_url)}",
        "",
        "  Try it:",
        f"  echo hello | kcat -P -b {address} -t greetings",
        f"  kcat -C -b {address} -t greetings -e",
        "",
    ]


def _fields(node: ServingNode) -> dict[str, Any]:
    return {
        "node_id": node.membership.node_id,
        "cluster_id": node.node.cluster_id,
        "rack": node.settings.node.rack,
        "roles": list(node.settings.node.roles),
        "listeners": {name: str(address) for name, address in node.listeners.items()},
        "http": str(node.http),
        "pid": os.getpid(),
    }
