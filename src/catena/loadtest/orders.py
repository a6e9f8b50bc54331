"""Who hammers what: the orders of a phase, from the scenario and what is there. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

import msgspec

from catena.loadtest.hammers.base import Order
from catena.loadtest.routing import Manifest
from catena.loadtest.run_folder import StackState
from catena.loadtest.scenario import MB, Load, Scenario

MAX_HAMMERS = 0xFFFF
"""Their numbers are four hex digits in a record."""


class Bounds(msgspec.Struct, frozen=True):
    """Of a partition: its first offset, and the one after its last."""

    start: int
    tail: int


class OrderBook:
    """Gives orders with numbers that no other hammer of the run has, and remembers who sent what."""

    def __init__(self, scenario: Scenario, stack: StackState, manifest: Manifest, ledgers: Path) -> None:
        self._scenario = scenario
        self._stack = stack
        self._manifest = manifest
        self._ledgers = ledgers
        self._hammers = 0
        self.rows: dict[int, int] = {}
        self.sent_by: dict[int, str] = {}

    def phase(self, load: Load, tails: Mapping[tuple[str, int], Bounds]) -> list[Order]:
        """Consumers first, so that they are there when the first record comes."""
        kafka, http = self._scenario.kafka, self._scenario.http
        orders = self._consumers("kafka-consume", kafka.consumers, load, tails)
        orders += self._consumers("http-consume", http.consumers, load, tails)
        shares = self._scenario.shares
        orders += self._producers("kafka-produce", kafka.producers, shares["kafka"], kafka.in_a_row, load)
        orders += self._producers("http-produce", http.producers, shares["http"], http.records_per_request, load)
        return orders

    def verifier(self, before: Mapping[tuple[str, int], Bounds], after: Mapping[tuple[str, int], Bounds]) -> Order:
        order = self._order("verify", "verify", self._scenario.load, 0)
        places = self._scenario.places
        return msgspec.structs.replace(
            order,
            places=places,
            starts=[before[place].tail for place in places],
            ends=[after[place].tail for place in places],
            rows=self.rows,
            sent_by=self.sent_by,
            ledger=str(self._ledgers),
        )

    def _producers(self, role: str, processes: int, share: float, in_a_row: int, load: Load) -> list[Order]:
        orders = []
        for number in range(processes if share > 0 else 0):
            hammer = self._next()
            self.rows[hammer], self.sent_by[hammer] = in_a_row, role
            orders.append(
                msgspec.structs.replace(
                    self._order(role, f"{role}-{hammer}", load, hammer),
                    per_s=load.rate_mb_s * MB * share / load.record_bytes,
                    number=number,
                    of=processes,
                    places=self._scenario.places,
                    ledger=str(self._ledgers / str(hammer)) if self._scenario.verify == "records" else "",
                )
            )
        return orders

    def _consumers(self, role: str, processes: int, load: Load, tails: Mapping[tuple[str, int], Bounds]) -> list[Order]:
        orders = []
        for number in range(processes):
            places = self._scenario.places[number::processes]
            if places:
                hammer = self._next()
                order = self._order(role, f"{role}-{hammer}", load, hammer)
                starts = [tails[place].tail for place in places]
                orders.append(msgspec.structs.replace(order, places=places, starts=starts))
        return orders

    def _order(self, role: str, name: str, load: Load, hammer: int) -> Order:
        return Order(
            role=role,
            name=name,
            hammer=hammer,
            seed=self._scenario.seed,
            bootstrap=self._stack.bootstrap,
            http={node.name: node.http for node in self._stack.nodes},
            manifest=self._manifest,
            places=[],
            starts=[],
            load=load,
            kafka=msgspec.structs.replace(self._scenario.kafka, in_flight=self._scenario.requests_in_flight),
            http_load=self._scenario.http,
        )

    def _next(self) -> int:
        assert self._hammers < MAX_HAMMERS
        self._hammers += 1
        return self._hammers
