"""Who is known by the token."""

from __future__ import annotations

import pytest

from catena.http.base import HttpRequest
from catena.http.bearer import Bearer, who_are_you

TOKEN = "a token that nobody guesses"


@pytest.mark.parametrize(
    ("token", "headers", "is_known"),
    [
        (TOKEN, ((b"authorization", b"Bearer " + TOKEN.encode()),), True),
        (TOKEN, ((b"authorization", b"bearer " + TOKEN.encode()),), True),
        (TOKEN, ((b"authorization", TOKEN.encode()),), False),
        (TOKEN, (), False),
        ("", ((b"authorization", b"Bearer "),), False),
        ("", (), False),
    ],
)
def test_who_is_known(token: str, headers: tuple[tuple[bytes, bytes], ...], is_known: bool) -> None:
    bearer = Bearer(token)
    assert bearer.knows(HttpRequest("GET", "/", headers=headers)) is is_known
    assert bool(bearer) is bool(token)


def test_who_is_not_is_told_how() -> None:
    response = who_are_you("say who you are")
    assert (response.status, response.headers) == (401, (("www-authenticate", "Bearer"),))
