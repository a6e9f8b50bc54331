"""Commands, run in this process where that is enough, and as the real program where a process matters."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, NamedTuple

import pytest
from typer.testing import CliRunner

from catena.cli.app import app

CATENA = Path(sys.executable).with_name("catena")


class Ran(NamedTuple):
    code: int
    out: str
    err: str

    @property
    def json(self) -> Any:
        return json.loads(self.out)


Catena = Callable[..., Ran]


def clean_environment(**extra: str) -> dict[str, str]:
    return {name: value for name, value in os.environ.items() if not name.startswith("CATENA_")} | extra


@pytest.fixture(autouse=True, scope="session")
def interruptible() -> Iterator[None]:
    """A job in the background of a shell ignores SIGINT, and what it starts inherits that."""
    inherited = signal.signal(signal.SIGINT, signal.default_int_handler)
    yield
    signal.signal(signal.SIGINT, inherited)


@pytest.fixture
def catena(tmp_path: Path) -> Catena:
    """Runs a command in this process, on a log of this test's own."""

    def run(*args: str | Path, env: dict[str, str] | None = None, at: Path | None = tmp_path / "log") -> Ran:
        unset = {name: None for name in os.environ if name.startswith("CATENA_")}
        arguments = [*([] if at is None else ["--data", str(at)]), *map(str, args)]
        result = CliRunner().invoke(app, arguments, env={**unset, **(env or {})})
        return Ran(result.exit_code, result.stdout, result.stderr)

    return run


@pytest.fixture
def program(tmp_path: Path) -> Catena:
    """Runs the real program, in a folder of this test's own."""

    def run(*args: str | Path, input: bytes = b"", env: dict[str, str] | None = None) -> Ran:
        result = subprocess.run(
            [CATENA, *args],
            check=False,
            input=input,
            capture_output=True,
            cwd=tmp_path,
            env=clean_environment(**(env or {})),
            timeout=60,
        )
        return Ran(result.returncode, result.stdout.decode(errors="surrogateescape"), result.stderr.decode())

    return run
