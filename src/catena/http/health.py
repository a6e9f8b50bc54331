"""/health: does the process live? /ready: should clients be sent to it?

A node that is starting, draining, not listed in its cluster or read-only lives, but is not ready: both say so as
`state`. The `status` of /health is that of the process, and always the same.
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
        fields: dict[str, object] = {"state": self.status, "node_id": self.node_id, "cluster_id": self.cluster_id}
        return fields if self.reason is None else {**fields, "reason": self.reason}


class Health:
    def __init__(
        self, clock: Clock, version: str, look: Callable[[], NodeState], address: Callable[[], tuple[str, int]]
    ) -> None:
        """`address`: host and port at which this is asked."""
        self._clock = clock
        self._started = clock.monotonic()
        self._started_at_ms = clock.now_ms()
        self._version = version
        self._look = look
        self._address = address

    @property
    def routes(self) -> Routes:
        return {"/health": {"GET": self.health}, "/ready": {"GET": self.ready}}

    async def health(self, _request: HttpRequest) -> HttpResponse:
        state = self._look()
        host, port = self._address()
        return json_response(
            {
                "status": "ok",
                "broker_id": None if state.node_id is None else str(state.node_id),
                "host": host,
                "port": port,
                "started_at_ms": self._started_at_ms,
                **state.shown,
                "version": self._version,
                "uptime_s": round(self._clock.monotonic() - self._started, 3),
            }
        )

    async def ready(self, _request: HttpRequest) -> HttpResponse:
        state = self._look()
        return json_response(state.shown, 200 if state.status == "ready" else 503)
