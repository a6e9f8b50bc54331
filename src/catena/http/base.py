"""What goes in and comes out of a route, and how a route is found. No I/O.

Routes are a table: path -> method -> handler. A path that is not in it is 404, a method that is not is 405; HEAD is GET
without the body. Errors are JSON with a `message` that says what was wrong.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Mapping
from typing import Any, NamedTuple, TypeAlias

import msgspec

JSON = "application/json"


class HttpRequest(NamedTuple):
    method: str
    path: str
    """Without the query, and as it was sent: nothing is unescaped."""
    query: str = ""
    headers: tuple[tuple[bytes, bytes], ...] = ()
    """Names in lower case."""
    body: bytes = b""
    ended: asyncio.Future[None] | None = None
    """Done once the client sends no more. It has gone, or waits for this answer and then goes: whoever waits for news
    answers with what there is."""


class HttpResponse(NamedTuple):
    status: int
    body: bytes = b""
    content_type: str = JSON
    headers: tuple[tuple[str, str], ...] = ()


Handler: TypeAlias = Callable[[HttpRequest], Awaitable[HttpResponse]]
Routes: TypeAlias = Mapping[str, Mapping[str, Handler]]


def json_response(value: Any, status: int = 200) -> HttpResponse:
    return HttpResponse(status, msgspec.json.encode(value) + b"\n")


def error_response(status: int, message: str, headers: tuple[tuple[str, str], ...] = ()) -> HttpResponse:
    return json_response({"message": message}, status)._replace(headers=headers)


def not_yet(paths: Mapping[str, str]) -> Routes:
    """For paths, by method, whose handlers are there once the node serves."""
    return _not_now(paths, "this node is starting: ask again in a moment")


def not_any_more(paths: Mapping[str, str]) -> Routes:
    """For those whose handlers are gone before the port is."""
    return _not_now(paths, "this node is ending: ask another one")


def _not_now(paths: Mapping[str, str], message: str) -> Routes:
    async def refuse(_request: HttpRequest) -> HttpResponse:
        return error_response(503, message, (("retry-after", "1"),))

    return {path: {method: refuse} for path, method in paths.items()}


async def respond(routes: Routes, request: HttpRequest) -> HttpResponse:
    methods = routes.get(request.path)
    if methods is None:
        return error_response(404, f"there is nothing at this path; there is {', '.join(routes)}")
    handler = methods.get("GET" if request.method == "HEAD" else request.method)
    if handler is None:
        allowed = ", ".join([*methods, *(["HEAD"] if "GET" in methods else [])])
        return error_response(405, f"{request.path} takes {allowed} only", (("allow", allowed),))
    return await handler(request)
