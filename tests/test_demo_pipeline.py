"""The demo's second half, where there is Spark; where there is none it says so."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from catena.config import Settings
from catena.demo import main
from catena.demo_pipeline import with_short_grace
from catena.errors import ConfigError
from catena.pipeline.spark import session
from catena.pipeline.spark.java import find_java
from catena.pipeline.vacuum import check_grace
from tests.conftest import cannot_have


def test_what_was_appended_is_tiered_vacuumed_and_sound(tmp_path: Path) -> None:
    try:
        session.check_pyspark(connect=False)
        find_java(os.environ)
    except ConfigError as error:
        cannot_have("spark", str(error))
    # In a process of its own: other tests may have a Spark in this one.
    command = [sys.executable, "-m", "catena.demo", "--data", str(tmp_path / "demo")]
    ran = subprocess.run(command, capture_output=True, text=True, timeout=110, check=True)
    shown = " ".join(ran.stdout.split())
    assert "became 3 segments" in shown
    assert "│ tiered epoch 2 16,000 records closed" in shown
    assert " 0 objects with" not in shown
    assert "every CRC is right, no damage" in shown
    assert 'option("subscribe", "demo").load().count() = ' in shown


def test_without_spark_it_says_what_to_install(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    def lacking(connect: bool) -> None:
        raise ConfigError("there is no Spark: install it")

    monkeypatch.setattr(session, "check_pyspark", lacking)
    assert main(["--data", str(tmp_path / "demo")]) == 0
    shown = capsys.readouterr().out
    assert "left out, as are vacuum, audit and tables: there is no Spark: install it" in " ".join(shown.split())
    assert "All checks passed" in shown


def test_the_short_grace_is_one_that_vacuum_takes() -> None:
    settings = with_short_grace(Settings())
    check_grace(settings.pipeline.vacuum, settings.diskless.writer.commit_deadline_ms)
