"""The decisions of dev.py on facts, and real runs of it in a copy of the checkout, with a uv that fetches nothing."""

from __future__ import annotations

import ast
import fcntl
import json
import os
import shutil
import signal
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

import dev

GOOD = dev.Python("python3.12", (3, 12, 1), has_venv=True, has_pip=True)
SPLIT = dev.Python("python3.11", (3, 11, 2), has_venv=False, has_pip=False)
OLD = dev.Python("python3.8", (3, 8, 18), has_venv=True, has_pip=True)
TOO_NEW = dev.Python("python3.15", (3, 15, 0), has_venv=True, has_pip=True)


class TestChoosePython:
    def test_takes_the_first_that_will_do(self) -> None:
        assert dev.choose_python([OLD, TOO_NEW, SPLIT, GOOD], has_uv=False) == GOOD

    def test_uv_needs_no_venv_module(self) -> None:
        assert dev.choose_python([SPLIT, GOOD], has_uv=True) == SPLIT

    def test_uv_brings_one_where_there_is_none(self) -> None:
        assert dev.choose_python([OLD], has_uv=True) is None

    def test_says_which_were_found_when_all_are_too_old_or_too_new(self) -> None:
        with pytest.raises(dev.Problem, match=r"needs Python 3\.11 to 3\.14 and found 3\.8\.18, 3\.15\.0: install one"):
            dev.choose_python([OLD, TOO_NEW], has_uv=False)

    def test_says_what_to_install_when_the_venv_module_is_missing(self) -> None:
        with pytest.raises(dev.Problem, match=r"apt install python3-venv \(or python3\.11-venv\)"):
            dev.choose_python([OLD, SPLIT], has_uv=False)


class TestRoom:
    def test_says_how_much_is_needed_and_there(self) -> None:
        roomy, full = dev.Room("/a", 900, 300, "no matter"), dev.Room("/b", 12, 300, "set TMPDIR")
        with pytest.raises(dev.Problem, match="/b has 12 MB free and needs 300 MB: set TMPDIR"):
            dev.check_room([roomy, full])

    def test_is_content_with_just_enough(self) -> None:
        dev.check_room([dev.Room("/a", 300, 300, "no matter")])

    def test_spark_needs_far_more(self) -> None:
        def needed(*parts: str) -> list[int]:
            big = dev.Room("/", 100_000, 0, "")
            in_checkout, rooms = dev.plan_room(parts, big, big)
            assert not in_checkout
            return [room.needed_mb for room in rooms]

        assert needed("core") == [250, 300]
        assert needed("core", "dev", "servers") == [900, 300]
        assert needed("core", "spark") == [1_750, 2_700]

    def test_temporary_files_go_where_there_is_room(self) -> None:
        checkout, small = dev.Room("/a", 100_000, 0, ""), dev.Room("/b", 2_699, 0, "")
        in_checkout, rooms = dev.plan_room(["core", "spark"], checkout, small)
        assert in_checkout
        assert rooms == [checkout._replace(needed_mb=1_750 + 2_700)]


STAMP = {"python": "3.12", "place": "/here", "core": "c1", "dev": "d1"}


class TestNextStep:
    @pytest.mark.parametrize(
        ("wanted", "step"),
        [
            ({"place": "/here", "core": "c1"}, "ready"),
            ({"place": "/here", "core": "c1", "dev": "d1", "python": "3.12"}, "ready"),
            ({"place": "/here", "core": "c2"}, "install"),
            ({"place": "/here", "core": "c1", "dev": "d1", "servers": "s1"}, "install"),
            ({"place": "/moved", "core": "c1"}, "make"),
            ({"place": "/here", "core": "c1", "python": "3.13"}, "make"),
        ],
    )
    def test_compares_what_was_finished_with_what_is_wanted(self, wanted: dict[str, str], step: str) -> None:
        assert dev.next_step(STAMP, wanted, GOOD, has_uv=False) == step

    def test_makes_again_what_was_not_finished(self) -> None:
        assert dev.next_step(None, {"place": "/here"}, GOOD, has_uv=False) == "make"

    @pytest.mark.parametrize("python", [None, SPLIT], ids=["does not run", "is another one now"])
    def test_makes_again_when_the_python_in_it_has_gone(self, python: dev.Python | None) -> None:
        assert dev.next_step(STAMP, {"place": "/here"}, python, has_uv=False) == "make"

    def test_makes_again_when_nothing_can_install_into_it(self) -> None:
        without_pip, wanted = GOOD._replace(has_pip=False), {"place": "/here", "core": "c2"}
        assert dev.next_step(STAMP, wanted, without_pip, has_uv=False) == "make"
        assert dev.next_step(STAMP, wanted, without_pip, has_uv=True) == "install"


class TestFacts:
    def test_probe_runs_the_python(self) -> None:
        python = dev.probe(sys.executable)
        assert python is not None
        assert python.version == sys.version_info[:3]

    @pytest.mark.parametrize("body", ["exit 127", "echo not a version"])
    def test_probe_is_not_fooled_by_a_shim(self, tmp_path: Path, body: str) -> None:
        assert dev.probe(script(tmp_path / "python3.14", body)) is None

    def test_probe_of_nothing(self, tmp_path: Path) -> None:
        assert dev.probe(str(tmp_path / "python3.14")) is None

    @pytest.mark.parametrize("text", ["", "{", "[]", '{"python": "3.12"}'])
    def test_a_torn_stamp_is_no_stamp(self, tmp_path: Path, text: str) -> None:
        (tmp_path / "stamp").write_text(text)
        assert dev.read_stamp(tmp_path / "stamp") is None

    def test_old_pythons_can_read_it(self) -> None:
        ast.parse(Path(dev.__file__).read_text(), feature_version=(3, 8))


def script(path: Path, body: str) -> str:
    path.write_text(f"#!/bin/sh\n{body}\n")
    path.chmod(0o755)
    return str(path)


class Checkout:
    """A copy of what dev.py needs, and a uv that makes a bare .venv, writes down what it was asked, and may hang.

    What is asked of Spark, a module in it answers.
    """

    def __init__(self, root: Path) -> None:
        self.root = root / "checkout"
        self.root.mkdir()
        for path in [dev.ROOT / "dev.py", dev.ROOT / "pyproject.toml", *dev.ROOT.glob("requirements*.txt")]:
            shutil.copy(path, self.root)
        tools = root / "tools"
        tools.mkdir()
        self.spark = self.root / "catena" / "pipeline" / "spark" / "__main__.py"
        self.spark.parent.mkdir(parents=True)
        self.spark.write_text("print('it works')")
        self.asked = root / "asked"
        self.asked.touch()
        self.hang = root / "hang"
        make = f'"{sys.executable}" -m venv --without-pip "$4"'
        wait = f'test ! -e "{self.hang}" || exec sleep 60'
        script(tools / "uv", f'echo "$*" >> "{self.asked}"\nif [ "$1" = venv ]; then {make}; else {wait}; fi')
        self.environment = {**os.environ, "PATH": f"{tools}{os.pathsep}{os.environ['PATH']}"}

    def start(self, *args: str) -> subprocess.Popen[str]:
        command = [sys.executable, str(self.root / "dev.py"), *args]
        # A job in the background of a shell ignores SIGINT, and what it starts inherits that.
        inherited = signal.signal(signal.SIGINT, signal.default_int_handler)
        try:
            return subprocess.Popen(
                command,
                env=self.environment,
                stdout=subprocess.PIPE,
                stderr=subprocess.STDOUT,
                text=True,
                start_new_session=True,
            )
        finally:
            signal.signal(signal.SIGINT, inherited)

    def run(self, *args: str) -> tuple[int, str]:
        with self.start(*args) as process:
            return process.wait(), process.stdout.read() if process.stdout else ""

    def times_made(self) -> int:
        return sum(line.startswith("venv") for line in self.asked.read_text().splitlines())


@pytest.fixture
def checkout(tmp_path: Path) -> Checkout:
    return Checkout(tmp_path)


def read_until(process: subprocess.Popen[str], wanted: Callable[[str], bool]) -> None:
    assert process.stdout is not None
    assert any(wanted(line) for line in process.stdout), "it ended without saying so"


class TestRuns:
    def test_help_names_every_job(self, checkout: Checkout) -> None:
        code, output = checkout.run("--help")
        assert code == 0
        assert all(f"dev.py {job}" in output for job in dev.JOBS)

    def test_an_unknown_job_is_one_line(self, checkout: Checkout) -> None:
        code, output = checkout.run("deploy")
        assert (code, output.count("\n")) == (2, 1)
        assert "there is no job 'deploy'" in output

    def test_set_up_once_is_enough(self, checkout: Checkout) -> None:
        assert checkout.run("setup", "--dev")[0] == 0
        asked = checkout.asked.read_text()
        assert "--requirement requirements-dev.txt" in asked
        assert "--no-build-isolation --editable ." in asked
        assert all(f"--constraint requirements-servers.txt {name}" in asked for name in dev.SERVERS)
        assert all(f"--constraint requirements-spark.txt {name}" in asked for name in (dev.SPARK, dev.JAVA))
        assert checkout.run("setup")[0] == 0
        assert checkout.asked.read_text() == asked

    def test_spark_comes_only_where_it_is_asked_for(self, checkout: Checkout) -> None:
        assert checkout.run("setup")[0] == 0
        assert dev.SPARK not in checkout.asked.read_text()
        code, output = checkout.run("setup", "--spark")
        assert code == 0
        assert "it works" in output
        asked = checkout.asked.read_text()
        assert f"--constraint requirements-spark.txt {dev.SPARK}" in asked
        assert "requirements-dev.txt" not in asked
        assert checkout.times_made() == 1

    def test_where_spark_cannot_be_used_it_is_said_and_tried_again(self, checkout: Checkout) -> None:
        checkout.spark.write_text("import sys; sys.exit('no Java')")
        for _ in range(2):
            code, output = checkout.run("setup", "--spark")
            assert code == 0
            assert "no Java" in output
            assert "Spark can't be used here, see above: tests that need it will be skipped" in output
        checkout.spark.write_text("")
        assert "can't" not in checkout.run("setup", "--spark")[1]

    def test_a_changed_pin_is_installed_into_the_same_environment(self, checkout: Checkout) -> None:
        checkout.run("setup")
        with (checkout.root / "requirements.txt").open("a") as pins:
            pins.write("# changed\n")
        asked = len(checkout.asked.read_text().splitlines())
        assert checkout.run("setup")[0] == 0
        assert checkout.times_made() == 1
        assert len(checkout.asked.read_text().splitlines()) > asked

    def test_goes_on_after_an_interruption(self, checkout: Checkout) -> None:
        checkout.hang.touch()
        with checkout.start("setup") as process:
            read_until(process, lambda line: "pip install" in line)
            os.killpg(process.pid, signal.SIGINT)
            assert process.wait() == 130
        half_made = checkout.root / ".venv" / "half-made"
        half_made.touch()
        checkout.hang.unlink()
        assert checkout.run("setup")[0] == 0
        assert not half_made.exists()
        stamp = json.loads((checkout.root / ".venv" / "finished.json").read_text())
        assert stamp["place"] == str(checkout.root)

    def test_two_at_once_take_turns(self, checkout: Checkout) -> None:
        (checkout.root / ".dev").mkdir()
        with (checkout.root / ".dev" / "lock").open("w") as lock:
            fcntl.flock(lock, fcntl.LOCK_EX)
            with checkout.start("setup") as process:
                read_until(process, lambda line: "waiting for it" in line)
                assert checkout.times_made() == 0
                fcntl.flock(lock, fcntl.LOCK_UN)
                assert process.wait() == 0

    def test_arguments_and_exit_codes_are_passed_on(self, checkout: Checkout) -> None:
        (checkout.root / "sim").mkdir()
        (checkout.root / "sim" / "__main__.py").write_text("import sys; print(sys.argv[1:]); sys.exit(7)")
        code, output = checkout.run("sim", "--seeds", "3")
        assert code == 7
        assert "['run', '--seeds', '3']" in output

    @pytest.mark.skipif(shutil.which("make") is None, reason="dev.py works alone where there is no make")
    @pytest.mark.parametrize(
        ("words", "job"),
        [
            (["SEEDS=3"], "--seeds 3"),
            (["SEED=4"], "--seed 4"),
            (["SEED=4", "SCENARIO=groups"], "--seed 4 --scenario groups"),
        ],
    )
    def test_make_says_what_the_simulator_runs(self, words: list[str], job: str) -> None:
        command = ["make", "--dry-run", "--no-print-directory", "--file", str(dev.ROOT / "Makefile"), "sim", *words]
        # These tests may be run by make themselves, which tells the makes inside of it what it was told.
        printed = subprocess.run(
            command, capture_output=True, text=True, check=True, env={"PATH": os.environ["PATH"]}
        ).stdout
        assert printed.split() == ["python3", "dev.py", "sim", *job.split()]

    def test_clean_leaves_what_is_not_its_own(self, checkout: Checkout) -> None:
        before = sorted(checkout.root.iterdir())
        checkout.run("setup")
        assert sorted(checkout.root.iterdir()) != before
        assert checkout.run("clean")[0] == 0
        assert sorted(checkout.root.iterdir()) == before
