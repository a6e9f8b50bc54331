"""Listeners as they are named on the command line: NAME=HOST:PORT, or NAME=HOST:PORT@ADVERTISED_HOST:PORT."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from catena.errors import ConfigError

FORM = "NAME=HOST:PORT[@HOST:PORT]"


def parse_listeners(given: Sequence[str]) -> dict[str, dict[str, Any]]:
    """As settings, by name."""
    listeners: dict[str, dict[str, Any]] = {}
    for text in given:
        name, equals, addresses = text.partition("=")
        bound, at, advertised = addresses.partition("@")
        if not name or not equals or name in listeners:
            why = f"there are two named {name!r}" if name in listeners else f"it has to be {FORM}"
            raise ConfigError(f"option --listener {text}: {why}")
        host, port = _address(text, bound)
        listeners[name] = {"host": host, "port": port}
        if at:
            host, port = _address(text, advertised)
            listeners[name] |= {"advertised_host": host, "advertised_port": port}
    return listeners


def _address(text: str, address: str) -> tuple[str, int]:
    host, _, port = address.rpartition(":")
    host = host.removeprefix("[").removesuffix("]")  # as an IPv6 address is written before a port
    if not host or not (port.isascii() and port.isdigit()) or int(port) > 65535:
        raise ConfigError(f"option --listener {text}: {address!r} is not HOST:PORT; it has to be {FORM}")
    return host, int(port)
