from __future__ import annotations

import io
from pathlib import Path
from typing import Any

import msgspec
import pytest

from catena.cli.loadtest_show import Watcher, figures_of, print_stack, print_summary
from catena.loadtest.clients import Clients
from catena.loadtest.hammers.base import Interval
from catena.loadtest.run import Run
from catena.loadtest.run_folder import CLIENT, RunFolder, StackNode, StackState
from catena.loadtest.stack import Stack
from catena.runtime import Disk, SystemClock, SystemNetwork
from tests.loadtest.lines import SCENARIO, made_up
from tests.loadtest.test_summary import summary_of


def a_run(folder: RunFolder, watcher: Watcher) -> Run:
    clock, disk = SystemClock(), Disk(1)
    disk.close()
    run = Run(Stack(folder, clock, SystemNetwork()), SCENARIO, clock, disk, watcher)
    run.rate_mb_s = 1.0
    for interval in folder.lines(CLIENT, Interval):
        run.clients.add(interval)
    return run


def test_figures_of_a_run_that_is_on(tmp_path: Path) -> None:
    shown = dict(figures_of(a_run(made_up(tmp_path), Watcher(silent=True))))
    assert shown["acked"] == "1.00 of 1.00 MB/s, 20,000 records"
    assert shown["produce"].startswith("p50 5.")
    assert "end to end" in shown
    assert shown["unknown"] == "0"


def test_before_the_first_line_there_is_nothing_to_divide_by(tmp_path: Path) -> None:
    run = a_run(made_up(tmp_path), Watcher(silent=True))
    run.clients = Clients()
    assert dict(figures_of(run))["produce"] == "p50 -, p99 -"


def test_without_a_terminal_words_are_lines(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    with Watcher(silent=False) as watcher:
        watcher.say("starting hammers")
        watcher.state("node-0", "ready")
        watcher.last_lines("node-1", ["it fell"])
        run = a_run(made_up(tmp_path), watcher)
        watcher.hammering(run)
        assert capsys.readouterr().err == "starting hammers\nnode-0: ready\nthe log of node-1 says\n  it fell\n"
        run.origin = SystemClock().monotonic() - 11.0
        for _ in range(3):  # one line in ten seconds
            watcher.hammering(run)
        (line,) = capsys.readouterr().err.splitlines()
        assert "20,000 records" in line
        watcher.say("starting hammers")  # others, which have seen nothing yet
        run.origin = SystemClock().monotonic() - 30.0
        watcher.hammering(run)
        assert capsys.readouterr().err == "starting hammers\n"
        run.origin -= 11.0
        watcher.hammering(run)
        assert "20,000 records" in capsys.readouterr().err


def test_who_wants_json_hears_nothing(capsys: pytest.CaptureFixture[str]) -> None:
    with Watcher(silent=True) as watcher:
        watcher.say("words")
        watcher.last_lines("node-1", ["it fell"])
    assert capsys.readouterr().err == ""


def test_the_table_of_a_terminal(tmp_path: Path) -> None:
    from rich.console import Console
    from rich.live import Live

    watcher = Watcher(silent=False)
    watcher._run = a_run(made_up(tmp_path), watcher)
    console = Console(width=100, record=True, file=io.StringIO())
    watcher._live = Live(console=console, auto_refresh=False)
    watcher.say("kill node-1")
    watcher.close()
    console.print(watcher._table())
    text = console.export_text()
    assert "20,000 records" in text
    assert "kill node-1" in text


def test_a_summary_for_people(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    folder = made_up(tmp_path)
    summary: dict[str, Any] = summary_of(folder, in_log=1)
    print_summary(folder.path, summary, as_json=False)
    shown = capsys.readouterr().out
    assert "1.00 of 1 MB/s" in shown
    assert "NOT CLEAN" in shown
    assert "error: 19,999 acked records are not in the log" in shown
    assert "report.html" in shown


def test_a_stack(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    state = StackState("r", "s", "up", nodes=[StackNode("node-0", 0, "h:1", "h:2", None)])
    print_stack(RunFolder(tmp_path), state, {"node-0": "ready", "servers": "running"}, as_json=False)
    shown = capsys.readouterr().out
    assert "node-0" in shown
    assert "servers" in shown
    print_stack(RunFolder(tmp_path), state, {"node-0": "ready", "servers": "running"}, as_json=True)
    found = msgspec.json.decode(capsys.readouterr().out)
    assert found["nodes"] == [{"name": "node-0", "kafka": "h:1", "http": "h:2", "state": "ready"}]
    assert found["others"] == {"servers": "running"}
