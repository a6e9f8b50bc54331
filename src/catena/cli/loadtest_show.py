"""What `catena loadtest` shows: how far a run is, and what came of it."""

from __future__ import annotations

import sys
from collections import deque
from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Self

from catena.cli.output import print_columns, print_json

if TYPE_CHECKING:
    from pathlib import Path

    from catena.loadtest.compare import Comparison
    from catena.loadtest.run import Run
    from catena.loadtest.run_folder import RunFolder, StackState

LINES_KEPT = 6
PLAIN_EVERY_S = 10.0
"""From other words to a line, or between two of them, where stderr is no terminal."""


class Watcher:
    """On stderr: in a terminal a table that changes, elsewhere a line now and then; nothing for those who want JSON."""

    def __init__(self, silent: bool) -> None:
        self._silent = silent
        self._states: dict[str, str] = {}
        self._lines: deque[str] = deque(maxlen=LINES_KEPT)
        self._run: Run | None = None
        self._live: Any = None
        self._next_line_s: float | None = None
        """None: words were said since."""

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_error: object) -> None:
        self.close()

    def close(self) -> None:
        if self._live is not None:
            self._live.stop()
            self._live = None

    def state(self, name: str, state: str) -> None:
        self._states[name] = state
        self.say(f"{name}: {state}")

    def last_lines(self, name: str, lines: Sequence[str]) -> None:
        if lines and not self._silent:
            print(f"the log of {name} says", *lines, sep="\n  ", file=sys.stderr)

    def say(self, words: str) -> None:
        if self._silent:
            return
        if self._live is None:
            print(words, file=sys.stderr, flush=True)
            self._next_line_s = None
        else:
            self._lines.append(words)
            self._live.update(self._table(), refresh=True)

    def hammering(self, run: Run) -> None:
        if self._silent:
            return
        self._run = run
        if sys.stderr.isatty():
            if self._live is None:
                from rich.console import Console
                from rich.live import Live

                self._live = Live(console=Console(stderr=True), auto_refresh=False)
                self._live.start()
            self._live.update(self._table(), refresh=True)
        elif self._next_line_s is None:  # those that begin now have seen nothing yet
            self._next_line_s = run.elapsed_s + PLAIN_EVERY_S
        elif run.elapsed_s >= self._next_line_s:
            self._next_line_s = run.elapsed_s + PLAIN_EVERY_S
            print("  ".join(f"{name} {value}" for name, value in figures_of(run)), file=sys.stderr, flush=True)

    def _table(self) -> Any:
        from rich.table import Table
        from rich.text import Text

        table = Table(box=None, pad_edge=False, padding=(0, 2, 0, 0), show_header=False)
        if self._run is not None:
            for name, value in figures_of(self._run):
                bad = name in ("failed", "unknown", "dropped") and value != "0"
                table.add_row(Text(name, "dim"), Text(value, "bold red" if bad else "bold"))
        for line in self._lines:
            table.add_row("", Text(line, "yellow"))
        return table


def figures_of(run: Run) -> list[tuple[str, str]]:
    """What is to be seen of a run just now."""
    from catena.loadtest.node_counts import counts_of

    load = run.scenario.load
    produced, consumed = run.clients.of("produce"), run.clients.of("consume")
    rate, latency = run.clients.recent("produce")
    read, end_to_end = run.clients.recent("consume")
    whole = "" if load.capacity == "find" else f" of {_time(load.warm_up_s + load.duration_s)}"
    found = [
        ("time", f"{_time(run.elapsed_s)}{whole}"),
        ("acked", f"{rate / 1e6:.2f} of {run.rate_mb_s:.2f} MB/s, {produced.acked:,} records"),
        ("produce", f"p50 {_ms(latency['p50'])}, p99 {_ms(latency['p99'])}"),
    ]
    if consumed.read:
        found.append(("read", f"{read / 1e6:.2f} MB/s"))
        found.append(("end to end", f"p50 {_ms(end_to_end['p50'])}, p99 {_ms(end_to_end['p99'])}"))
    found.append(("backlog", f"{produced.backlog:,}"))
    found += [(name, f"{getattr(produced, name):,}") for name in ("failed", "unknown", "dropped")]
    samples = run.sampler.latest.values() if run.sampler is not None else ()
    counted = [counts for sample in samples if (counts := counts_of(sample.metrics or {})) is not None]
    requests = sum(sum(counts.requests.values()) for counts in counted)
    if requests:
        found.append(("S3 requests", f"{requests:,}, ${sum(counts.cost_usd for counts in counted):.4f}"))
    return found


def print_stack(folder: RunFolder, state: StackState, states: Mapping[str, str], as_json: bool) -> None:
    if as_json:
        nodes = [
            {"name": node.name, "kafka": node.kafka, "http": node.http, "state": states.get(node.name, "dead")}
            for node in state.nodes
        ]
        others = {name: found for name, found in states.items() if not name.startswith("node-")}
        print_json({"run": str(folder.path), "state": state.state, "nodes": nodes, "others": others})
        return
    print(f"{folder.path}: {state.state}\n")
    rows = [[node.name, node.kafka, node.http, states.get(node.name, "dead")] for node in state.nodes]
    beside = {"pipeline": state.pipeline, "prometheus": state.prometheus}
    for name, found in states.items():
        if not name.startswith("node-"):
            there = beside.get(name)
            rows.append([name, "", there.http if there is not None else "", found])
    print_columns(["NAME", "KAFKA", "HTTP", "STATE"], rows)


def print_summary(path: Path, summary: Mapping[str, Any], as_json: bool) -> None:
    if as_json:
        print_json({**summary, "directory": str(path)})
        return
    for name, value in _lines_of(summary):
        print(f"{name:<12}{value}")
    for each in summary["findings"]:
        print(f"{each['severity']}: {each['message']}")
    print(f"\n{path / 'report.html'}")


def _lines_of(summary: Mapping[str, Any]) -> Iterator[tuple[str, str]]:
    produced, consumed = summary["clients"]["produced"], summary["clients"]["consumed"]
    throughput, stores = summary["throughput"], summary["stores"]
    if (capacity := summary["capacity"]) is not None:
        found = f"{capacity['mb_s']:.2f} MB/s, p99 {_ms(capacity['p99_ms'])}" if capacity["found"] else "not found"
        yield "capacity", found + (f", limited by {capacity['limit']}" if capacity["limit"] else "")
    else:
        yield "acked", f"{throughput['acked_mb_s']:.2f} of {throughput['asked_mb_s']:g} MB/s"
        yield "produce", _latencies(produced["latency_ms"])
        if consumed["read"]:
            yield "end to end", _latencies(consumed["latency_ms"])
    names = ("due", "acked", "failed", "unknown", "dropped", "unanswered")
    yield "records", ", ".join(f"{name} {produced[name]:,}" for name in names)
    if stores["requests"] and stores["requests_per_gb"] is not None:
        cost = stores["requests_cost_usd_per_gb"]
        yield "S3", f"{stores['requests_per_gb']:,.0f} requests and ${cost:.4f} per GB"
    if (verified := summary["verified"]) is not None:
        wrong = ", ".join(f"{name} {verified[name]:,}" for name in ("lost", "duplicated", "damaged", "reordered"))
        yield "read back", f"{verified['read']:,}, {wrong}"
    if (audit := summary["audit"]) is not None:
        yield "audit", "clean" if audit["ok"] else audit["message"]
    yield "verdict", "clean" if summary["clean"] else "NOT CLEAN"


def print_comparison(comparison: Comparison, as_json: bool) -> None:
    if as_json:
        print_json(comparison.shown())
        return
    print(f"A  {comparison.a}\nB  {comparison.b}\n")
    rows = [
        [f"{row.name}{f' ({row.unit})' if row.unit else ''}", _number(row.a), _number(row.b), _change(row.change)]
        for row in comparison.figures
    ]
    print_columns(["FIGURE", "A", "B", "CHANGE"], rows)
    for title, differing in (("SCENARIO", comparison.config), ("ENVIRONMENT", comparison.environment)):
        if differing:
            print()
            print_columns([title, "A", "B"], [[place, str(a), str(b)] for place, (a, b) in differing.items()])


def _latencies(latency: Mapping[str, float | None]) -> str:
    return ", ".join(f"{name} {_ms(latency[name])}" for name in ("p50", "p99", "p99.9"))


def _ms(value: float | None) -> str:
    return "-" if value is None else f"{value:,.0f} ms" if value >= 10 else f"{value:.1f} ms"


def _time(seconds: float) -> str:
    return f"{int(seconds) // 60}:{int(seconds) % 60:02}"


def _number(value: float | None) -> str:
    return "-" if value is None else f"{value:,.4g}" if abs(value) < 1_000 else f"{value:,.0f}"


def _change(share: float | None) -> str:
    return "" if share is None else f"{share:+.1%}"
