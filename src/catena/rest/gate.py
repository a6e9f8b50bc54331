"""Who is let in: by the token, by the node's roles, and as often as the node is to be asked.

Without a token everybody is, as through the Kafka listener. What a client sent wrong is answered here as well, so that
handlers are about what was asked.
"""

from __future__ import annotations

import math

from catena.http.base import Handler, HttpRequest, HttpResponse, error_response, json_response
from catena.http.bearer import Bearer, who_are_you
from catena.rest.bodies import InvalidBody
from catena.runtime import Clock


class Rate:
    """So many requests in a second, and as many at once after a second without any. 0: any number."""

    def __init__(self, per_s: int, clock: Clock) -> None:
        self._per_s = per_s
        self._clock = clock
        self._left = float(per_s)
        self._at = clock.monotonic()

    def take(self) -> float:
        """0 if one more may be done now, else the seconds until then."""
        if not self._per_s:
            return 0.0
        now = self._clock.monotonic()
        self._left = min(float(self._per_s), self._left + (now - self._at) * self._per_s)
        self._at = now
        if self._left < 1.0:
            return (1.0 - self._left) / self._per_s
        self._left -= 1.0
        return 0.0


class Gate:
    def __init__(self, token: str, max_requests_per_s: int, roles: tuple[str, ...], clock: Clock) -> None:
        self._bearer = Bearer(token)
        self._rate = Rate(max_requests_per_s, clock)
        self._max_requests_per_s = max_requests_per_s
        self._roles = roles

    def guarded(self, handler: Handler, role: str | None = None) -> Handler:
        """The handler, for those who may. `role`: what a node has to be for that."""
        if role is not None and role not in self._roles:
            shown = ", ".join(self._roles)

            async def absent(_request: HttpRequest) -> HttpResponse:
                return error_response(404, f"this node does not {role}, its roles are: {shown}; ask one that does")

            return absent

        async def guarded(request: HttpRequest) -> HttpResponse:
            if self._bearer and not self._bearer.knows(request):
                return who_are_you("this is for those who send the token of this cluster")
            if wait_s := self._rate.take():
                message = f"this node is asked more than {self._max_requests_per_s} times a second"
                return error_response(429, message, (("retry-after", str(math.ceil(wait_s))),))
            try:
                return await handler(request)
            except InvalidBody as error:
                return json_response({"message": str(error), "at": error.at}, 400)

        return guarded
