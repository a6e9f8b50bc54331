"""What a local cluster is to be: what people said, and what follows from it.

The plan is kept with the cluster for as long as it exists, so that a process that died is started again as it was. Who
says something else in the meantime is refused: half a cluster of one kind and half of another is nobody's wish.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import msgspec

from catena.cluster.view import ROLES
from catena.errors import ConfigError

NODES = 3
BASE_PORT = 9092


class Plan(msgspec.Struct, frozen=True):
    """None: nothing is said."""

    nodes: int | None = None
    racks: tuple[str, ...] | None = None
    """Given to the nodes in turn."""
    base_port: int | None = None
    """Of the first node, the others follow; 0: any free ones."""
    meta: str | None = None
    """`sqlite`, `postgres` to start a server for it, or an address."""
    objects: str | None = None
    """`folder`, `s3` to start a server for it, or an address."""
    config: str | None = None
    """A file with settings."""
    roles: tuple[str, ...] | None = None
    """Given to the nodes in turn, each `write`, `read` or `write+read`. Nodes that have them tell each other what they
    commit: see `Folder.tails`."""


def completed(plan: Plan) -> Plan:
    """With the defaults of this page; where nothing is said of stores, the settings of the nodes decide."""
    nodes = NODES if plan.nodes is None else plan.nodes
    if plan.roles and (problem := wrong_roles(plan.roles, nodes)):
        raise ConfigError(f"option --roles: {problem}")
    return msgspec.structs.replace(
        plan,
        nodes=nodes,
        roles=plan.roles or (),
        racks=plan.racks or (),
        base_port=BASE_PORT if plan.base_port is None else plan.base_port,
    )


def roles_of(roles: Sequence[str], number: int) -> tuple[str, ...]:
    """Of this node, as the setting `node.roles` names them; none: nothing is said."""
    return tuple(roles[number % len(roles)].split("+")) if roles else ()


def wrong_roles(roles: Sequence[str], nodes: int) -> str:
    """Why a cluster of so many nodes can't have these; empty if it can."""
    for each in roles:
        if not set(each.split("+")) <= set(ROLES) or len(set(each.split("+"))) < len(each.split("+")):
            return f"{each!r} is not {', '.join(ROLES)} or {'+'.join(ROLES)}"
    given = {role for number in range(nodes) for role in roles_of(roles, number)}
    for role in ROLES:
        if role not in given:
            return f"no node would {role}: roles are given to the nodes in turn, and there {_are(nodes)}"
    return ""


def check_fits(asked: Plan, kept: Plan, data: Path) -> None:
    """ConfigError if something is said that is not so in the cluster which is there."""
    for name in Plan.__struct_fields__:
        wanted, found = getattr(asked, name), getattr(kept, name)
        if wanted is not None and wanted != found:
            raise ConfigError(
                f"option --{name.replace('_', '-')}: the cluster in {data} was started {_with(found)}; "
                "`catena cluster down` ends it, and then it can be started with other options"
            )


def choose_stores(meta: str | None, objects: str | None) -> tuple[tuple[str, ...], dict[str, str]]:
    """Servers to start, and settings for the nodes."""
    if problem := wrong_stores(meta, objects):
        raise ConfigError(f"option --{problem}")
    servers: list[str] = []
    settings: dict[str, str] = {}
    for name, value, default, served in _stores(meta, objects):
        if value == served:
            servers.append(served)
        elif value is not None:
            settings[f"CATENA_{name.upper()}"] = "" if value == default else value
    return tuple(servers), settings


def wrong_stores(meta: str | None, objects: str | None) -> str:
    """Which of them can't be, and why; empty if both can."""
    for name, value, default, served in _stores(meta, objects):
        if value is None or value in (default, served):
            continue
        if value.startswith("memory:"):
            return f"{name}: nodes are processes, and can't share what is in memory"
        if ":" not in value:
            return f"{name}: {value!r} is not {default}, {served} or an address"
    return ""


def _stores(meta: str | None, objects: str | None) -> tuple[tuple[str, str | None, str, str], ...]:
    """The name of each, what was said, what is there without a server, and what a server is started for."""
    return ("meta", meta, "sqlite", "postgres"), ("objects", objects, "folder", "s3")


def _are(nodes: int) -> str:
    return f"are {nodes}" if nodes > 1 else "is 1"


def _with(found: object) -> str:
    if found is None or found == ():
        return "without it"
    if isinstance(found, tuple):
        return f"with {','.join(found)}"
    # An address may hold a password.
    return "with another one" if isinstance(found, str) and "@" in found else f"with {found}"
