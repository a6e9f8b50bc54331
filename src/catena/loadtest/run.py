"""A run: topics, offsets before, samples, hammers, faults, a last sample, offsets after, read back, audit, summary,
report.

    run -> phase, or phases while the capacity is searched for -> findings

The first interrupt ends the hammers before their time; what they saw until then is reconciled all the same.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import Any, Protocol

import msgspec

from catena.cluster.view import READ, WRITE
from catena.errors import CatenaError
from catena.loadtest.analysis import Recorded
from catena.loadtest.capacity import Search, Step
from catena.loadtest.clients import Clients
from catena.loadtest.faults import Faults, Happened
from catena.loadtest.fleet import Fleet, read_back
from catena.loadtest.hammers.base import Interval
from catena.loadtest.orders import Bounds, OrderBook
from catena.loadtest.report import write_report
from catena.loadtest.routing import Manifest, make_manifest
from catena.loadtest.run_folder import (
    CLIENT,
    CLIENT_SUMMARY,
    EVENTS,
    MANIFEST,
    REMAPS,
    SUMMARY,
    RunFolder,
)
from catena.loadtest.sampler import Sampler
from catena.loadtest.scenario import Load, Scenario
from catena.loadtest.stack import PIPELINE, Stack
from catena.loadtest.summary import Outcome, summarize
from catena.loadtest.topics import look_at_bounds, precreate
from catena.local_cluster.cluster import Progress
from catena.local_cluster.plan import roles_of
from catena.runtime import Clock, Disk, Tasks

LOOK_S = 0.25
STEP_DRAIN_S = 20.0
"""After a step of the search: one that was too much is not waited for until the end."""


class Watch(Progress, Protocol):
    """Whoever looks on."""

    def say(self, words: str) -> None: ...

    def hammering(self, run: Run) -> None:
        """Now and then, while there is something to be seen."""


class Run:
    def __init__(self, stack: Stack, scenario: Scenario, clock: Clock, disk: Disk, watch: Watch) -> None:
        self.scenario = scenario
        self.clients = Clients()
        self.rate_mb_s = 0.0
        """Of the phase that is on."""
        self.origin = 0.0
        self.events: list[Happened] = []
        self.sampler: Sampler | None = None
        self.interrupted = False
        self._has_hammered = False
        self._stack = stack
        self._folder: RunFolder = stack.folder
        self._clock = clock
        self._disk = disk
        self._watch = watch
        self._fleet: Fleet | None = None
        self._tasks = Tasks("load test")
        self._dead_hammers: dict[str, str] = {}
        self._sampling: asyncio.Task[Any] | None = None

    @property
    def can_be_cut_short(self) -> bool:
        """There is still load to come, and nobody has interrupted it."""
        return not self.interrupted and not self._has_hammered

    def interrupt(self) -> None:
        self.interrupted = True
        if self._fleet is not None:
            self._fleet.stopping.set()

    @property
    def elapsed_s(self) -> float:
        return max(0.0, self._clock.monotonic() - self.origin) if self.origin else 0.0

    async def run(self) -> dict[str, Any]:
        """The summary, which is also in the run directory. Raises what kept it from coming so far."""
        started_at_ms = self._clock.now_ms()
        self._stack.has_run()
        await precreate(self._stack, self.scenario)
        state = self._stack.state
        manifest = self._manifest([node.name for node in state.nodes])
        self._folder.write(MANIFEST, manifest)
        before = await look_at_bounds(self._stack, self.scenario)
        book = OrderBook(self.scenario, state, manifest, self._folder.ledgers)
        search: Search | None = None
        began_s = 0.0
        try:
            if self.scenario.load.capacity == "find":
                search = await self._search(book, before)
            else:
                began_s, _ = await self._phase(book, self.scenario.load, before)
            self._has_hammered = True
            await self._last_sample()
            ended_s = self.elapsed_s
        finally:
            await self._tasks.close()
            if self.sampler is not None:
                self.sampler.close()
        self._folder.write(CLIENT_SUMMARY, self.clients.shown())
        outcome = await self._outcome(book, before, search, started_at_ms, began_s, ended_s)
        found = await self._disk.run(summarize, self._folder, self.scenario, self.clients, outcome)
        summary: dict[str, Any] = msgspec.to_builtins(found)
        self._folder.write(SUMMARY, summary)
        self._watch.say("writing the report")
        await self._disk.run(write_report, self._folder, summary)
        return summary

    def _manifest(self, nodes: Sequence[str]) -> Manifest:
        scenario, http = self.scenario, self.scenario.http
        roles = {name: roles_of(scenario.stack.roles, number) for number, name in enumerate(nodes)}
        return make_manifest(
            scenario.seed,
            scenario.places,
            nodes,
            http.owners,
            http.selection,
            but_writing=[name for name, each in roles.items() if each and WRITE not in each],
            but_reading=[name for name, each in roles.items() if each and READ not in each],
        )

    async def _search(self, book: OrderBook, before: dict[tuple[str, int], Bounds]) -> Search:
        how = self.scenario.capacity
        search = Search(how)
        bounds = before
        while (rate := search.next_rate) is not None:
            load = msgspec.structs.replace(
                self.scenario.load,
                rate_mb_s=rate,
                duration_s=how.step_s,
                drain_s=min(self.scenario.load.drain_s, STEP_DRAIN_S),
            )
            began, clients = await self._phase(book, load, bounds)
            if self.interrupted:
                break
            total = clients.of("produce")
            latency, late = total.shown()["latency_ms"], total.shown()["late_ms"]
            bad = total.failed + total.unknown + total.dropped + total.unanswered
            measured = began + load.warm_up_s
            recorded = await self._disk.run(Recorded, self._folder)
            step = search.add(
                Step(
                    rate_mb_s=rate,
                    acked_mb_s=recorded.acked_mb_s(measured, measured + load.duration_s),
                    p50_ms=latency["p50"],
                    p99_ms=latency["p99"],
                    error_share=bad / total.due if total.due else 1.0,
                    t=began,
                    late_ms=late["p99"],
                    hammer_cores=recorded.busiest_producer(measured, measured + load.duration_s),
                    host_busy=recorded.host_busy(measured, measured + load.duration_s),
                )
            )
            self._watch.say(f"{rate:.2f} MB/s: {step.broke or f'kept, p99 {step.p99_ms or 0:,.0f} ms'}")
            bounds = await look_at_bounds(self._stack, self.scenario)
        return search

    async def _phase(self, book: OrderBook, load: Load, bounds: dict[tuple[str, int], Bounds]) -> tuple[float, Clients]:
        """When it began, since the hammers of the run did, and what its hammers saw."""
        clients = Clients()
        began = 0.0

        def heard(interval: Interval) -> None:
            clients.add(interval)
            shifted = msgspec.structs.replace(interval, t=round(interval.t + began, 3))
            self.clients.add(shifted)
            self._folder.append(CLIENT, shifted)
            if interval.remaps:
                lines = [
                    {"t": shifted.t, "hammer": interval.hammer, **msgspec.structs.asdict(each)}
                    for each in interval.remaps
                ]
                self._folder.append(REMAPS, *lines)

        fleet = self._fleet = Fleet(self._clock, self._folder.logs, heard)
        if self.interrupted:
            fleet.stopping.set()
        faults = Faults(self._stack, self._clock, self._watch, self._happened)
        try:
            self._watch.say("starting hammers")
            self.clients.forget_recent()
            await fleet.launch(book.phase(load, bounds))
            await self._begin_samples()
            self.rate_mb_s = load.rate_mb_s
            start = fleet.go()
            began = start - self.origin
            faults.begin(self.scenario.events, self.origin, start + load.warm_up_s, load.duration_s)
            self._watch.hammering(self)
            watching = self._tasks.spawn("watch", self._be_watched())
            await fleet.finish(load.warm_up_s + load.duration_s, load.drain_s)
            watching.cancel()
            self._dead_hammers |= fleet.dead
        finally:
            await faults.close()
            await fleet.close()
        return began, clients

    async def _be_watched(self) -> None:
        """Here and not in a thread, since what is looked at changes all the time."""
        while True:
            await self._clock.sleep(LOOK_S)
            self._watch.hammering(self)

    async def _begin_samples(self) -> None:
        """With the first phase, whose beginning is what all times count from."""
        if self.sampler is not None:
            return
        self.origin = self._clock.monotonic()
        state = self._stack.state
        nodes = {node.name: node.http for node in state.nodes}
        if state.pipeline is not None:
            nodes[PIPELINE] = state.pipeline.http
        self.sampler = Sampler(self._folder, self._clock, self._disk, self.origin, nodes, self._roots)
        await self.sampler.sample()
        self._sampling = self._tasks.spawn("samples", self.sampler.run(self.scenario.sample_every_s))

    async def _last_sample(self) -> None:
        assert self.sampler is not None
        assert self._sampling is not None
        if self._sampling.done():
            self._sampling.result()  # raises what has ended it: a run without samples can't be audited
        await self._tasks.close()  # a node is asked one thing at a time
        await self.sampler.sample()

    def _roots(self) -> dict[str, int]:
        return {**self._stack.roots(), **(self._fleet.roots if self._fleet is not None else {})}

    def _happened(self, event: Happened) -> None:
        self.events.append(event)
        self._folder.append(EVENTS, event)
        self._watch.say(f"{event.what} {event.target}{f': {event.why}' if event.why else ''}")

    async def _outcome(
        self,
        book: OrderBook,
        before: dict[tuple[str, int], Bounds],
        search: Search | None,
        started_at_ms: int,
        began_s: float,
        ended_s: float,
    ) -> Outcome:
        states = await self._stack.states()
        self._watch.say("reading offsets")
        after: dict[tuple[str, int], Bounds] | None = None
        try:
            after = await look_at_bounds(self._stack, self.scenario)
        except CatenaError as error:
            self._watch.say(f"the logs can't be asked: {error}")
        verified = audit = None
        unverified = ""
        if self.scenario.verify == "records" and after is not None:
            self._watch.say("reading back what was acked")
            try:
                verified = await read_back(book.verifier(before, after), self._clock, self._folder.logs)
            except CatenaError as error:
                unverified = str(error)
        if self.scenario.audit:
            self._watch.say("auditing")
            audit = await self._audit()
        return Outcome(
            started_at_ms=started_at_ms,
            began_s=began_s,
            ended_s=ended_s,
            in_log=None if after is None else sum(after[place].tail - before[place].tail for place in before),
            states=states,
            events=self.events,
            dead_hammers=self._dead_hammers,
            search=search,
            verified=verified,
            unverified=unverified,
            audit=audit,
            interrupted=self.interrupted,
        )

    async def _audit(self) -> dict[str, Any]:
        try:
            report: dict[str, Any] = await self._stack.command("pipeline", "audit")
        except CatenaError as error:
            return {"ok": False, "message": str(error)}
        defects = report.get("defects", [])
        damage = [each for each in defects if each.get("severity") == "damage"]
        unchecked = report.get("unchecked", [])
        kept = {
            name: report.get(name) for name in ("partitions", "offsets", "bytes", "orphans", "duration_ms", "unlisted")
        }
        message = f"{len(damage)} damaged, {len(unchecked)} could not be looked at"
        ok = bool(report.get("is_complete")) and not damage and not unchecked and not report.get("unlisted")
        return {"ok": ok, "message": message, **kept, "damage": damage[:20], "leftovers": len(defects) - len(damage)}
