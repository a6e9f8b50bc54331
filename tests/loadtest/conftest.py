"""A stack of one node, on SQLite and a folder, for those that need a real one and leave it as it was."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator, Sequence

import pytest

from catena.loadtest.run import Run
from catena.loadtest.run_folder import RunFolder
from catena.loadtest.scenario import Scenario, Topic
from catena.loadtest.stack import Stack
from catena.runtime import SystemClock, SystemNetwork

SMALL = Scenario("small", topics=(Topic("small", 2),))
SETTINGS = ("CATENA_META", "CATENA_OBJECTS", "CATENA_DATA", "CATENA_CONFIG", "CATENA_TOKEN")


class Watched:
    """Keeps what a watcher is told."""

    def __init__(self) -> None:
        self.states: list[tuple[str, str]] = []
        self.words: list[str] = []
        self.runs: list[Run] = []

    def state(self, name: str, state: str) -> None:
        self.states.append((name, state))

    def last_lines(self, name: str, lines: Sequence[str]) -> None:
        self.words += [name, *lines]

    def say(self, words: str) -> None:
        self.words.append(words)

    def hammering(self, run: Run) -> None:
        self.runs.append(run)


@pytest.fixture(autouse=True)
def no_settings_of_the_shell(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in SETTINGS:
        monkeypatch.delenv(name, raising=False)


@pytest.fixture(scope="session")
def shared_stack(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Stack]:
    stack = Stack(RunFolder.create(tmp_path_factory.mktemp("runs"), SMALL, 0), SystemClock(), SystemNetwork())
    with pytest.MonkeyPatch.context() as shell:
        for name in SETTINGS:
            shell.delenv(name, raising=False)
        asyncio.run(_up(stack))
    yield stack
    asyncio.run(_down(stack))


@pytest.fixture
def stack(shared_stack: Stack) -> Stack:
    """All that it has is in its files, so any loop may use it."""
    return shared_stack


async def _up(stack: Stack) -> None:
    await stack.up(SMALL, Watched())


async def _down(stack: Stack) -> None:
    await stack.down()
