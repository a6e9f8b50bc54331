"""Samples of metrics, from wherever they are: nodes of a cluster, an address, a file."""

from __future__ import annotations

import base64
import http.client
from collections.abc import Iterable
from pathlib import Path
from typing import NamedTuple
from urllib.parse import SplitResult, unquote, urlsplit

from catena.cluster.membership import MAX_NODES
from catena.cluster.services import find_services
from catena.cluster.view import Address, NodeRecord, decode_node
from catena.config import Settings, without_password
from catena.errors import ConfigError, StoreUnavailable
from catena.meta import keys
from catena.runtime import Clock, Entropy
from catena.stores import open_meta, open_objects

ASK_MAX_S = 10.0
MAX_BYTES = 64 << 20
PATH = "/metrics"
ALL_ADDRESSES = ("", "0.0.0.0", "::")


class Sample(NamedTuple):
    where: str
    text: bytes


class Silent(NamedTuple):
    where: str
    why: str


async def find_all(settings: Settings, clock: Clock, entropy: Entropy) -> list[str]:
    """Addresses of the nodes that are registered, and of the pipeline's services."""
    async with (
        open_objects(settings, clock, entropy, was_probed=True) as (objects, _),
        open_meta(settings, objects, clock, entropy) as meta,
    ):
        records = await meta.scan(keys.NODES, keys.after(keys.NODES), MAX_NODES)
        services = await find_services(meta)
    nodes = [address for node in map(decode_node, records) if (address := _http_of(node)) is not None]
    return [f"http://{address}" for address in (*nodes, *(service.http for service in services))]


def _http_of(node: NodeRecord) -> Address | None:
    """One that listens on all addresses of its host is reached where its Kafka clients reach it."""
    if node.http is None or node.http.host not in ALL_ADDRESSES:
        return node.http
    host = next((listener.host for listener in node.listeners.values()), node.http.host)
    return Address(host, node.http.port)


def ask_all(places: Iterable[str]) -> tuple[list[Sample], list[Silent]]:
    """What those say that answer, and who does not. Raises ConfigError for a place that is none."""
    samples, silent = list[Sample](), list[Silent]()
    for place in places:
        where = without_password(place)
        try:
            samples.append(Sample(where, ask(place)))
        except StoreUnavailable as error:
            silent.append(Silent(where, str(error)))
    return samples, silent


def is_address(place: str) -> bool:
    """Otherwise it is the path of a file."""
    return place.startswith(("http://", "https://"))


def ask(place: str) -> bytes:
    """`http://HOST:PORT`, with or without a path, or the path of a file. `USER:PASSWORD@` in front of the host is sent,
    for a proxy that wants it."""
    if not is_address(place):
        try:
            return Path(place).read_bytes()
        except OSError as error:
            raise ConfigError(
                f"{place} is no file that can be read, and no http:// address: {error.strerror}"
            ) from None
    where = without_password(place)
    try:
        address = urlsplit(place)
        host, port = address.hostname, address.port
    except ValueError as error:
        raise ConfigError(f"{where} is no address: {error}") from None
    if not host:
        raise ConfigError(f"{where} is no address: it names no host")
    kind = http.client.HTTPSConnection if address.scheme == "https" else http.client.HTTPConnection
    connection = kind(host, port, timeout=ASK_MAX_S)
    try:
        connection.request(
            "GET", address.path if address.path not in ("", "/") else PATH, headers=_credentials(address)
        )
        answer = connection.getresponse()
        text = answer.read(MAX_BYTES)
    except (OSError, http.client.HTTPException) as error:
        raise StoreUnavailable(f"{where} does not answer: {error}") from None
    finally:
        connection.close()
    if answer.status != http.client.OK:
        raise StoreUnavailable(f"{where} answers with status {answer.status}")
    return text


def _credentials(address: SplitResult) -> dict[str, str]:
    if address.username is None:
        return {}
    both = f"{unquote(address.username)}:{unquote(address.password or '')}"
    return {"authorization": "Basic " + base64.b64encode(both.encode()).decode()}
