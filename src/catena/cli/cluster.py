"""`catena cluster`: several nodes on this host, for trying things out; started, looked at, ended."""

from __future__ import annotations

import asyncio
import os
import sys
from collections.abc import Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from pathlib import Path
from types import MappingProxyType
from typing import TYPE_CHECKING, Annotated, Any, TypeAlias

import typer

from catena.cli.options import PLACE, Common, Config, Data, Debug, Json, common
from catena.cli.output import count, print_columns, print_json
from catena.cli.running import FAILED, reporting

if TYPE_CHECKING:
    from catena.local_cluster.cluster import Started
    from catena.local_cluster.state import LocalCluster, LocalNode

ASK_MAX_S = 2.0
STYLES = {"starting": "yellow", "running": "green", "ready": "green", "failed": "bold red"}
DEAD = "dead"

app = typer.Typer(no_args_is_help=True, help="Several nodes on this host: start them, look at them, end them.")


Nodes: TypeAlias = Annotated[
    int | None, typer.Option("--nodes", min=1, max=100, metavar="N", help="How many; 3 if nothing is said.")
]
Racks: TypeAlias = Annotated[
    str | None, typer.Option("--racks", metavar="A,B,...", help="Given to the nodes in turn.", show_default=False)
]
Roles: TypeAlias = Annotated[
    str | None,
    typer.Option(
        "--roles",
        metavar="R,S,...",
        help="Given to the nodes in turn, each `write`, `read` or `write+read`; all nodes do both if nothing is said.",
        show_default=False,
    ),
]
BasePort: TypeAlias = Annotated[
    int | None,
    typer.Option(
        "--base-port",
        min=0,
        max=65435,
        metavar="N",
        help="Kafka port of the first, the others follow; 9092 if nothing is said, 0: any free ones.",
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
    nodes: Nodes = None,
    racks: Racks = None,
    roles: Roles = None,
    base_port: BasePort = None,
    meta: Meta = None,
    objects: Objects = None,
    as_json: Json = False,
    data: Data = None,
    config: Config = None,
    debug: Debug = False,
) -> None:
    """Start a cluster on this host. It runs until `catena cluster down`.

    If there is one already, the nodes of it that have died are started again, as they were. Nodes are processes; their
    logs are in DIR/cluster. What they have stored stays when they end, and is there again when they are started with
    the same options.
    """
    from catena.local_cluster.cluster import up as start
    from catena.local_cluster.plan import Plan
    from catena.runtime import SystemClock, SystemNetwork

    options = common(context, data, config, debug, as_json)
    with reporting(options):
        names = None if racks is None else tuple(rack.strip() for rack in racks.split(",") if rack.strip())
        file = None if options.config is None else os.path.abspath(options.config)
        each = None if roles is None else tuple(role.strip() for role in roles.split(",") if role.strip())
        plan = Plan(nodes, names, base_port, meta, objects, file, each)
        with _Display(silent=as_json) as display:
            started = asyncio.run(start(_folder(options), plan, SystemClock(), SystemNetwork(), display))
        cluster = started.cluster
        if as_json:
            print_json({**_fields(cluster), "started": started.nodes})
            return
        if not started.is_new:
            print(_what_was_started(started), end="\n\n")
        _show(cluster, ["NODE", "RACK", "KAFKA", "HTTP", "PID"])
        if started.is_new:
            _teach(cluster, _folder(options))


@app.command()
def down(
    context: typer.Context, as_json: Json = False, data: Data = None, config: Config = None, debug: Debug = False
) -> None:
    """End it: nodes drain, and what has not ended after half a minute is killed. What they have stored stays."""
    from catena.local_cluster.cluster import Ended
    from catena.local_cluster.cluster import down as stop
    from catena.runtime import SystemClock

    options = common(context, data, config, debug, as_json)
    with reporting(options):
        found = asyncio.run(stop(_folder(options), SystemClock()))
        ended = found or Ended([], [], [])
        killed = [process.pid for process in ended.killed]
        if as_json:
            print_json({"nodes": ended.nodes, "dead": ended.dead, "killed": killed})
        elif found is None:
            print(f"no cluster runs in {_folder(options)}", file=sys.stderr)
        else:
            notes = [f"ended {count(len(ended.nodes), 'node')}"]
            notes += [f"{nodes_named(ended.dead)} {_was(ended.dead)} dead before"] if ended.dead else []
            notes += [f"had to be killed: process {', '.join(map(str, killed))}"] if killed else []
            print("; ".join(notes))


@app.command()
def status(
    context: typer.Context, as_json: Json = False, data: Data = None, config: Config = None, debug: Debug = False
) -> None:
    """The nodes, and whether they are ready. Exit code 1 if one is not."""
    from catena.local_cluster.cluster import find

    options = common(context, data, config, debug, as_json)
    well = True
    with reporting(options):
        cluster = find(_folder(options))
        if cluster is None:
            if as_json:
                print_json({"nodes": []})
            else:
                print(f"no cluster runs in {_folder(options)}; `catena cluster up` starts one", file=sys.stderr)
            return
        states = {node.id: state_of(node) for node in cluster.nodes}
        lacking = lacks_servers(cluster)
        well = not lacking and all(state == "ready" for state in states.values())
        if as_json:
            print_json(_fields(cluster, states))
        else:
            _show(cluster, ["NODE", "RACK", "KAFKA", "HTTP", "PID", "STATE"], states)
            if not well:
                print(_what_is_dead(states, lacking, _folder(options)), end="")
    if not well:
        raise typer.Exit(FAILED)


def state_of(node: LocalNode) -> str:
    """`dead`, `starting`, `silent`, or what the node itself says at /ready."""
    import http.client

    import msgspec

    if not node.is_running:
        return DEAD
    if not node.http:
        return "starting"
    connection = http.client.HTTPConnection(node.http, timeout=ASK_MAX_S)
    try:
        connection.request("GET", "/ready")
        answer: dict[str, Any] = msgspec.json.decode(connection.getresponse().read(), type=dict[str, Any])
        return str(answer["state"])
    except (OSError, http.client.HTTPException, msgspec.MsgspecError, KeyError):
        return "silent"
    finally:
        connection.close()


def lacks_servers(cluster: LocalCluster) -> bool:
    """Whether it had servers for its stores that do not run any more."""
    from catena.local_cluster.processes import is_running

    return cluster.servers is not None and not is_running(cluster.servers)


def nodes_named(ids: Sequence[int]) -> str:
    *before, last = map(str, ids)
    return f"nodes {', '.join(before)} and {last}" if before else f"node {last}"


def _was(ids: Sequence[int]) -> str:
    return "was" if len(ids) == 1 else "were"


def _what_was_started(started: Started) -> str:
    ran = [node.id for node in started.cluster.nodes if node.id not in started.nodes]
    if not started.nodes:
        return f"nothing to start: {nodes_named(ran)} {'runs' if len(ran) == 1 else 'run'} already"
    servers = "the servers of its stores and " if started.servers else ""
    return f"started {servers}{nodes_named(started.nodes)} again" + (f"; {nodes_named(ran)} went on" if ran else "")


def _what_is_dead(states: Mapping[int, str], lacks_its_servers: bool, data: Path) -> str:
    """And what to do; nothing if all processes run."""
    dead = [number for number, state in states.items() if state == DEAD]
    what = ["the servers of its stores"] if lacks_its_servers else []
    what += [nodes_named(dead)] if dead else []
    if not what:
        return ""
    many = lacks_its_servers or len(dead) > 1
    return (
        f"\n{' and '.join(what)} {'are' if many else 'is'} dead; logs are in {data / 'cluster'}\n"
        f"`catena cluster up --data {data}` starts {'them' if many else 'it'} again\n"
    )


def _folder(options: Common) -> Path:
    return Path(options.load_settings().data)


def _fields(cluster: LocalCluster, states: dict[int, str] | None = None) -> dict[str, Any]:
    fields: dict[str, Any] = {
        "bootstrap_servers": cluster.bootstrap_servers,
        "nodes": [
            {
                "id": node.id,
                "rack": node.rack,
                **({"roles": node.roles} if node.roles else {}),
                "kafka": node.kafka,
                "http": node.http,
                "pid": node.process.pid if node.process is not None else None,
                "log": node.log,
                **({"state": states[node.id]} if states is not None else {}),
            }
            for node in cluster.nodes
        ],
        "environment": cluster.environment,
    }
    if cluster.servers is not None:
        fields["servers"] = {"pid": cluster.servers.pid, "state": DEAD if lacks_servers(cluster) else "running"}
    return fields


def _show(cluster: LocalCluster, titles: Sequence[str], states: Mapping[int, str] = MappingProxyType({})) -> None:
    rows = [
        [
            str(node.id),
            node.rack or "",
            node.kafka,
            node.http,
            str(node.process.pid) if node.process is not None else "",
            states.get(node.id, ""),
        ]
        for node in cluster.nodes
    ]
    rows = [row[: len(titles)] for row in rows]
    if any(node.roles for node in cluster.nodes):
        titles = [*titles[:2], "ROLES", *titles[2:]]
        rows = [[*row[:2], "+".join(node.roles), *row[2:]] for row, node in zip(rows, cluster.nodes, strict=True)]
    print_columns(titles, rows)
    if cluster.servers is not None and not lacks_servers(cluster):
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
        return self

    def __exit__(self, *error: Any) -> None:
        if not self._states:
            return
        self._live.__exit__(*error)
        if not self._ends_its_line:
            print(file=sys.stderr)

    def state(self, name: str, state: str) -> None:
        is_first = not self._states
        self._states[name] = state
        if is_first:
            self._live.__enter__()

    def last_lines(self, name: str, lines: Sequence[str]) -> None:
        if lines and not self._silent:
            print(f"the log of {name} says", *lines, sep="\n  ", file=sys.stderr)

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
