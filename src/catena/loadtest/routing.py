"""Which nodes a partition's HTTP requests go to. Pure.

    owners(partition) = the `count` nodes with the highest hash of (seed, topic, partition, node)

This is rendezvous hashing: computed once for a run, the same wherever it is computed, and a node more or less moves
only the partitions that it wins or had. Requests go to owners only. Which of them is decided for each request, in
turn or by who has the fewest on their way. A node that can't be reached, or says that it can't now, gets nothing for a
while: its requests go to the other owners of the partition (a remap), never to anybody else.

Kafka clients are not routed by this: they ask the cluster who leads, and follow.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from hashlib import blake2b
from typing import Literal

import msgspec

DOWN_S = 1.0
"""How long one that could not be reached gets nothing."""


class Route(msgspec.Struct, frozen=True):
    topic: str
    partition: int
    owners: tuple[str, ...]
    """What it produces goes to them,"""
    readers: tuple[str, ...]
    """and what it consumes comes from these: the same, unless nodes have roles."""


class Manifest(msgspec.Struct, frozen=True):
    """`routing-manifest.json`."""

    seed: int
    nodes: tuple[str, ...]
    owners: int
    selection: Literal["round_robin", "least_inflight"]
    routes: tuple[Route, ...]


def weight(seed: int, topic: str, partition: int, node: str) -> int:
    name = "\0".join((str(seed), topic, str(partition), node))
    return int.from_bytes(blake2b(name.encode(), digest_size=8).digest(), "big")


def owners(seed: int, topic: str, partition: int, nodes: Sequence[str], count: int) -> tuple[str, ...]:
    """The first `count`, by weight; a tie, which nobody will ever see, goes by name."""
    ranked = sorted(nodes, key=lambda node: (-weight(seed, topic, partition, node), node))
    return tuple(ranked[:count])


def make_manifest(
    seed: int,
    places: Sequence[tuple[str, int]],
    nodes: Sequence[str],
    count: int,
    selection: Literal["round_robin", "least_inflight"],
    *,
    but_writing: Collection[str] = (),
    but_reading: Collection[str] = (),
) -> Manifest:
    """Of these nodes some may not write, and some not read."""
    writers = [node for node in nodes if node not in but_writing]
    readers = [node for node in nodes if node not in but_reading]
    routes = (
        Route(topic, number, *(owners(seed, topic, number, each, count) for each in (writers, readers)))
        for topic, number in places
    )
    return Manifest(seed, tuple(nodes), min(count, len(nodes)), selection, tuple(routes))


class Remap(msgspec.Struct, frozen=True):
    """A node went away, or is asked again."""

    node: str
    why: str
    """Empty: it is asked again."""
    partitions: int
    """That it is an owner of."""
    alone: int
    """Partitions of these whose other owners are away as well: nobody is asked for them."""


class Router:
    """The choice for each request. `now` is any clock that does not go back."""

    def __init__(self, manifest: Manifest, *, reads: bool = False) -> None:
        self._manifest = manifest
        self._routes = {
            (route.topic, route.partition): route.readers if reads else route.owners for route in manifest.routes
        }
        self._turns = dict.fromkeys(self._routes, 0)
        self._in_flight = dict.fromkeys(manifest.nodes, 0)
        self._down_until: dict[str, float] = {}

    def owners(self, place: tuple[str, int]) -> tuple[str, ...]:
        return self._routes[place]

    def choose(self, place: tuple[str, int], now: float, but: Collection[str] = ()) -> str | None:
        """An owner that is there and not in `but`; None if there is none at the moment."""
        there = [node for node in self._routes[place] if node not in but and self._down_until.get(node, now) <= now]
        if not there:
            return None
        if self._manifest.selection == "least_inflight":
            # Owners in their order where several have as few, so that it does not depend on names.
            return min(there, key=lambda node: self._in_flight[node])
        turn = self._turns[place]
        self._turns[place] = turn + 1
        return there[turn % len(there)]

    def begin(self, node: str) -> None:
        self._in_flight[node] += 1

    def end(self, node: str) -> None:
        self._in_flight[node] -= 1

    def fails(self, node: str, why: str, now: float) -> Remap | None:
        """It could not be reached; None if that was known."""
        was_known = node in self._down_until
        self._down_until[node] = now + DOWN_S
        return None if was_known else self._remap(node, why, now)

    def works(self, node: str, now: float) -> Remap | None:
        """It has answered; None if it always did."""
        return self._remap(node, "", now) if self._down_until.pop(node, None) is not None else None

    def _remap(self, node: str, why: str, now: float) -> Remap:
        owned = [found for found in self._routes.values() if node in found]
        alone = [found for found in owned if all(self._down_until.get(each, now) > now for each in found)]
        return Remap(node, why, len(owned), len(alone))
