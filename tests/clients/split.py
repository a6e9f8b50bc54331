"""Clusters whose nodes have roles, and share a tail folder; and who follows a log at one of them, and what it cost."""

from __future__ import annotations

import json
import threading
import urllib.request
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import NamedTuple

from catena.formats.record_batch import split_batches
from catena.formats.records import iter_records
from catena.wire.messages.fetch import PartitionData
from tests.clients.conftest import SESSION_TTL_MS, running
from tests.clients.nodes import Cluster, Node
from tests.clients.raw import Closed, Raw, fetch
from tests.clients.waiting import until

NEVER_MS = "86400000"


@contextmanager
def split_cluster(folder: Path, roles: Sequence[str], settings: Mapping[str, str] | None = None) -> Iterator[Cluster]:
    """A node for each of `roles`, on one SQLite file and with a tail folder. Metrics look into the stores only once."""
    common = {
        "CATENA_DISKLESS__TAIL_FOLDER": str(folder / "tails"),
        "CATENA_CLUSTER__SESSION_TTL_MS": str(SESSION_TTL_MS),
        "CATENA_METRICS__LOOK_EVERY_MS": NEVER_MS,
        "CATENA_METRICS__SCAN_EVERY_MS": "0",
    }
    cluster = Cluster(len(roles), folder, {**common, **(settings or {})})
    cluster.nodes = [
        Node(number, folder, {**node.environment, "CATENA_NODE__ROLES": role})
        for number, (node, role) in enumerate(zip(cluster.nodes, roles, strict=True))
    ]
    yield from running(cluster)


class Counters(NamedTuple):
    """What a node has asked its stores so far."""

    records: int
    """Single records of the meta store: heads of logs, chains, and a few others now and then."""
    scans: int
    """Of the index, and of who is alive every second."""
    objects: int
    """Reads of parts of objects, as all batches are. Whole ones say which incarnation this is, now and then."""


def counters(node: Node) -> Counters:
    with urllib.request.urlopen(f"http://{node.http}/metrics", timeout=30) as answer:
        found = json.load(answer)
    meta = {kind: each["requests"] for kind, each in found["meta_store"].items()}
    objects = {kind: each["requests"] for kind, each in found["object_store"].items()}
    return Counters(meta["get"] + meta["ceiling"] + meta["transact"], meta["scan"], objects["range_get"])


def records_of(part: PartitionData) -> list[tuple[int, bytes]]:
    data = b"".join(bytes(each) for each in part.records or ())
    return [
        (record.offset, record.value or b"")
        for header, batch in split_batches(data)
        for record in iter_records(batch, header.base_offset)
    ]


class Follower:
    """Reads a partition from its beginning on, at one node, in a thread, until it has so many records or is ended."""

    def __init__(self, node: Node, topic: str, partition: int = 0) -> None:
        self.found: list[tuple[int, bytes]] = []
        self.trouble: str | None = None
        self._node = node
        self._topic = topic
        self._partition = partition
        self._ending = threading.Event()
        self._thread = threading.Thread(target=self._run)
        self._thread.start()

    def wait_for(self, count: int) -> None:
        until(lambda: len(self.found) >= count or self.trouble is not None, f"{count} records at the follower", 60)

    def end(self) -> None:
        self._ending.set()
        self._thread.join()
        assert self.trouble is None

    def _run(self) -> None:
        try:
            with Raw(self._node.address) as raw:
                offset = 0
                while not self._ending.is_set():
                    part = fetch(raw, self._topic, offset, self._partition, max_wait_ms=200)
                    if part.error_code:
                        self.trouble = f"error {part.error_code}"
                        return
                    self.found += [each for each in records_of(part) if each[0] >= offset]
                    offset = self.found[-1][0] + 1 if self.found else 0
        except (Closed, OSError) as error:
            self.trouble = repr(error)
