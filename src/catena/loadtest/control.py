"""What the commands do: up, run, down, each on a run directory that is new or found again."""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from catena.errors import ConfigError
from catena.loadtest.environment import snapshot
from catena.loadtest.observe import find_prometheus, observe
from catena.loadtest.run import Run, Watch
from catena.loadtest.run_folder import ENVIRONMENT, RunFolder, StackState, find_run
from catena.loadtest.scenario import Scenario, load_scenario
from catena.loadtest.stack import Stack, check_same
from catena.runtime import Clock, Disk, Network


class Control:
    def __init__(self, results: Path, clock: Clock, network: Network, disk: Disk, watch: Watch) -> None:
        self._results = results
        self._clock = clock
        self._network = network
        self._disk = disk
        self._watch = watch

    def stack_of(self, folder: RunFolder) -> Stack:
        return Stack(folder, self._clock, self._network)

    def new(self, file: Path, changes: Sequence[str]) -> tuple[RunFolder | None, Scenario]:
        """The run whose stack is up, None if there is none; and what it is to be. A run directory says it itself."""
        if file.is_dir():
            folder = RunFolder(file)
            check_up(folder)
            return folder, folder.scenario()
        scenario = load_scenario(file, changes)
        running = find_run(self._results, scenario.name, is_up=True)
        if running is not None:
            check_up(running)
            check_same(running, scenario)
        return running, scenario

    def find(self, target: Path, is_up: bool = False) -> RunFolder:
        """A run directory, or the newest of a scenario. ConfigError if there is none."""
        if target.is_dir():
            folder = RunFolder(target)
            if is_up:
                check_up(folder)
            else:
                folder.stack()
            return folder
        name = load_scenario(target).name
        found = find_run(self._results, name, is_up=True) or (None if is_up else find_run(self._results, name, False))
        if found is None:
            which = " that is up" if is_up else ""
            raise ConfigError(
                f"there is no run of {name}{which} in {self._results}: `catena loadtest up {target}` begins one"
            )
        if is_up:
            check_up(found)
        return found

    async def up(self, scenario: Scenario) -> tuple[RunFolder, StackState]:
        folder = RunFolder.create(self._results, scenario, self._clock.now_ms())
        folder.write(ENVIRONMENT, await self._disk.run(snapshot, os.environ))
        self._watch.say(f"run directory {folder.path}")
        return folder, await self.stack_of(folder).up(scenario, self._watch)

    async def run(
        self, folder: RunFolder | None, scenario: Scenario, observed: bool, keep: bool, begun: Callable[[Run], None]
    ) -> dict[str, Any]:
        """`begun` gets the run, which can be interrupted from then on. The stack ends whatever happens, unless it is to
        be kept."""
        check_hammers(scenario)
        if observed:
            find_prometheus()
        if folder is not None and folder.stack().has_run:
            raise ConfigError(f"{folder.path} has had its run: `catena loadtest down {folder.path}` ends its stack")
        if folder is None:
            folder, _ = await self.up(scenario)
        stack = self.stack_of(folder)
        try:
            if observed:
                self._watch.say(f"Prometheus is at http://{await observe(stack, self._clock, self._watch)}")
            run = Run(stack, scenario, self._clock, self._disk, self._watch)
            begun(run)
            return await run.run()
        finally:
            if not keep:
                self._watch.say("ending the stack")
                await self.down(folder, scenario.purge)
            else:
                stack.keep_logs()

    async def down(self, folder: RunFolder, purge: bool) -> list[int]:
        """Ids of what had to be killed."""
        return await self.stack_of(folder).down(purge)


def check_up(folder: RunFolder) -> None:
    """ConfigError if its stack can't be used."""
    state = folder.stack().state
    if state == "down":
        raise ConfigError(f"the stack of {folder.path} is down; its scenario starts another one")
    if state == "starting":
        raise ConfigError(
            f"the stack of {folder.path} is starting, or the command that started it was killed: "
            f"`catena loadtest down {folder.path}` ends it"
        )


def check_hammers(scenario: Scenario) -> None:
    """ConfigError if something is not installed that they need."""
    needs_kafka = scenario.kafka.producers or scenario.kafka.consumers or scenario.verify == "records"
    if needs_kafka:
        try:
            import confluent_kafka  # noqa: F401
        except ImportError:
            raise ConfigError(
                "Kafka clients are missing: pip install 'catena-log[loadtest]'; without them, http.producers can hammer"
            ) from None
