"""The same options before the command and after it, in a file and in the environment."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.cli.conftest import Catena, Ran


def topics(ran: Ran) -> list[str]:
    assert ran.code == 0, ran.err
    return [topic["name"] for topic in ran.json]


def test_an_option_after_the_command_wins(catena: Catena, tmp_path: Path) -> None:
    catena("topic", "create", "here", at=tmp_path / "a")
    catena("topic", "create", "there", at=tmp_path / "b")
    assert topics(catena("topic", "list", "--json", at=tmp_path / "a")) == ["here"]
    assert topics(catena("topic", "list", "--json", "--data", tmp_path / "b", at=tmp_path / "a")) == ["there"]


def test_option_wins_over_environment_wins_over_file(catena: Catena, tmp_path: Path) -> None:
    for name in ("file", "environment", "option"):
        catena("topic", "create", f"by-{name}", at=tmp_path / name)
    file = tmp_path / "catena.toml"
    file.write_text(f'data = "{tmp_path / "file"}"\n')
    in_environment = {"CATENA_DATA": str(tmp_path / "environment")}

    listing = ("topic", "list", "--json")
    assert topics(catena(*listing, "--config", file, at=None)) == ["by-file"]
    assert topics(catena(*listing, at=None, env={"CATENA_CONFIG": str(file)})) == ["by-file"]
    assert topics(catena(*listing, "--config", file, at=None, env=in_environment)) == ["by-environment"]
    assert topics(catena(*listing, "--config", file, at=tmp_path / "option", env=in_environment)) == ["by-option"]


@pytest.mark.parametrize(
    ("written", "says"),
    [
        ("unheard_of = 1", "unknown field `unheard_of`"),
        ("meta = 3", "Expected `str`"),
        ("[diskless.writer]\nuploads_in_flight = 'many'", "uploads_in_flight"),
        ("not toml", "catena.toml"),
    ],
)
def test_a_bad_file_is_named(catena: Catena, tmp_path: Path, written: str, says: str) -> None:
    file = tmp_path / "catena.toml"
    file.write_text(written)
    result = catena("topic", "list", "--config", file)
    assert result.code == 2
    assert says in result.err
    assert str(file) in result.err


def test_a_missing_file_and_an_unknown_variable_are_named(catena: Catena, tmp_path: Path) -> None:
    missing = catena("topic", "list", "--config", tmp_path / "missing.toml")
    assert (missing.code, "missing.toml: No such file" in missing.err) == (2, True)
    unknown = catena("topic", "list", env={"CATENA_UNHEARD_OF": "1"})
    assert (unknown.code, "CATENA_UNHEARD_OF" in unknown.err) == (2, True)
