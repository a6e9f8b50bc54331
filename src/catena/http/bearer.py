"""The one secret that a node knows its callers by, sent as `Authorization: Bearer TOKEN`."""

from __future__ import annotations

import hmac

from catena.http.base import HttpRequest, HttpResponse, error_response


class Bearer:
    def __init__(self, token: str) -> None:
        """Empty: there is none, and nobody is known."""
        self._token = token.encode()

    def __bool__(self) -> bool:
        return bool(self._token)

    def knows(self, request: HttpRequest) -> bool:
        given = next((value for name, value in request.headers if name == b"authorization"), b"")
        scheme, _, token = given.partition(b" ")  # the scheme's case does not matter (RFC 9110, 11.1)
        return bool(self._token) and scheme.lower() == b"bearer" and hmac.compare_digest(token, self._token)


def who_are_you(message: str) -> HttpResponse:
    return error_response(401, message, (("www-authenticate", "Bearer"),))
