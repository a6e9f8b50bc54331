"""The pipeline as a service: its jobs until it is told to end, one warm Spark for all of them, and its state over HTTP.

/health               whether it works, since when, how its jobs went, and which partitions fail
/metrics              all figures as JSON
/metrics/prometheus   the same as Prometheus reads it
"""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from importlib.metadata import version
from itertools import islice
from typing import Any, NamedTuple

from catena.cluster.services import announce
from catena.cluster.view import Address
from catena.config import Settings
from catena.http.base import HttpRequest, HttpResponse, Routes, json_response
from catena.http.server import HttpServer
from catena.jobs.figures import Figures
from catena.jobs.opening import EVERYTHING, OpenWork, Which, find_places, open_site
from catena.jobs.prometheus import exposition
from catena.jobs.service_jobs import ServiceJobs
from catena.jobs.vacuuming import check_vacuum
from catena.metrics.cost import requests_cost_usd
from catena.metrics.families import CONTENT_TYPE
from catena.objects.counted import CountedObjects
from catena.pipeline.last_runs import LastRuns
from catena.pipeline.renewed_work import RenewedWork, renewed
from catena.pipeline.service import Service
from catena.pipeline.work import Usage, used
from catena.runtime import Clock, Network, SystemClock, SystemEntropy, SystemNetwork

VERSION = version("catena-log")
FAILING_SHOWN = 100


class Running(NamedTuple):
    service: Service
    state: State
    work: RenewedWork
    http: str
    """Host and port."""

    def end(self) -> None:
        """Between two commits; a Spark that has died meanwhile is not waited for."""
        self.service.end()
        self.work.end()


class State:
    """What is told over HTTP."""

    def __init__(
        self, service: Service, jobs: ServiceJobs, work: RenewedWork, driver: CountedObjects, clock: Clock
    ) -> None:
        self._service = service
        self._jobs = jobs
        self._work = work
        self._driver = driver
        self._before = driver.snapshot()
        self._clock = clock
        self._started = clock.monotonic()

    @property
    def routes(self) -> Routes:
        return {
            "/health": {"GET": self.health},
            "/metrics": {"GET": self.metrics},
            "/metrics/prometheus": {"GET": self.prometheus},
        }

    async def health(self, _request: HttpRequest) -> HttpResponse:
        return json_response(
            {
                "status": "ending" if self._service.is_ending else "running",
                "version": VERSION,
                "uptime_s": round(self._clock.monotonic() - self._started, 3),
                "jobs": self._service.counts,
                "spark": self._work.renewals,
                "failing_partitions": len(self._jobs.passes.set_aside.all),
                "failing": self._failing(),
            }
        )

    async def metrics(self, _request: HttpRequest) -> HttpResponse:
        return json_response(self.figures)

    async def prometheus(self, _request: HttpRequest) -> HttpResponse:
        return HttpResponse(200, exposition(self.figures), CONTENT_TYPE)

    @property
    def figures(self) -> Figures:
        passes = self._jobs.passes
        tasks = sum(self._work.usage.values(), Usage())
        driver = used(self._before, self._driver.snapshot(), 0)
        return Figures(
            jobs=self._service.counts,
            tier=passes.counts,
            lag=passes.lag,
            pending=passes.pending,
            stages={str(stage): time for stage, time in passes.stages.times.items()},
            compact=self._jobs.compact_passes.counts,
            tables=self._jobs.tables.figures,
            retention=self._jobs.retention,
            vacuum=self._jobs.vacuum,
            audit=self._jobs.audit,
            spark=self._work.renewals,
            failing_partitions=len(passes.set_aside.all),
            failing=self._failing(),
            tasks=tasks,
            driver=driver,
            requests_cost_usd=requests_cost_usd(tasks.requests) + requests_cost_usd(driver.requests),
            uptime_s=round(self._clock.monotonic() - self._started, 3),
        )

    @property
    def troubles(self) -> list[str]:
        """Of jobs whose last run was not as it should be."""
        return [f"{job}: {counts.last_error}" for job, counts in self._service.counts.items() if counts.is_in_trouble]

    def _failing(self) -> list[dict[str, Any]]:
        return [
            {"topic": tp.topic, "partition": tp.partition, "failures": failing.failures, "error": failing.error}
            for tp, failing in islice(self._jobs.passes.set_aside.all.items(), FAILING_SHOWN)
        ]


@asynccontextmanager
async def open_service(
    settings: Settings, open_work: OpenWork, which: Which = EVERYTHING, network: Network | None = None
) -> AsyncIterator[Running]:
    """Raises ConfigError if it is to vacuum and the grace is too short, UnknownTopic if there is none."""
    if settings.pipeline.service.vacuum_every_ms and which == EVERYTHING:
        check_vacuum(settings)
    clock, entropy = SystemClock(), SystemEntropy()
    async with AsyncExitStack() as opened:
        site, requests = await opened.enter_async_context(open_site(settings, clock, entropy))
        await find_places(site, which)  # a name that is wrong is told now, and not again with each run
        work = await opened.enter_async_context(renewed(open_work, clock))
        jobs = ServiceJobs(settings, site, work, which)
        # A service of one topic says nothing of the others.
        note = LastRuns(site.meta, clock).note if which == EVERYTHING else None
        service = Service(jobs.all, clock, entropy, note)
        opened.push_async_callback(service.close)
        state = State(service, jobs, work, requests, clock)
        http = HttpServer(network or SystemNetwork(), clock, state.routes)
        opened.push_async_callback(http.close)
        address = Address(settings.http.host, await http.listen(settings.http.host, settings.http.port))
        opened.push_async_callback((await announce(site.meta, clock, entropy, address, VERSION)).close)
        yield Running(service, state, work, str(address))
