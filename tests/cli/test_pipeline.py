"""Jobs from the command line, with a Spark of their own where they need one."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from catena.errors import ConfigError
from catena.pipeline.spark.java import find_java
from catena.pipeline.spark.session import check_pyspark
from tests.cli.conftest import Catena
from tests.conftest import cannot_have


@pytest.fixture
def lines(tmp_path: Path) -> Path:
    (tmp_path / "lines").write_text("".join(f"{number}\n" for number in range(1000)))
    return tmp_path / "lines"


@pytest.fixture
def spark() -> None:
    try:
        check_pyspark(connect=False)
        find_java(os.environ)
    except ConfigError as error:
        cannot_have("spark", str(error))


@pytest.mark.usefixtures("spark")
def test_tier_moves_all_and_changes_nothing_for_readers(program: Catena, lines: Path) -> None:
    program("topic", "create", "t", "--partitions", "2")
    program("produce", "t", str(lines), "--partition", "0")
    planned = program("pipeline", "tier", "--force-up-to", "latest", "--dry-run", "--json").json
    assert [(each["partition"], each["outcome"]) for each in planned["partitions"]] == [(0, "planned")]
    shown = program("pipeline", "tier", "--force-up-to", "latest", "--master", "local[2]")
    assert (shown.code, shown.err) == (0, "")
    assert "tiered" in shown.out
    assert "1 executor; nothing to do in 1 partition" in shown.out
    links = program("chain", "t", "0", "--json").json["links"]
    assert [(link["kind"], link["base"], link["end"]) for link in links] == [
        ("tiered", 0, 1000),
        ("diskless", 1000, None),
    ]
    assert program("consume", "t", "--partition", "0", "--to", "latest", "--from", "earliest").out == lines.read_text()
    again = program("pipeline", "tier", "--force-up-to", "latest")
    assert (again.code, "0 bytes tiered" in again.out) == (0, True)


def test_retention_trims_what_is_too_much(catena: Catena) -> None:
    catena("topic", "create", "t")
    assert catena("pipeline", "retention").out == "nothing is older or larger than its topic keeps\n"
    assert catena("pipeline", "retention", "--json").json["partitions"] == []


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["--topic", "nothing"], "no topic 'nothing'"),
        (["--topic", "t", "--partition", "7"], "7"),
        (["--force-up-to", "soon"], "'soon' is no offset"),
        (["--partition", "0"], "say of which topic"),
        (["--master", "local", "--remote", "sc://x", "--force-up-to", "latest"], "only one of them"),
    ],
)
def test_what_cannot_be_is_said(catena: Catena, lines: Path, arguments: list[str], said: str) -> None:
    catena("topic", "create", "t")
    catena("produce", "t", str(lines))
    shown = catena("pipeline", "tier", *arguments)
    assert shown.code == 2
    assert said in shown.err


def test_where_there_is_no_log_none_is_made(catena: Catena) -> None:
    shown = catena("pipeline", "tier")
    assert shown.code == 2
    assert "there is no log" in shown.err
