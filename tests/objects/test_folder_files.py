"""What a put leaves behind when its process, its disk or its clock fails."""

from __future__ import annotations

import asyncio
import errno
import fcntl
import itertools
import os
import resource
import shutil
import signal
import sys
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from catena.errors import Conflict, Corrupt, ObjectMissing, OutcomeUnknown, StoreRefused
from catena.objects.base import Range
from catena.objects.folder_files import FolderFiles
from catena.runtime import SystemClock, SystemEntropy
from catena.types import ABSENT, ANY, ETag, Expect
from tests.objects.folder_child import CHECKOUT, NEW
from tests.objects.syscalls import When, at, fail, recorded

OLD = b"old"
PATIENCE_S = 20


class StoppedClock:
    def now_ms(self) -> int:
        return 1_700_000_000_000

    def monotonic(self) -> float:
        return 0.0

    async def sleep(self, seconds: float) -> None:
        raise AssertionError("nothing sleeps here")


class DullEntropy:
    """Names that differ, and nothing else."""

    def hex_id(self) -> str:
        return SystemEntropy().hex_id()

    def jitter(self) -> float:
        return 0.5


def open_files(root: Path) -> FolderFiles:
    files = FolderFiles(root, SystemClock(), SystemEntropy())
    files.prepare()
    return files


def put(files: FolderFiles, key: str, data: bytes, expect: Expect | ETag = ANY) -> ETag:
    return files.put(key, [memoryview(data)], expect)


def unpublished(root: Path) -> list[str]:
    return os.listdir(root / ".catena~" / "writing")


def visible(files: FolderFiles, key: str) -> bytes | None:
    try:
        return files.get(key).data
    except ObjectMissing:
        return None


NEW_OBJECT = b"".join(NEW)
CRASHES: list[tuple[When, str, bool, bool]] = [
    # when, system call, torn or whole file left behind, published
    ("before", "writev", True, False),
    ("after", "writev", True, False),
    ("before", "fdatasync", True, False),
    ("after", "fdatasync", True, False),
    ("before", "link", True, False),
    ("after", "link", True, True),
    ("before", "replace", True, False),
    ("after", "replace", False, True),
    ("after", "fsync", True, False),
]


@pytest.mark.parametrize(("when", "call", "leftover", "published"), CRASHES)
async def test_a_crash_leaves_nothing_or_the_whole_object(
    tmp_path: Path, when: When, call: str, leftover: bool, published: bool
) -> None:
    files = open_files(tmp_path)
    before: bytes | None = None
    expect = "absent"
    if call == "replace":
        before, expect = OLD, put(files, "folder/key", OLD)
    command = ["-m", "tests.objects.folder_child", str(tmp_path), "crash", "folder/key", expect, when, call]
    child = await asyncio.create_subprocess_exec(sys.executable, *command, cwd=CHECKOUT)
    assert await child.wait() == -signal.SIGKILL

    assert len(unpublished(tmp_path)) == leftover
    assert visible(files, "folder/key") == (NEW_OBJECT if published else before)
    reopened = open_files(tmp_path)
    assert unpublished(tmp_path) == []
    assert visible(reopened, "folder/key") == (NEW_OBJECT if published else before)
    put(reopened, "folder/key", b"life goes on")
    assert [info.key for info in reopened.list("", "")] == ["folder/key"]


def raised_by(work: Callable[[], object]) -> BaseException | None:
    """Run it on a thread of its own, because `at` watches new threads only."""
    raised: list[BaseException] = []

    def run() -> None:
        try:
            work()
        except Exception as error:
            raised.append(error)

    thread = threading.Thread(target=run)
    thread.start()
    thread.join(PATIENCE_S)
    assert not thread.is_alive()
    return raised[0] if raised else None


def test_a_name_follows_its_bytes_to_the_disk_and_nothing_returns_before_it_is_there(tmp_path: Path) -> None:
    files = open_files(tmp_path)
    steps = (os.writev, os.fdatasync, os.mkdir, os.link, os.replace, os.fsync)

    def steps_of(work: Callable[[], object]) -> list[str]:
        with recorded(*steps) as called:
            assert raised_by(work) is None
        return called

    new_folder = ["mkdir", "fsync"]
    assert steps_of(lambda: put(files, "a/b/c", OLD, ABSENT)) == [
        *("writev", "fdatasync"),
        *(*new_folder, *new_folder),
        *("link", "fsync"),
    ]
    assert steps_of(lambda: put(files, "a/b/d", OLD, ABSENT)) == ["writev", "fdatasync", "link", "fsync"]
    assert steps_of(lambda: put(files, "a/b/d", OLD)) == ["writev", "fdatasync", "replace", "fsync"]
    assert steps_of(lambda: files.delete(["a/b/d", "a/b/c"])) == ["fsync"]
    # Another process does not know who made the folders, and whether they are on the disk.
    another = open_files(tmp_path)
    assert steps_of(lambda: put(another, "a/b/e", OLD, ABSENT)) == [
        *("writev", "fdatasync"),
        *(*new_folder, *new_folder),
        *("link", "fsync"),
    ]


@pytest.mark.parametrize("call", [os.writev, os.fdatasync, os.link], ids=lambda call: call.__name__)
def test_opening_leaves_the_files_of_living_writers_alone(tmp_path: Path, call: Callable[..., Any]) -> None:
    files = open_files(tmp_path)

    def open_again() -> None:
        open_files(tmp_path)
        assert len(unpublished(tmp_path)) == 1

    with at("before", call, open_again):
        assert raised_by(lambda: put(files, "a", b"slow", ABSENT)) is None
    assert visible(files, "a") == b"slow"


def test_a_writer_whose_new_file_is_taken_for_a_leftover_takes_another(tmp_path: Path) -> None:
    files = open_files(tmp_path)

    def open_again() -> None:
        assert len(unpublished(tmp_path)) == 1
        open_files(tmp_path)
        assert unpublished(tmp_path) == []

    with at("before", fcntl.flock, open_again):
        assert raised_by(lambda: put(files, "a", b"second attempt", ABSENT)) is None
    assert visible(files, "a") == b"second attempt"


def test_etags_differ_although_the_clock_stands_still(tmp_path: Path) -> None:
    files = FolderFiles(tmp_path, StoppedClock(), DullEntropy())
    files.prepare()
    etags = [put(files, "a", b"%02d" % number) for number in range(50)]
    assert len(set(etags)) == 50
    assert files.head("a").modified_ms == StoppedClock().now_ms()


@pytest.mark.parametrize("key", ["a", "new/folder/a"])
def test_after_a_failed_fsync_of_a_folder_nothing_is_trusted(tmp_path: Path, key: str) -> None:
    files = open_files(tmp_path)
    put(files, "b", OLD)
    with at("before", os.fsync, fail(errno.EIO)):
        assert isinstance(raised_by(lambda: put(files, key, b"new", ABSENT)), OutcomeUnknown)
    for refused in (
        lambda: put(files, "c", b"1"),
        lambda: files.get("b"),
        lambda: files.get_ranges("b", [Range(0, 1)]),
        lambda: files.head("b"),
        lambda: files.delete(["b"]),
        lambda: files.list("", ""),
    ):
        with pytest.raises(StoreRefused, match="check the disk"):
            refused()
    assert visible(open_files(tmp_path), "b") == OLD


@pytest.mark.parametrize(
    ("call", "error"),
    [(os.writev, OSError), (os.fdatasync, OSError), (os.link, OutcomeUnknown), (os.replace, OutcomeUnknown)],
    ids=lambda value: value.__name__,
)
def test_a_disk_that_fails_before_the_name_is_given_has_done_nothing(
    tmp_path: Path, call: Callable[..., Any], error: type[Exception]
) -> None:
    files = open_files(tmp_path)
    with at("before", call, fail(errno.EIO)):
        assert isinstance(raised_by(lambda: put(files, "a", OLD, ANY if call is os.replace else ABSENT)), error)
    assert visible(files, "a") is None
    assert unpublished(tmp_path) == []


def test_a_failed_delete_may_have_been_applied(tmp_path: Path) -> None:
    files = open_files(tmp_path)
    put(files, "a/b", OLD)
    with at("before", os.unlink, fail(errno.EIO)):
        assert isinstance(raised_by(lambda: files.delete(["a/b"])), OutcomeUnknown)
    files.delete(["a/b"])
    assert visible(files, "a/b") is None


def test_a_delete_that_is_forbidden_is_no_riddle(tmp_path: Path) -> None:
    files = open_files(tmp_path)
    put(files, "a/b", OLD)
    with at("before", os.unlink, fail(errno.EACCES)):
        assert isinstance(raised_by(lambda: files.delete(["a/b"])), PermissionError)


def test_a_folder_that_somebody_removed_is_made_again(tmp_path: Path) -> None:
    files = open_files(tmp_path)
    put(files, "a/b/c", OLD)
    shutil.rmtree(tmp_path / "a")
    put(files, "a/b/d", b"new")
    assert [info.key for info in files.list("", "")] == ["a/b/d"]


def test_a_file_that_shrinks_while_it_is_read_is_corrupt(tmp_path: Path) -> None:
    files = open_files(tmp_path)
    put(files, "a", b"0123456789")
    with at("before", os.pread, lambda: os.truncate(tmp_path / "a", 4)):
        assert isinstance(raised_by(lambda: files.get("a")), Corrupt)


@pytest.mark.parametrize("call", [os.stat, os.writev, os.link], ids=lambda call: call.__name__)
def test_whoever_publishes_first_wins(tmp_path: Path, call: Callable[..., Any]) -> None:
    files, second = open_files(tmp_path), open_files(tmp_path)
    with at("before", call, lambda: put(second, "a", b"winner", ABSENT)):
        assert isinstance(raised_by(lambda: put(files, "a", b"loser", ABSENT)), Conflict)
    assert visible(files, "a") == b"winner"
    assert unpublished(tmp_path) == []


@pytest.mark.parametrize("call", [os.stat, os.writev, fcntl.flock], ids=lambda call: call.__name__)
def test_whoever_replaces_first_wins(tmp_path: Path, call: Callable[..., Any]) -> None:
    files, second = open_files(tmp_path), open_files(tmp_path)
    etag = put(files, "a", OLD)
    with at("before", call, lambda: put(second, "a", b"winner", etag)):
        assert isinstance(raised_by(lambda: put(files, "a", b"loser", etag)), Conflict)
    assert visible(files, "a") == b"winner"
    assert unpublished(tmp_path) == []


def test_a_delete_waits_for_a_replacement_that_has_compared(tmp_path: Path) -> None:
    files, second = open_files(tmp_path), open_files(tmp_path)
    etag = put(files, "a", OLD)
    deleting = threading.Thread(target=second.delete, args=(["a"],))

    def delete() -> None:
        deleting.start()
        deleting.join(0.05)
        assert deleting.is_alive(), "it came between the comparison and the rename"

    with at("before", os.replace, delete):
        assert raised_by(lambda: put(files, "a", b"new", etag)) is None
    deleting.join(PATIENCE_S)
    assert visible(files, "a") is None


def test_what_the_kernel_writes_in_parts_arrives_whole(tmp_path: Path) -> None:
    files = open_files(tmp_path)
    buffers = [bytes([number]) * 1_000 for number in range(10)]
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    limits = itertools.count(700, 700)
    with at("before", os.writev, lambda: resource.setrlimit(resource.RLIMIT_FSIZE, (next(limits), hard)), times=99):
        raised = raised_by(lambda: files.put("a", [memoryview(buffer) for buffer in buffers], ANY))
    resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))
    assert raised is None
    assert next(limits) > 10_000
    assert visible(files, "a") == b"".join(buffers)
