"""What nodes tell of themselves, and the nodes alive as one of them last saw them."""

from __future__ import annotations

from collections.abc import Sequence

import msgspec

from catena.cluster.placement import NodeId, Placement
from catena.errors import Corrupt
from catena.meta.base import Record

WRITE = "write"
"""The role of nodes that take what is produced; only these are told to clients as leaders of partitions."""
READ = "read"
"""The role of nodes that serve what is consumed."""
ROLES = (WRITE, READ)


class Address(msgspec.Struct, frozen=True):
    host: str
    port: int

    def __str__(self) -> str:
        return f"[{self.host}]:{self.port}" if ":" in self.host else f"{self.host}:{self.port}"


class NodeProfile(msgspec.Struct, frozen=True, kw_only=True):
    """What a node tells of itself when it joins."""

    listeners: dict[str, Address]
    """By name, each with the address at which clients reach it."""
    http: Address | None = None
    rack: str | None = None
    roles: tuple[str, ...] = ROLES
    version: str = ""

    @property
    def serves(self) -> bool:
        """Whether it serves clients at all: nodes of roles that are not known here do something else."""
        return WRITE in self.roles or READ in self.roles


class NodeRecord(NodeProfile, frozen=True, kw_only=True):
    """Stored as `llog/nodes/{node_id}`. Fields of newer versions are passed over."""

    node_id: NodeId
    incarnation: str
    """Drawn when the process starts: another one that has the same id is somebody else."""
    started_at_ms: int


class View:
    """Immutable. `revision` counts the views of this process; it says nothing to others."""

    __slots__ = ("_by_id", "nodes", "placement", "revision", "writers")

    def __init__(self, revision: int, nodes: Sequence[NodeRecord]) -> None:
        self.revision = revision
        self.nodes = tuple(sorted(nodes, key=lambda node: node.node_id))
        self.placement = Placement([node.node_id for node in nodes if node.serves])
        """Over the nodes that serve clients: of groups, and of what is done once for each partition."""
        self.writers = Placement([node.node_id for node in nodes if WRITE in node.roles])
        """Over those that take what is produced: of the leaders that clients are told."""
        self._by_id = {node.node_id: node for node in nodes}

    def get(self, node_id: NodeId) -> NodeRecord | None:
        return self._by_id.get(node_id)

    def __repr__(self) -> str:
        return f"View({self.revision}, nodes {[node.node_id for node in self.nodes]})"


_decoder = msgspec.json.Decoder(NodeRecord)


def encode_node(node: NodeRecord) -> bytes:
    return msgspec.json.encode(node)


def decode_node(record: Record) -> NodeRecord:
    try:
        return _decoder.decode(record.value)
    except msgspec.MsgspecError as error:
        raise Corrupt(f"meta record {record.key} can't be read: {error}") from error
