"""The demo succeeds, twice over, fails aloud, and touches nothing that is not its own."""

from __future__ import annotations

from pathlib import Path

import pytest

from catena import demo
from catena.demo import MARK, free_name, main, prepare


async def nothing(*_: object) -> None:
    """Spark has a test of its own."""


def test_it_shows_what_it_claims_and_can_be_run_again(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(demo, "tier_vacuum_and_audit", nothing)
    folder = tmp_path / "demo"
    assert main(["--data", str(folder)]) == 0
    shown = capsys.readouterr().out
    assert "All checks passed" in shown
    assert "48,000 records, each acked once durable" in shown
    assert "an append with epoch 1 is refused" in shown
    assert "│ memory    epoch 2" in shown
    assert f"catena --data {folder} doctor" in shown

    assert main(["--data", str(folder), "--keep"]) == 0
    assert "Topic demo-2 with" in capsys.readouterr().out


def test_a_folder_of_somebody_else_is_left_alone(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "precious").write_text("mine")
    assert main(["--data", str(tmp_path)]) == 1
    assert "not from an earlier demo" in capsys.readouterr().out
    assert [path.name for path in tmp_path.iterdir()] == ["precious"]


def test_what_is_kept(tmp_path: Path) -> None:
    prepare(tmp_path / "new", keep=False)
    (tmp_path / "new" / "more").touch()
    prepare(tmp_path / "new", keep=True)
    assert sorted(path.name for path in (tmp_path / "new").iterdir()) == [MARK, "more"]
    prepare(tmp_path / "new", keep=False)
    assert [path.name for path in (tmp_path / "new").iterdir()] == [MARK]


def test_names() -> None:
    assert free_name([]) == "demo"
    assert free_name(["demo", "demo-2", "demo-4", "other"]) == "demo-3"
