"""What a person sees of a job that is under way."""

from __future__ import annotations

import sys

import pytest

from catena.cli.progress import showing, showing_vacuum
from catena.pipeline.tier_pass import Progress
from catena.pipeline.vacuum import Amount, VacuumProgress


def on_a_terminal(monkeypatch: pytest.MonkeyPatch) -> None:
    """Called by the test: only then stderr is what the test captures."""
    monkeypatch.setattr(sys.stderr, "isatty", lambda: True)
    monkeypatch.setenv("TERM", "xterm")
    monkeypatch.setenv("COLUMNS", "200")


def test_bytes_and_partitions(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    on_a_terminal(monkeypatch)
    with showing("tiering", wanted=True) as show:
        show(Progress(4, 1, 2_000_000, 1_000_000))
    shown = capsys.readouterr().err
    assert "tiering" in shown
    assert "1 of 4 partitions" in shown
    assert "1.0/2.0 MB" in shown


def test_the_stages_of_vacuum(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    on_a_terminal(monkeypatch)
    with showing_vacuum(wanted=True) as show:
        show(VacuumProgress("reading references", 10, 5, Amount()))
    shown = capsys.readouterr().err
    assert "reading references" in shown
    assert "5 of 10 partitions" in shown
    with showing_vacuum(wanted=True) as show:
        show(VacuumProgress("deleting", 10, 10, Amount(1200, 5000)))
    shown = capsys.readouterr().err
    assert "deleting" in shown
    assert "1,200 objects, 5,000 bytes" in shown


def test_nothing_where_nobody_looks(capsys: pytest.CaptureFixture[str]) -> None:
    with showing("tiering", wanted=True) as show:
        show(Progress(4, 1, 2, 1))
    with showing_vacuum(wanted=False) as show_vacuum:
        show_vacuum(VacuumProgress("listing", 0, 0, Amount()))
    assert capsys.readouterr().err == ""
