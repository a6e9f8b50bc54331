"""Links to objects that a node itself hands out, where the object store can't sign any: a folder, for example. Pure.

    /v1/read/object?key=K&until=MS&proof=HEX

The proof is an HMAC of the key and of the time at which the link expires, made with what only nodes and those who have
the token know; so a link tells nothing about the token, and every node of the cluster can check it.
"""

from __future__ import annotations

import hashlib
import hmac
from urllib.parse import parse_qsl, urlencode

PATH = "/v1/read/object"


def secret_of(token: str) -> bytes:
    """Another one than the token: whoever knows how a link is made has no access with it."""
    return hmac.digest(token.encode(), b"catena: links to objects", hashlib.sha256)


def link(secret: bytes, key: str, until_ms: int) -> str:
    """Relative to the node."""
    return f"{PATH}?{urlencode({'key': key, 'until': until_ms, 'proof': _proof(secret, key, until_ms)})}"


def key_of(secret: bytes, query: str, now_ms: int) -> str | None:
    """Of the object that may be read now by a link with this query; None if the link is not valid, or not any more."""
    given = dict(parse_qsl(query))
    key, until, proof = given.get("key", ""), given.get("until", ""), given.get("proof", "")
    if not until.isdecimal() or not until.isascii() or len(until) > 19 or int(until) < now_ms:
        return None
    return key if hmac.compare_digest(proof.encode(), _proof(secret, key, int(until)).encode()) else None


def _proof(secret: bytes, key: str, until_ms: int) -> str:
    return hmac.digest(secret, f"{until_ms} {key}".encode(), hashlib.sha256).hex()
