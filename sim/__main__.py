"""Run many seeds, replay one, or let the deliberate bugs loose.

python -m sim run --seeds 20000          all seeds from 0 on; the first failure prints the command that replays it
python -m sim run --seed 1234 -v         one seed of the log, with a transcript of what every client asked and was told
python -m sim run --scenario groups ...  only this scenario: consumer groups and their coordinators
python -m sim run --scenario pipeline    the log, with jobs beside it that tier and vacuum
python -m sim run --scenario compact     a log with keys, which is compacted; it needs the spark extra, without Spark
python -m sim run --scenario writes      the log, with applications that write through intents, and vacuum
python -m sim mutations                  each deliberate bug of all scenarios must be caught
"""

from __future__ import annotations

import argparse
import importlib.util
import os
import sys
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor
from itertools import islice
from typing import NamedTuple

from sim import (
    group_mutations,
    group_run,
    mutations,
    pipeline_mutations,
    pipeline_run,
    run,
    writes_mutations,
    writes_run,
)
from sim.chaos import AWAIT, Blow, Moment, Tally
from sim.group_steps import GROUP_STEPS
from sim.mutating import Mutation
from sim.pipeline_steps import LAST_TIER_STEPS, PIPELINE_STEPS
from sim.steps import STEPS
from sim.trial import Result
from sim.writes_world import WRITES_STEPS

CHUNK = 25
FULL_RUN = 1000
"""So many seeds must hit every named crash point; fewer only warn."""


class Scenario(NamedTuple):
    name: str
    run_seed: Callable[[int, bool], Result]
    steps: Sequence[str]
    """The crash points that a full run must hit."""
    mutations: Sequence[Mutation]


LOG = Scenario("log", run.run_seed, STEPS, mutations.MUTATIONS)
GROUPS = Scenario("groups", group_run.run_seed, GROUP_STEPS, group_mutations.GROUP_MUTATIONS)
PIPELINE = Scenario("pipeline", pipeline_run.run_seed, PIPELINE_STEPS, pipeline_mutations.PIPELINE_MUTATIONS)
WRITES = Scenario("writes", writes_run.run_seed, WRITES_STEPS, writes_mutations.WRITES_MUTATIONS)
SCENARIOS = {scenario.name: scenario for scenario in (LOG, GROUPS, PIPELINE, WRITES)}
if importlib.util.find_spec("pyarrow") is not None:
    from sim import compact_mutations, compact_run

    COMPACT = Scenario("compact", compact_run.run_seed, LAST_TIER_STEPS, compact_mutations.COMPACT_MUTATIONS)
    SCENARIOS[COMPACT.name] = COMPACT


def main(words: list[str] | None = None) -> int:
    arguments = _parser().parse_args(words)
    if arguments.job == "mutations":
        return _mutations(arguments.seeds, arguments.only)
    if arguments.seed is not None:
        return _replay(SCENARIOS[arguments.scenario or LOG.name], arguments.seed, arguments.verbose)
    seeds = range(arguments.start, arguments.start + arguments.seeds)
    chosen = [SCENARIOS[arguments.scenario]] if arguments.scenario else SCENARIOS.values()
    return int(any(_run(scenario, seeds, arguments.jobs) for scenario in chosen))


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="python -m sim", description=__doc__, formatter_class=argparse.RawTextHelpFormatter
    )
    jobs = parser.add_subparsers(dest="job", required=True)
    clean = jobs.add_parser("run", help="run seeds and check them")
    clean.add_argument("--scenario", choices=SCENARIOS, help=f"what runs (default: all; with --seed {LOG.name})")
    clean.add_argument("--seeds", type=int, default=200, help="how many (default 200)")
    clean.add_argument("--start", type=int, default=0, help="the first of them (default 0)")
    clean.add_argument("--seed", type=int, help="replay this one alone")
    clean.add_argument("--jobs", type=int, default=os.cpu_count() or 1, help="processes (default: one for each core)")
    clean.add_argument("-v", "--verbose", action="store_true", help="with --seed: print the whole transcript")
    broken = jobs.add_parser("mutations", help="run the deliberate bugs")
    broken.add_argument("--seeds", type=int, default=500, help="within how many each must be caught (default 500)")
    broken.add_argument("--only", metavar="NAME", help="this one alone")
    return parser


def _replay(scenario: Scenario, seed: int, verbose: bool) -> int:
    result = scenario.run_seed(seed, verbose)
    for line in result.transcript:
        print(line)
    print(f"seed {seed}: {result.steps} steps, fingerprint {result.fingerprint}")
    return _report_failure(scenario, result) if result.violations else 0


def _run(scenario: Scenario, seeds: range, jobs: int) -> int:
    tally = Tally()
    for done, result in enumerate(_results(scenario, seeds, jobs), start=1):
        if result.violations:
            print()
            return _report_failure(scenario, result)
        tally.add(result.tally)
        if done % CHUNK == 0 and sys.stdout.isatty():
            print(f"\r{scenario.name}: {done} of {len(seeds)} seeds clean", end="", flush=True)
    print(f"\r{scenario.name}: {len(seeds)} of {len(seeds)} seeds clean")
    return _report_tally(scenario, tally, len(seeds))


def run_seeds(scenario: str, seeds: Iterable[int]) -> list[Result]:
    """In a process of its own, which finds the scenario by its name."""
    return [SCENARIOS[scenario].run_seed(seed, False) for seed in seeds]


def _results(scenario: Scenario, seeds: range, jobs: int) -> Iterator[Result]:
    """In the order of the seeds, so that the first failure that is shown is the lowest one."""
    if jobs == 1:
        yield from (scenario.run_seed(seed, False) for seed in seeds)
        return
    chunks = [seeds[at : at + CHUNK] for at in range(0, len(seeds), CHUNK)]
    with ProcessPoolExecutor(jobs) as pool:
        remaining = iter(chunks)
        running = [pool.submit(run_seeds, scenario.name, chunk) for chunk in islice(remaining, 4 * jobs)]
        try:
            while running:
                yield from running.pop(0).result()
                running += [pool.submit(run_seeds, scenario.name, chunk) for chunk in islice(remaining, 1)]
        finally:
            for each in running:
                each.cancel()


def _report_failure(scenario: Scenario, result: Result) -> int:
    print(f"seed {result.seed} FAILED:")
    for violation in result.violations[:20]:
        print(f"  {violation}")
    if len(result.violations) > 20:
        print(f"  ... and {len(result.violations) - 20} more")
    other = "" if scenario is LOG else f" --scenario {scenario.name}"
    print(f"replay it with: python -m sim run{other} --seed {result.seed} -v")
    return 1


def _report_tally(scenario: Scenario, tally: Tally, seeds: int) -> int:
    columns = [(moment.value, blow.value) for blow in Blow for moment in Moment]
    print(f"\n{'step':<24}{'taken':>10}" + "".join(f"{f'{blow} {moment}':>16}" for moment, blow in columns))
    missed = []
    for step in sorted({*tally.steps, *scenario.steps}):
        hits = [tally.strikes[step, moment, blow] for moment, blow in columns]
        if step in scenario.steps:
            missed += [f"{blow} {moment} {step}" for hit, (moment, blow) in zip(hits, columns, strict=True) if not hit]
        print(f"{step:<24}{tally.steps[step]:>10}" + "".join(f"{hit:>16}" for hit in hits))
    awaits = {blow: tally.strikes[AWAIT, Moment.BEFORE.value, blow.value] for blow in Blow}
    print(f"\nat any await: {', '.join(f'{count} {blow.value}' for blow, count in awaits.items())}")
    print(f"store faults: {', '.join(f'{count} {name}' for name, count in sorted(tally.faults.items()))}")
    if missed:
        print(f"\nnever hit: {', '.join(missed)}")
        if seeds >= FULL_RUN:
            print("a run of this size must hit every named crash point")
            return 1
    return 0


def _mutations(seeds: int, only: str | None) -> int:
    missed = []
    for scenario in SCENARIOS.values():
        for mutation in scenario.mutations:
            if only is not None and mutation.name != only:
                continue
            caught = mutation.first_catch(range(seeds))
            if caught is None:
                missed.append(mutation.name)
                print(f"{mutation.name:<60} NOT CAUGHT within {seeds} seeds")
            else:
                print(f"{mutation.name:<60} seed {caught.seed:>4}: {caught.violations[0]}"[:200])
    return 1 if missed else 0


if __name__ == "__main__":
    sys.exit(main())
