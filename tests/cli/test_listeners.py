"""Listeners on the command line."""

from __future__ import annotations

import pytest

from catena.cli.listeners import parse_listeners
from catena.errors import ConfigError


def test_forms() -> None:
    assert parse_listeners(["main=0.0.0.0:9092", "wan=[::1]:0@kafka.example.com:443"]) == {
        "main": {"host": "0.0.0.0", "port": 9092},
        "wan": {"host": "::1", "port": 0, "advertised_host": "kafka.example.com", "advertised_port": 443},
    }


@pytest.mark.parametrize(
    ("given", "says"),
    [
        (["9092"], r"--listener 9092: it has to be NAME=HOST:PORT\[@HOST:PORT\]"),
        (["=a:1"], "it has to be"),
        (["a=b"], "'b' is not HOST:PORT"),
        (["a=b:"], "'b:' is not HOST:PORT"),
        (["a=b:70000"], "is not HOST:PORT"),
        (["a=b:-1"], "is not HOST:PORT"),
        (["a=b:1@c"], "'c' is not HOST:PORT"),
        (["a=b:1@"], "'' is not HOST:PORT"),
        (["a=b:1", "a=c:2"], "there are two named 'a'"),
    ],
)
def test_what_can_not_be_is_named(given: list[str], says: str) -> None:
    with pytest.raises(ConfigError, match=says):
        parse_listeners(given)
