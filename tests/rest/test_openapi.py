"""The description holds: schemathesis asks a node what it allows and what it does not, and looks at the answers.

A few examples of each operation in the usual run; thousands in the long one.
"""

from __future__ import annotations

import asyncio
import json
import threading
from collections.abc import Iterator
from concurrent.futures import Future
from contextlib import contextmanager
from typing import Any

import pytest
import schemathesis
from hypothesis import HealthCheck, Phase, given, settings
from schemathesis import GenerationMode
from schemathesis.checks import not_a_server_error
from schemathesis.specs.openapi.checks import (
    allow_header_conformance,
    content_type_conformance,
    negative_data_rejection,
    positive_data_acceptance,
    response_headers_conformance,
    response_schema_conformance,
    status_code_conformance,
    unsupported_method,
)

from catena.rest.openapi import document
from catena.serve import ServingNode, serve
from tests.rest.conftest import settings as node_settings

CHECKS: list[Any] = [
    not_a_server_error,
    allow_header_conformance,
    content_type_conformance,
    negative_data_rejection,
    positive_data_acceptance,
    response_headers_conformance,
    response_schema_conformance,
    status_code_conformance,
    unsupported_method,
]
MODES = {"allowed": GenerationMode.POSITIVE, "not allowed": GenerationMode.NEGATIVE}
TAKES = ("produce", "consume", "fence", "unfence", "state")
"""Operations that take something, which may be wrong."""
ASKED = [(path, mode) for path in (*TAKES, "health", "ready") for mode in MODES if path in TAKES or mode == "allowed"]


@contextmanager
def node_in_a_thread() -> Iterator[ServingNode]:
    started: Future[ServingNode] = Future()
    end = threading.Event()

    async def run() -> None:
        async with serve(node_settings()) as node:
            await node.node.topics.create("t", 2)
            started.set_result(node)
            await asyncio.to_thread(end.wait)

    thread = threading.Thread(target=asyncio.run, args=(run(),))
    thread.start()
    try:
        yield started.result(30)
    finally:
        end.set()
        thread.join()


@pytest.fixture(scope="module")
def address() -> Iterator[str]:
    with node_in_a_thread() as node:
        yield f"http://{node.http}"


def hold(name: str, mode: str, address: str, examples: int) -> None:
    operation: Any = schemathesis.openapi.from_dict(document("test")).find_operation_by_id(name)

    @settings(
        max_examples=examples,
        deadline=None,
        derandomize=True,
        database=None,
        phases=[Phase.explicit, Phase.generate],
        suppress_health_check=list(HealthCheck),
    )
    @given(case=operation.as_strategy(MODES[mode]))
    def ask(case: Any) -> None:
        case.call_and_validate(base_url=address, checks=CHECKS)

    ask()


@pytest.mark.parametrize(("name", "mode"), ASKED)
def test_answers_are_as_described(name: str, mode: str, address: str) -> None:
    hold(name, mode, address, 10)


@pytest.mark.long
@pytest.mark.parametrize(("name", "mode"), ASKED)
def test_answers_are_as_described_many_times(name: str, mode: str, address: str) -> None:
    hold(name, mode, address, 500)


def test_the_description_is_one_of_openapi() -> None:
    described = document("1.2.3")
    assert json.loads(json.dumps(described)) == described
    names = set(described["components"]["schemas"])
    found = {part.rpartition("/")[2] for part in references(described)}
    assert found <= names
    assert names - found == set(), "nothing is described that nobody uses"


def references(value: Any) -> Iterator[str]:
    if isinstance(value, dict):
        for name, inner in value.items():
            if name == "$ref":
                yield inner
            else:
                yield from references(inner)
    elif isinstance(value, list):
        for inner in value:
            yield from references(inner)
