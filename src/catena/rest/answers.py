"""How errors are called in JSON, and answers made of it."""

from __future__ import annotations

from typing import Any

import msgspec

from catena.errors import BackPressure, CatenaError
from catena.http.base import HttpResponse, json_response

BACK_PRESSURE = "BackPressureRejected"
RETRY_AFTER = (("retry-after", "1"),)

_encoder = msgspec.json.Encoder()


def name_of(error: CatenaError) -> str:
    """The name of its class, but for the one that clients act on under another."""
    return BACK_PRESSURE if isinstance(error, BackPressure) else type(error).__name__


def answer(value: Any, status: int = 200, headers: tuple[tuple[str, str], ...] = ()) -> HttpResponse:
    return HttpResponse(status, _encoder.encode(value), headers=headers)


def refusal(status: int, error: CatenaError) -> HttpResponse:
    """Of a request that is about one thing."""
    headers = RETRY_AFTER if status == 503 else ()
    return json_response({"message": str(error), "error_type": name_of(error)}, status)._replace(headers=headers)
