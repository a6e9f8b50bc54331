"""Whatever goes wrong becomes one line that says what to do, and the right exit code."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import pytest
import typer

from catena import errors
from catena.cli.options import Common
from catena.cli.running import FAILED, INTERRUPTED, TROUBLE, WRONG, reporting
from tests.cli.conftest import Catena


def blobs(folder: Path) -> list[Path]:
    return sorted((folder / "objects" / "llog" / "wal-shared").iterdir())


@pytest.fixture
def stocked(catena: Catena, tmp_path: Path) -> Path:
    """A log with something in it."""
    lines = tmp_path / "lines"
    lines.write_text("".join(f"line {number}\n" for number in range(100)))
    catena("topic", "create", "t")
    assert catena("produce", "t", lines).code == 0
    return tmp_path / "log"


def flip_a_byte(path: Path, at: int) -> None:
    data = bytearray(path.read_bytes())
    data[at] ^= 1
    path.write_bytes(data)


def damage_blob(folder: Path) -> None:
    (blob,) = blobs(folder)
    flip_a_byte(blob, blob.stat().st_size - 10)


def delete_blob(folder: Path) -> None:
    blobs(folder)[0].unlink()


def truncate_blob(folder: Path) -> None:
    (blob,) = blobs(folder)
    blob.write_bytes(blob.read_bytes()[:-10])


def cut_off_database(folder: Path) -> None:
    database = folder / "meta.db"
    database.write_bytes(database.read_bytes()[:5_000])


def replace_database(folder: Path) -> None:
    (folder / "meta.db").write_bytes(b"this was a database once" * 500)


def empty_database(folder: Path) -> None:
    (folder / "meta.db").write_bytes(b"")


@pytest.mark.parametrize(
    ("break_it", "kind", "says"),
    [
        (damage_blob, "Corrupt", "CRC"),
        (delete_blob, "ObjectMissing", "does not exist"),
        (truncate_blob, "Corrupt", "bytes"),
        (cut_off_database, "Corrupt", "damaged"),
        (replace_database, "Corrupt", "damaged"),
        (empty_database, "StoreRefused", "meta store is empty"),
    ],
)
def test_damage_is_found_and_named(
    catena: Catena, stocked: Path, break_it: Callable[[Path], None], kind: str, says: str
) -> None:
    break_it(stocked)
    ran = catena("consume", "t", "--json")
    assert (ran.code, ran.out) == (TROUBLE, "")
    report = json.loads(ran.err)
    assert (report["error"], report["exit_code"]) == (kind, TROUBLE)
    assert says in report["message"]
    assert "catena doctor" in report["advice"]

    for_people = catena("consume", "t")
    assert for_people.err.startswith("catena: ")
    assert for_people.err.count("\n") == 1


def test_a_place_that_can_not_hold_a_log(catena: Catena, tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    ran = catena("topic", "create", "t", at=tmp_path / "file")
    assert (ran.code, ran.err.count("\n")) == (TROUBLE, 1)
    assert "Not a directory" in ran.err


@pytest.mark.parametrize(
    ("setting", "says"),
    [
        ({"CATENA_META": "postgres://catena:secret@127.0.0.1:1/catena"}, "PostgreSQL cannot be reached"),
        ({"CATENA_OBJECTS": "s3://bucket?endpoint=http://127.0.0.1:1&region=r"}, "no connection"),
    ],
)
def test_a_store_that_is_down(catena: Catena, setting: dict[str, str], says: str) -> None:
    credentials = {"AWS_ACCESS_KEY_ID": "a", "AWS_SECRET_ACCESS_KEY": "secret", "NO_PROXY": "127.0.0.1"}
    ran = catena("topic", "create", "t", env={**credentials, **setting})
    assert ran.code == TROUBLE
    assert says in ran.err
    assert "check that the store runs" in ran.err
    assert "secret" not in ran.err


@pytest.mark.parametrize(
    ("raised", "code"),
    [
        (errors.OffsetOutOfRange(5, 0, 3), WRONG),
        (errors.ConfigError("no"), WRONG),
        (errors.StoreFull("no"), TROUBLE),
        (errors.OutcomeUnknown("who knows"), TROUBLE),
        (PermissionError(13, "Permission denied", "file"), TROUBLE),
        (ZeroDivisionError("a bug"), FAILED),
        (KeyboardInterrupt(), INTERRUPTED),
        (BrokenPipeError(), 0),
    ],
)
def test_exit_codes(raised: BaseException, code: int) -> None:
    with pytest.raises(typer.Exit) as ended, reporting(Common()):
        raise raised
    assert ended.value.exit_code == code


def test_debug_shows_where_it_comes_from(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(typer.Exit), reporting(Common(debug=True)):
        raise errors.StoreFull("no space")
    shown = capsys.readouterr().err
    assert "test_debug_shows_where_it_comes_from" in shown
    assert shown.endswith("catena: no space; `catena doctor` looks closer\n")


def test_a_bug_is_called_one(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(typer.Exit), reporting(Common()):
        raise ZeroDivisionError("division by zero")
    assert capsys.readouterr().err == (
        "catena: ZeroDivisionError: division by zero; "
        "this is a bug in Catena; please report it with what --debug shows\n"
    )
