"""Real processes die by `kill -9` at every step of append, commit and reconfigure, and in between; others go on."""

from __future__ import annotations

import asyncio
import os
import signal
from collections.abc import Sequence
from pathlib import Path

import pytest

from catena.config import Settings
from catena.node import Node
from catena.runtime import SystemClock, SystemEntropy
from catena.testing.postgres_server import PostgresServer
from tests.crash.recovery import History, create_topic, recover, run_until_it_dies, start
from tests.crash.writer import TOPIC, Death, Place, Plan, open_stores

WITH_TRANSACT = ("sqlite", "postgres")
WITHOUT_TRANSACT = ("sqlite without transact", "postgres without transact", "objects")

COMMIT_BY_GROUP = ("blob put", "transact")
COMMIT_BY_PENDING = ("blob put", "put control", "get chain", "put index", "put producer")
RECONFIGURE = (
    Death("put chain"),  # the intent
    Death("put chain", applied=True),
    Death("put control"),  # the fence
    Death("put control", applied=True),
    Death("scan producer"),
    Death("put handoff"),
    Death("put handoff", applied=True),
    Death("put chain", nth=2),  # the new link
    Death("put chain", nth=2, applied=True),
)


def deaths(steps: Sequence[str]) -> list[Death]:
    """Before each step, and after each that writes."""
    return [
        Death(step, applied=applied) for step in steps for applied in (False, True) if not (applied and "get" in step)
    ]


def commits() -> list[tuple[str, Death]]:
    return [(backend, death) for backend in WITH_TRANSACT for death in deaths(COMMIT_BY_GROUP)] + [
        (backend, death) for backend in WITHOUT_TRANSACT for death in deaths(COMMIT_BY_PENDING)
    ]


def name(value: object) -> str | None:
    return f"{'after' if value.applied else 'before'} {value.step} {value.nth}" if isinstance(value, Death) else None


@pytest.fixture
def place(request: pytest.FixtureRequest, tmp_path: Path, backend: str) -> Place:
    dsn = schema = ""
    if backend.startswith("postgres"):
        server: PostgresServer = request.getfixturevalue("postgres_server")
        dsn, schema = server.dsn, f"crash_{SystemEntropy().hex_id()}"
    place = Place(backend, str(tmp_path), dsn, schema)
    asyncio.run(create_topic(place))
    return place


@pytest.mark.parametrize(("backend", "death"), commits(), ids=name)
class TestAppend:
    def test_the_first_writer_dies_in_its_first_append(self, place: Place, death: Death) -> None:
        self.die(Plan(place, "first", 1, rounds=1, death=death))

    def test_a_writer_dies_when_it_has_got_on(self, place: Place, death: Death) -> None:
        self.die(Plan(place, "busy", 1, rounds=3, death=death, armed_after=2))

    def die(self, plan: Plan) -> None:
        history = History()
        run_until_it_dies(plan, history)
        asyncio.run(recover(plan.place, plan, history))


@pytest.mark.parametrize("death", RECONFIGURE, ids=name)
@pytest.mark.parametrize("backend", [*WITH_TRANSACT, *WITHOUT_TRANSACT])
def test_a_reconfigurer_dies(place: Place, death: Death) -> None:
    history = History()
    plan = Plan(place, "reconfigurer", 1, rounds=2, death=death, armed_after=2, then="reconfigure")
    run_until_it_dies(plan, history)
    asyncio.run(recover(place, plan, history))
    asyncio.run(reconfigure_and_check(place))


async def reconfigure_and_check(place: Place) -> None:
    """Whatever the dead one left is finished by now, or by the next who comes."""
    async with open_stores(place) as stores:
        node = await Node.start(Settings(), *stores, SystemClock(), SystemEntropy())
        log = await node.log(TOPIC, 0)
        chain = await log.reconfigure("diskless")
        assert chain.intent is None
        assert [link.end for link in chain.links[:-1]] == [link.base for link in chain.links[1:]]
        assert chain.last.base == await log.tail()
        await node.close()


@pytest.mark.parametrize("backend", [*WITH_TRANSACT, *WITHOUT_TRANSACT])
def test_writers_die_anywhere(place: Place) -> None:
    """One after the other, each killed from outside while it writes, wherever it is."""
    history = History()
    for number in range(3):
        plan = Plan(place, f"writer-{number}", number, rounds=100_000)
        with start(plan) as process:
            assert process.stdout is not None
            for acks_wanted in range(10 + 7 * number, 0, -1):
                line = process.stdout.readline()
                assert line, f"it ended by itself, {acks_wanted} lines too early"
                history.take(line)
            os.kill(process.pid, signal.SIGKILL)
            for line in process.stdout:
                history.take(line)
        asyncio.run(recover(place, Plan(place, f"nobody-{number}", 100 + number, rounds=1), history))
