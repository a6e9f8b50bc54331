"""Names of errors, and answers."""

from __future__ import annotations

import json

from catena.errors import BackPressure, StoreUnavailable, UnknownTopic
from catena.rest.answers import answer, name_of, refusal


def test_names() -> None:
    assert name_of(BackPressure("slow")) == "BackPressureRejected"
    assert name_of(UnknownTopic("t")) == "UnknownTopic"


def test_answers() -> None:
    assert answer({"a": 1}, 201, (("x", "y"),)) == (201, b'{"a":1}', "application/json", (("x", "y"),))


def test_who_may_try_again_is_told_when() -> None:
    away, unknown = refusal(503, StoreUnavailable("down")), refusal(404, UnknownTopic("t"))
    assert (away.status, away.headers) == (503, (("retry-after", "1"),))
    assert json.loads(away.body) == {"message": "down", "error_type": "StoreUnavailable"}
    assert (unknown.status, unknown.headers) == (404, ())
