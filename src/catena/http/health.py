"""/health: does the process live? /ready: should clients be sent to it?

A node that is starting, draining, not listed in its cluster or read-only lives, but is not ready.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Literal, NamedTuple, TypeAlias

from catena.http.base import HttpRequest, HttpResponse, Routes, json_response
from catena.runtime import Clock

Status: TypeAlias = Literal["starting", "ready", "unlisted", "read-only", "draining"]
"""Unlisted: it has joined, but its session was lost, and others do not see it. Read-only: its meta store was set back,
and it takes nothing but reads."""


class NodeState(NamedTuple):
    status: Status
    node_id: int | None = None
    cluster_id: str | None = None
    reason: str | None = None
    """Why it is read-only; not shown otherwise."""

    @property
    def shown(self) -> dict[str, object]:
        fields = self._asdict()
        return fields if self.reason is not None else {name: fields[name] for name in fields if name != "reason"}


class Health:
    def __init__(self, clock: Clock, version: str, look: Callable[[], NodeState]) -> None:
        self._clock = clock
        self._started = clock.monotonic()
        self._version = version
        self._look = look

    @property
    def routes(self) -> Routes:
        return {"/health": {"GET": self.health}, "/ready": {"GET": self.ready}}

    async def health(self, _request: HttpRequest) -> HttpResponse:
        uptime_s = round(self._clock.monotonic() - self._started, 3)
        return json_response({**self._look().shown, "version": self._version, "uptime_s": uptime_s})

    async def ready(self, _request: HttpRequest) -> HttpResponse:
        state = self._look()
        return json_response(state.shown, 200 if state.status == "ready" else 503)
