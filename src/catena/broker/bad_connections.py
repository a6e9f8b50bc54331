"""Connections that the node ends, in its log: each as it happens, until there are many.

A port scanner, or a client that comes back as often as it is turned away, would fill the log. So within a minute a few
are said of each host, and of a few hosts, so that one does not drown the others; the rest is counted, and said in one
line when the minute is over.
"""

from __future__ import annotations

import logging

from catena.runtime import Clock

log = logging.getLogger(__name__)

WINDOW_S = 60.0
MAX_OF_A_HOST = 3
MAX_HOSTS = 10


class BadConnections:
    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._since = clock.monotonic()
        self._said: dict[str, int] = {}
        """Lines of this minute, by host."""
        self._unsaid = 0
        self._last = ("", "")

    def ended(self, host: str, why: str) -> None:
        self.check()
        said = self._said.get(host, 0)
        if said < MAX_OF_A_HOST and (said or len(self._said) < MAX_HOSTS):
            self._said[host] = said + 1
            log.warning("connection of %s ends: %s", host, why)
        else:
            self._unsaid += 1
            self._last = (host, why)

    def check(self) -> None:
        """Called now and then: a minute that is over is summed up."""
        if self._clock.monotonic() - self._since >= WINDOW_S:
            self.sum_up()

    def sum_up(self) -> None:
        if self._unsaid:
            log.warning("%d more connections were ended; the last, of %s: %s", self._unsaid, *self._last)
        self._since = self._clock.monotonic()
        self._said.clear()
        self._unsaid = 0
