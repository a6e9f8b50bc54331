"""The program as a person meets it: its help, its version, and pipes, signals and full disks around it."""

from __future__ import annotations

import json
import resource
import signal
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import IO, NamedTuple

import pytest

from catena.runtime import SystemEntropy
from catena.testing.s3_server import ACCESS_KEY, BUCKET, SECRET_KEY, SeaweedServer
from tests.cli.conftest import CATENA, Catena, clean_environment


class Running(NamedTuple):
    process: subprocess.Popen[bytes]
    stdin: IO[bytes]
    stdout: IO[bytes]
    stderr: IO[bytes]


@contextmanager
def start(folder: Path, *args: str) -> Iterator[Running]:
    pipe = subprocess.PIPE
    with subprocess.Popen(
        [CATENA, *args], cwd=folder, env=clean_environment(), stdin=pipe, stdout=pipe, stderr=pipe
    ) as process:
        assert process.stdin is not None
        assert process.stdout is not None
        assert process.stderr is not None
        try:
            yield Running(process, process.stdin, process.stdout, process.stderr)
        except BaseException:
            process.kill()
            raise


def test_help_teaches(program: Catena) -> None:
    shown = program("--help")
    assert shown.code == 0
    for lesson in ("catena topic create orders", "./data", "Exit codes", "catena doctor", "CATENA_META"):
        assert lesson in shown.out


def test_version(catena: Catena) -> None:
    assert catena("--version").out.startswith("catena 0.")


@pytest.mark.parametrize("arguments", [["no-such-command"], ["topic", "list", "--no-such-option"], ["chain", "t", "x"]])
def test_usage_errors_have_their_code(catena: Catena, arguments: list[str]) -> None:
    ran = catena(*arguments)
    assert (ran.code, ran.out) == (2, "")
    assert "Traceback" not in ran.err


def test_a_session(program: Catena) -> None:
    assert program("topic", "create", "orders", "--partitions", "2").code == 0
    produced = program("produce", "orders", "--json", input=b"".join(b"%d\n" % n for n in range(5_000)))
    assert produced.json["acked"] == 5_000
    assert sum(each["records"] for each in produced.json["partitions"]) == 5_000
    values = [int(line) for line in program("consume", "orders").out.splitlines()]
    assert sorted(values) == list(range(5_000))


def test_a_session_on_s3_alone(program: Catena, s3_server: SeaweedServer) -> None:
    prefix = SystemEntropy().hex_id()
    env = {
        "CATENA_OBJECTS": f"s3://{BUCKET}/{prefix}?endpoint={s3_server.endpoint}&region=us-east-1&lists_as_tree=true",
        "CATENA_META": "objects:",
        "AWS_ACCESS_KEY_ID": ACCESS_KEY,
        "AWS_SECRET_ACCESS_KEY": SECRET_KEY,
    }
    assert program("topic", "create", "t", env=env).code == 0
    assert program("produce", "t", input=b"one\ntwo\n", env=env).out.startswith("2 records acked")
    assert program("consume", "t", env=env).out == "one\ntwo\n"
    assert (
        program("doctor", "--json", env=env).json[-1]["found"]
        == "1 topic with 1 partition; oldest and newest record of each can be read"
    )


@pytest.fixture
def topic(catena: Catena, tmp_path: Path) -> Path:
    """Makes topic `t` with one record in it, where the program finds it; returns the folder to run it in."""
    (tmp_path / "lines").write_bytes(b"before\n")
    catena("topic", "create", "t", "--partitions", "2", at=tmp_path / "data")
    assert catena("produce", "t", tmp_path / "lines", "--partition", "0", at=tmp_path / "data").code == 0
    return tmp_path


def test_a_reader_that_goes_away_ends_it_quietly(catena: Catena, topic: Path) -> None:
    (topic / "lines").write_bytes(b"a long line, many times\n" * 100_000)
    catena("produce", "t", topic / "lines", at=topic / "data")
    with start(topic, "consume", "t") as consuming:
        assert consuming.stdout.readline() == b"before\n"
        consuming.stdout.close()
        assert consuming.stderr.read() == b""
    assert consuming.process.returncode == 0


def test_following_is_live_and_ends_quietly_with_ctrl_c(catena: Catena, topic: Path) -> None:
    (topic / "lines").write_bytes(b"after\n")
    with start(topic, "consume", "t", "--follow") as following:
        assert following.stdout.readline() == b"before\n"
        catena("produce", "t", topic / "lines", "--partition", "1", at=topic / "data")
        assert following.stdout.readline() == b"after\n"
        following.process.send_signal(signal.SIGINT)
        assert (following.stdout.read(), following.stderr.read()) == (b"", b"")
    assert following.process.returncode == 0


def test_ctrl_c_while_producing_says_what_was_acked(topic: Path) -> None:
    with (
        start(topic, "produce", "t", "--partition", "0", "--json") as producing,
        start(topic, "consume", "t", "--partition", "0", "--follow") as following,
    ):
        producing.stdin.write(b"one\ntwo\nunfinished")
        producing.stdin.flush()
        # What a slow writer has finished is sent at once.
        assert [following.stdout.readline() for _ in range(3)] == [b"before\n", b"one\n", b"two\n"]
        following.process.send_signal(signal.SIGINT)
        producing.process.send_signal(signal.SIGINT)
        summary = json.loads(producing.stdout.read())
        assert (summary["acked"], summary["interrupted"]) == (2, True)
        assert summary["read_up_to"] == {"source": "standard input", "line": 2}
    assert producing.process.returncode == 130


def test_a_full_disk_loses_nothing_that_was_acked(catena: Catena, topic: Path) -> None:
    def limit_file_size() -> None:
        signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
        resource.setrlimit(resource.RLIMIT_FSIZE, (200_000, 200_000))

    ran = subprocess.run(
        [CATENA, "produce", "t", "--json"],
        check=False,
        input=b"x" * 300_000 + b"\n",
        capture_output=True,
        cwd=topic,
        env=clean_environment(),
        preexec_fn=limit_file_size,
    )
    assert ran.returncode == 1, ran.stderr
    (failure,) = json.loads(ran.stdout)["failed"]
    assert (failure["first_line"], failure["unknown"]) == (1, False)
    assert "File too large" in failure["reason"]
    assert "Traceback" not in ran.stderr.decode()
    assert catena("consume", "t", at=topic / "data").out == "before\n"


def test_output_that_can_not_be_written_is_trouble(topic: Path) -> None:
    with open("/dev/full", "wb") as full:
        ran = subprocess.run(
            [CATENA, "topic", "list"],
            check=False,
            stdout=full,
            stderr=subprocess.PIPE,
            cwd=topic,
            env=clean_environment(),
        )
    assert ran.returncode == 3
    assert ran.stderr.decode().startswith("catena: No space left on device")


def test_a_terminal_that_knows_ascii_only(program: Catena, topic: Path) -> None:
    drawn = program("chain", "t", "0", env={"PYTHONIOENCODING": "ascii"})
    assert (drawn.code, drawn.err) == (0, "")
    assert "diskless" in drawn.out
