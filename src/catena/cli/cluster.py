"""`catena cluster`: several nodes on this host, for trying things out; started, looked at, ended."""

from __future__ import annotations

import asyncio
import sys
from collections.abc import Sequence
from contextlib import AbstractContextManager, nullcontext
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, TypeAlias

import typer

from catena.cli.options import PLACE, Common, Config, Data, Debug, Json, common
from catena.cli.output import print_columns, print_json
from catena.cli.running import FAILED, reporting
from catena.errors import ConfigError

if TYPE_CHECKING:
    from catena.local_cluster.state import LocalCluster, LocalNode

ASK_MAX_S = 2.0
STYLES = {"starting": "yellow", "ready": "green", "failed": "bold red"}

app = typer.Typer(no_args_is_help=True, help="Several nodes on this host: start them, look at them, end them.")


Nodes: TypeAlias = Annotated[int, typer.Option("--nodes", min=1, max=100, metavar="N", help="How many.")]
Racks: TypeAlias = Annotated[str, typer.Option("--racks", metavar="A,B,...", help="Given to the nodes in turn.")]
BasePort: TypeAlias = Annotated[
    int,
    typer.Option(
        "--base-port",
        min=0,
        max=65435,
        metavar="N",
        help="Kafka port of the first, the others follow; 0: any free ones.",
    ),
]
Meta: TypeAlias = Annotated[
    str | None,
    typer.Option(
        "--meta",
        metavar="KIND",
        rich_help_panel=PLACE,
        help="`sqlite`, `postgres` to start a server for it, or an address as in the settings.",
    ),
]
Objects: TypeAlias = Annotated[
    str | None,
    typer.Option(
        "--objects",
        metavar="KIND",
        rich_help_panel=PLACE,
        help="`folder`, `s3` to start a server for it, or an address as in the settings.",
    ),
]


@app.command()
def up(
    context: typer.Context,
    nodes: Nodes = 3,
    racks: Racks = "",
    base_port: BasePort = 9092,
    meta: Meta = None,
    objects: Objects = None,
    as_json: Json = False,
    data: Data = None,
    config: Config = None,
    debug: Debug = False,
) -> None:
    """Start a cluster on this host. It runs until `catena cluster down`.

    Nodes are processes; their logs are in DIR/cluster. What they have stored stays when they end, and is there again
    when they are started with the same options.
    """
    from catena.local_cluster.cluster import Plan
    from catena.local_cluster.cluster import up as start
    from catena.runtime import SystemClock

    options = common(context, data, config, debug, as_json)
    with reporting(options):
        servers, environment = choose_stores(meta, objects)
        names = [rack.strip() for rack in racks.split(",") if rack.strip()]
        plan = Plan(nodes, names, base_port, servers, options.config, environment)
        with _Display(silent=as_json) as display:
            cluster = asyncio.run(start(_folder(options), plan, SystemClock(), display))
        if as_json:
            print_json(_fields(cluster))
        else:
            _show(
                cluster, [[node.id, node.rack or "", node.kafka, node.http, node.process.pid] for node in cluster.nodes]
            )
            _teach(cluster, _folder(options))


@app.command()
def down(
    context: typer.Context, as_json: Json = False, data: Data = None, config: Config = None, debug: Debug = False
) -> None:
    """End it: nodes drain, and what has not ended after half a minute is killed. What they have stored stays."""
    from catena.local_cluster.cluster import down as stop
    from catena.runtime import SystemClock

    options = common(context, data, config, debug, as_json)
    with reporting(options):
        ended = asyncio.run(stop(_folder(options), SystemClock()))
        nodes = [] if ended is None else ended[0].nodes
        killed = [] if ended is None else [process.pid for process in ended[1]]
        if as_json:
            print_json({"nodes": [node.id for node in nodes], "killed": killed})
        elif ended is None:
            print(f"no cluster runs in {_folder(options)}", file=sys.stderr)
        else:
            notes = f"; had to be killed: process {', '.join(map(str, killed))}" if killed else ""
            print(f"ended {len(nodes)} node{'' if len(nodes) == 1 else 's'}{notes}")


@app.command()
def status(
    context: typer.Context, as_json: Json = False, data: Data = None, config: Config = None, debug: Debug = False
) -> None:
    """The nodes, and whether they are ready. Exit code 1 if one is not."""
    from catena.local_cluster.cluster import find

    options = common(context, data, config, debug, as_json)
    with reporting(options):
        cluster = find(_folder(options))
        states = {} if cluster is None else {node.id: state_of(node) for node in cluster.nodes}
        if cluster is None:
            if as_json:
                print_json({"nodes": []})
            else:
                print(f"no cluster runs in {_folder(options)}; `catena cluster up` starts one", file=sys.stderr)
        elif as_json:
            print_json(_fields(cluster, states))
        else:
            _show(
                cluster,
                [
                    [node.id, node.rack or "", node.kafka, node.http, node.process.pid, states[node.id]]
                    for node in cluster.nodes
                ],
            )
    if any(state != "ready" for state in states.values()):
        raise typer.Exit(FAILED)


def choose_stores(meta: str | None, objects: str | None) -> tuple[tuple[str, ...], dict[str, str]]:
    """Servers to start, and settings for the nodes."""
    servers: list[str] = []
    settings: dict[str, str] = {}
    for name, value, default, served in (("meta", meta, "sqlite", "postgres"), ("objects", objects, "folder", "s3")):
        if value == served:
            servers.append(served)
        elif value == default:
            settings[f"CATENA_{name.upper()}"] = ""
        elif value is not None and value.startswith("memory:"):
            raise ConfigError(f"option --{name}: nodes are processes, and can't share what is in memory")
        elif value is not None and ":" in value:
            settings[f"CATENA_{name.upper()}"] = value
        elif value is not None:
            raise ConfigError(f"option --{name}: {value!r} is not {default}, {served} or an address")
    return tuple(servers), settings


def state_of(node: LocalNode) -> str:
    """`ended`, `silent`, or what the node itself says at /ready."""
    import http.client

    import msgspec

    from catena.local_cluster.processes import is_running

    if not is_running(node.process):
        return "ended"
    connection = http.client.HTTPConnection(node.http, timeout=ASK_MAX_S)
    try:
        connection.request("GET", "/ready")
        answer: dict[str, Any] = msgspec.json.decode(connection.getresponse().read(), type=dict[str, Any])
        return str(answer["status"])
    except (OSError, http.client.HTTPException, msgspec.MsgspecError, KeyError):
        return "silent"
    finally:
        connection.close()


def _folder(options: Common) -> Path:
    return Path(options.load_settings().data)


def _fields(cluster: LocalCluster, states: dict[int, str] | None = None) -> dict[str, Any]:
    return {
        "bootstrap_servers": cluster.bootstrap_servers,
        "nodes": [
            {
                "id": node.id,
                "rack": node.rack,
                "kafka": node.kafka,
                "http": node.http,
                "pid": node.process.pid,
                "log": node.log,
                **({"state": states[node.id]} if states is not None else {}),
            }
            for node in cluster.nodes
        ],
        "environment": cluster.environment,
    }


def _show(cluster: LocalCluster, rows: Sequence[Sequence[object]]) -> None:
    titles = ["NODE", "RACK", "KAFKA", "HTTP", "PID", "STATE"]
    print_columns(titles[: len(rows[0])], [[str(cell) for cell in row] for row in rows])
    if cluster.servers is not None:
        print(f"\nthe servers of its stores are kept by process {cluster.servers.pid}")


def _teach(cluster: LocalCluster, data: Path) -> None:
    print(
        f"""
bootstrap servers: {cluster.bootstrap_servers}

  echo hello | kcat -P -b {cluster.bootstrap_servers} -t greetings
  kcat -C -b {cluster.bootstrap_servers} -t greetings -e
  . {data / "cluster" / "env"}; catena topic list
  catena cluster status --data {data}
  catena cluster down --data {data}"""
    )


class _Display:
    """A line for each process, which says how far it is."""

    def __init__(self, silent: bool) -> None:
        self._states: dict[str, str] = {}
        self._live: AbstractContextManager[Any] = nullcontext()
        self._silent = silent
        self._ends_its_line = True
        if not silent:
            from rich.console import Console
            from rich.live import Live

            console = Console(stderr=True, highlight=False)
            self._ends_its_line = console.is_terminal
            self._live = Live(get_renderable=self._table, console=console, refresh_per_second=10)

    def __enter__(self) -> _Display:
        self._live.__enter__()
        return self

    def __exit__(self, *error: Any) -> None:
        self._live.__exit__(*error)
        if not self._ends_its_line:
            print(file=sys.stderr)

    def state(self, name: str, state: str) -> None:
        self._states[name] = state

    def last_lines(self, name: str, lines: Sequence[str]) -> None:
        if lines and not self._silent:
            print(f"the log of {name} ends with", *lines, sep="\n  ", file=sys.stderr)

    def _table(self) -> Any:
        from rich.spinner import Spinner
        from rich.table import Table
        from rich.text import Text

        table = Table(box=None, pad_edge=False, padding=(0, 2, 0, 0), show_header=False)
        for name, state in self._states.items():
            style = STYLES[state]
            table.add_row(
                Spinner("line", style=style) if state == "starting" else Text("*", style), name, Text(state, style)
            )
        return table
