"""The doctor's report, and its exit code."""

from __future__ import annotations

from pathlib import Path

from tests.cli.conftest import Catena


def test_all_is_well(catena: Catena) -> None:
    catena("topic", "create", "t")
    ran = catena("doctor")
    assert (ran.code, ran.err) == (0, "")
    assert ran.out.splitlines()[-1] == "nothing to fix"
    assert {line.split()[0] for line in ran.out.splitlines()[:-2] if not line.startswith(" ")} == {"ok"}
    report = catena("doctor", "--json").json
    checks = [
        "python",
        "settings",
        "data folder",
        "object store",
        "meta store",
        "clock",
        "cluster",
        "history",
        "topics",
    ]
    assert [(each["check"], each["status"]) for each in report] == [(check, "ok") for check in checks]


def test_no_log_yet(catena: Catena, tmp_path: Path) -> None:
    ran = catena("doctor", "--json")
    assert ran.code == 0
    assert (ran.json[-1]["check"], ran.json[-1]["status"]) == ("data folder", "warn")
    assert list(tmp_path.iterdir()) == []


def test_what_is_wrong_is_said_and_what_to_do(catena: Catena, tmp_path: Path) -> None:
    catena("topic", "create", "t")
    (tmp_path / "log" / "meta.db").write_bytes(b"not a database " * 1_000)
    ran = catena("doctor")
    assert ran.code == 3
    assert "1 to fix, see the arrows" in ran.out
    assert "damaged" in ran.out


def test_settings_that_can_not_be(catena: Catena) -> None:
    ran = catena("doctor", env={"CATENA_UNHEARD_OF": "1"})
    assert ran.code == 3
    assert "-> correct it there" in ran.out
