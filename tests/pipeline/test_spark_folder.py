"""Folders of drivers: gone with them, and those of killed ones with the next; never those of drivers that live."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import tempfile
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from catena.pipeline.spark.folder import LOCK, PREFIX, REMOVED_MAX, driver_folder, remove_left_behind

DRIVER = """
import sys
from catena.pipeline.spark.folder import driver_folder

with driver_folder() as folder:
    (folder / "local" / "deep").mkdir(parents=True)
    (folder / "local" / "deep" / "shuffle").write_bytes(bytes(1000))
    print(folder, flush=True)
    sys.stdin.read()
"""


@pytest.fixture(autouse=True)
def temporary(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    return tmp_path


@contextmanager
def driver(temporary: Path) -> Iterator[tuple[subprocess.Popen[str], Path]]:
    """A process that has a folder, until its standard input ends."""
    environment = {**os.environ, "TMPDIR": str(temporary)}
    process = subprocess.Popen(
        [sys.executable, "-c", DRIVER], env=environment, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    )
    with process:
        assert process.stdout is not None
        try:
            yield process, Path(process.stdout.readline().strip())
        finally:
            process.kill()


def test_it_is_gone_with_its_driver(temporary: Path) -> None:
    with driver_folder() as folder:
        assert folder.parent == temporary
        (folder / "spark.log").write_text("said")
    assert not list(temporary.iterdir())


def test_a_driver_that_was_killed_is_cleaned_up_after_by_the_next(temporary: Path) -> None:
    with driver(temporary) as (process, left):
        process.send_signal(signal.SIGKILL)
        process.wait()
        assert (left / "local" / "deep" / "shuffle").exists()
        with driver_folder() as folder:
            assert list(temporary.iterdir()) == [folder]


def test_a_driver_that_lives_keeps_its_own_also_if_it_is_stopped(temporary: Path) -> None:
    with driver(temporary) as (process, used), driver_folder() as mine:
        assert remove_left_behind(temporary) == []
        process.send_signal(signal.SIGSTOP)
        assert remove_left_behind(temporary) == []
        assert sorted(temporary.iterdir()) == sorted([used, mine])
        assert (used / "local" / "deep" / "shuffle").exists()
        process.send_signal(signal.SIGCONT)
        process.communicate()
        assert process.returncode == 0
        assert list(temporary.iterdir()) == [mine]


def test_what_no_driver_made_is_left_alone(temporary: Path) -> None:
    (temporary / f"{PREFIX}file").write_text("of somebody")
    (temporary / f"{PREFIX}folder").mkdir()
    (temporary / f"{PREFIX}folder" / "notes").write_text("of somebody")
    elsewhere = temporary / "elsewhere"
    elsewhere.mkdir()
    (elsewhere / LOCK).write_text("")
    (temporary / f"{PREFIX}link").symlink_to(elsewhere)
    (temporary / f"{PREFIX}linked-lock").mkdir()
    (temporary / f"{PREFIX}linked-lock" / LOCK).symlink_to(elsewhere / LOCK)
    before = sorted(temporary.rglob("*"))
    assert remove_left_behind(temporary) == []
    assert sorted(temporary.rglob("*")) == before
    assert remove_left_behind(temporary / "nowhere") == []


def test_only_some_are_removed_at_once(temporary: Path) -> None:
    for number in range(REMOVED_MAX + 2):
        (temporary / f"{PREFIX}{number}").mkdir()
        (temporary / f"{PREFIX}{number}" / LOCK).touch()
    assert len(remove_left_behind(temporary)) == REMOVED_MAX
    assert len(remove_left_behind(temporary)) == 2


def test_a_new_folder_is_never_removed_while_it_is_used(temporary: Path) -> None:
    ended = threading.Event()

    def remove() -> None:
        while not ended.is_set():
            remove_left_behind(temporary)

    removing = threading.Thread(target=remove)
    removing.start()
    try:
        for _ in range(300):
            with driver_folder() as folder:
                (folder / "used").write_text("")
                assert sorted(os.listdir(folder)) == [LOCK, "used"]
    finally:
        ended.set()
        removing.join()
