"""The pipeline as a service: passes until it is told to end, one warm Spark for all of them, and its state over HTTP.

/health               whether it works, since when, and which partitions fail
/metrics              all counts as JSON
/metrics/prometheus   the same as Prometheus reads it
"""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from importlib.metadata import version
from typing import Any, NamedTuple

from catena.config import Settings
from catena.http.base import HttpRequest, HttpResponse, Routes, json_response
from catena.http.server import HttpServer
from catena.jobs.opening import EVERYTHING, OpenWork, Which, find_places, open_site
from catena.jobs.prometheus import exposition
from catena.objects.counted import CountedObjects
from catena.pipeline.service import Service
from catena.pipeline.site import Place
from catena.pipeline.work import Usage, Work, used
from catena.runtime import Clock, Network, SystemClock, SystemEntropy, SystemNetwork

VERSION = version("catena-log")


class Running(NamedTuple):
    service: Service
    state: State
    http: str
    """Host and port."""


class State:
    """What is told over HTTP."""

    def __init__(self, service: Service, work: Work, driver: CountedObjects, clock: Clock) -> None:
        self._service = service
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
        counts = self._service.counts
        return json_response(
            {
                "status": "ending" if self._service.is_ending else "running",
                "version": VERSION,
                "uptime_s": round(self._clock.monotonic() - self._started, 3),
                "passes": counts.passes,
                "last_pass_at_ms": counts.last_pass_at_ms,
                "last_good_pass_at_ms": counts.last_good_pass_at_ms,
                "last_error": counts.last_error,
                "failing": self._failing(),
            }
        )

    async def metrics(self, _request: HttpRequest) -> HttpResponse:
        return json_response(self.as_json())

    async def prometheus(self, _request: HttpRequest) -> HttpResponse:
        body = exposition(self._service.counts, len(self._service.set_aside.all), self.tasks, self.driver)
        return HttpResponse(200, body, "text/plain; version=0.0.4; charset=utf-8")

    def as_json(self) -> dict[str, Any]:
        return {
            "service": self._service.counts,
            "failing": self._failing(),
            "tasks": self.tasks,
            "driver": self.driver,
        }

    @property
    def tasks(self) -> Usage:
        """What all tasks have asked of the object store."""
        return sum(self._work.usage.values(), Usage())

    @property
    def driver(self) -> Usage:
        return used(self._before, self._driver.snapshot(), 0)

    def _failing(self) -> list[dict[str, Any]]:
        return [
            {"topic": tp.topic, "partition": tp.partition, "failures": failing.failures, "error": failing.error}
            for tp, failing in self._service.set_aside.all.items()
        ]


@asynccontextmanager
async def open_service(
    settings: Settings, open_work: OpenWork, which: Which = EVERYTHING, network: Network | None = None
) -> AsyncIterator[Running]:
    clock, entropy = SystemClock(), SystemEntropy()
    async with AsyncExitStack() as opened:
        site, requests = await opened.enter_async_context(open_site(settings, clock, entropy))
        work = await opened.enter_async_context(open_work())

        async def find() -> list[Place]:
            return await find_places(site, which)

        service = Service(site, work, settings.pipeline, find)
        state = State(service, work, requests, clock)
        http = HttpServer(network or SystemNetwork(), clock, state.routes)
        opened.push_async_callback(http.close)
        port = await http.listen(settings.http.host, settings.http.port)
        yield Running(service, state, f"{settings.http.host}:{port}")
