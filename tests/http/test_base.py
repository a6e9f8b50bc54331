"""Routes: which handler answers, and what is said where none does."""

from __future__ import annotations

import json

import pytest

from catena.http.base import (
    HttpRequest,
    HttpResponse,
    Routes,
    error_response,
    json_response,
    not_any_more,
    not_yet,
    respond,
)


async def get_it(request: HttpRequest) -> HttpResponse:
    return json_response({"asked": request.query})


async def put_it(request: HttpRequest) -> HttpResponse:
    return HttpResponse(201, request.body, "text/plain")


ROUTES: Routes = {"/it": {"GET": get_it, "PUT": put_it}, "/other": {"PUT": put_it}}


@pytest.mark.parametrize(
    ("request_", "status", "body"),
    [
        (HttpRequest("GET", "/it", "a=1"), 200, b'{"asked":"a=1"}\n'),
        (HttpRequest("HEAD", "/it", "a=1"), 200, b'{"asked":"a=1"}\n'),
        (HttpRequest("PUT", "/it", body=b"x"), 201, b"x"),
    ],
)
async def test_finds_the_handler(request_: HttpRequest, status: int, body: bytes) -> None:
    assert (await respond(ROUTES, request_))[:2] == (status, body)


async def test_an_unknown_path_is_told_which_there_are() -> None:
    response = await respond(ROUTES, HttpRequest("GET", "/it/"))
    assert response.status == 404
    assert json.loads(response.body) == {"message": "there is nothing at this path; there is /it, /other"}


@pytest.mark.parametrize(
    ("method", "path", "allowed"),
    [("POST", "/it", "GET, PUT, HEAD"), ("HEAD", "/other", "PUT"), ("get", "/other", "PUT")],
)
async def test_another_method_is_told_which_there_are(method: str, path: str, allowed: str) -> None:
    response = await respond(ROUTES, HttpRequest(method, path))
    assert (response.status, response.headers) == (405, (("allow", allowed),))


def test_errors_are_json() -> None:
    assert error_response(400, "no").body == b'{"message":"no"}\n'


@pytest.mark.parametrize(
    ("routes", "word"), [(not_yet({"/it": "PUT"}), "starting"), (not_any_more({"/it": "PUT"}), "ending")]
)
async def test_what_is_not_there_now_says_so(routes: Routes, word: str) -> None:
    response = await respond(routes, HttpRequest("PUT", "/it"))
    assert (response.status, response.headers) == (503, (("retry-after", "1"),))
    assert word in json.loads(response.body)["message"]
    assert (await respond(routes, HttpRequest("GET", "/it"))).status == 405
