"""Compaction from the command line; the jobs behind it are tried without it."""

from __future__ import annotations

from pathlib import Path

import pytest

from catena.cli.pipeline_compact import print_compacted
from catena.jobs import CompactRunReport
from catena.pipeline.compact_pass import CompactionReport
from catena.pipeline.work import Usage
from tests.cli.conftest import Catena
from tests.cli.test_pipeline import spark

__all__ = ["spark"]


@pytest.fixture
def lines(tmp_path: Path) -> Path:
    """Ten keys, each ten times."""
    (tmp_path / "lines").write_text("".join(f"{number % 10}\t{number}\n" for number in range(100)))
    return tmp_path / "lines"


def fill(catena: Catena, lines: Path) -> None:
    catena("topic", "create", "t")
    catena("topic", "create", "plain")
    catena("topic", "config", "t", "cleanup.policy=compact")
    catena("produce", "t", str(lines), "--key-separator", "\t")


@pytest.mark.long
@pytest.mark.usefixtures("spark")
@pytest.mark.timeout(300)
def test_the_last_record_of_each_key_stays(program: Catena, lines: Path) -> None:
    fill(program, lines)
    assert program("pipeline", "tier", "--force-up-to", "latest", "--master", "local[2]").code == 0
    planned = program("pipeline", "compact", "--dry-run")
    assert "would be compacted" in planned.out
    shown = program("pipeline", "compact", "--master", "local[2]")
    assert (shown.code, shown.err) == (0, "")
    assert "compacted" in shown.out
    assert "1 executor" in shown.out
    found = program("consume", "t", "--from", "earliest", "--to", "latest").out
    assert sorted(map(int, found.split())) == list(range(90, 100))
    again = program("pipeline", "compact", "--json").json
    assert (again["partitions"], again["idle"]) == ([], 1)


def test_without_anything_to_do_no_spark_is_started(catena: Catena, lines: Path) -> None:
    fill(catena, lines)
    found = catena("pipeline", "compact", "--json").json
    assert (found["job"], found["partitions"], found["idle"], found["executors"]) == ("compact", [], 1, {})
    assert "nothing to do in 1 partition" in catena("pipeline", "compact").out


def test_batches_that_can_not_be_decoded_are_told(capsys: pytest.CaptureFixture[str]) -> None:
    found = CompactionReport("orders", 3, "compacted", opaque_batches=2, first_opaque=17)
    print_compacted(CompactRunReport("compact", 0, 1, False, (found,), 0, {}, Usage()))
    said = "orders/3: 2 batches can't be decoded and stay as they are, from offset 17 on"
    assert said in capsys.readouterr().err.splitlines()


def test_a_topic_that_is_not_compacted_is_refused_by_name(catena: Catena, lines: Path) -> None:
    fill(catena, lines)
    refused = catena("pipeline", "compact", "--topic", "plain")
    assert refused.code != 0
    assert "catena topic config plain cleanup.policy=compact" in refused.err
    assert catena("pipeline", "compact", "--partition", "0").code != 0
