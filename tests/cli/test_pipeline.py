"""Jobs from the command line, with a Spark of their own where they need one."""

from __future__ import annotations

import asyncio
import json
import os
import signal
import subprocess
import urllib.request
from pathlib import Path
from typing import Any

import pytest

from catena.config import Settings
from catena.errors import ConfigError
from catena.jobs import EVERYTHING, find_places, open_site
from catena.pipeline import compactions
from catena.pipeline.spark.java import find_java
from catena.pipeline.spark.session import check_pyspark
from catena.runtime import SystemClock, SystemEntropy
from tests.cli.conftest import CATENA, Catena, Ran, clean_environment
from tests.clients.waiting import until
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
    vacuumed = program("pipeline", "vacuum", "--master", "local[2]")
    assert (vacuumed.code, vacuumed.err) == (0, "")
    assert "deleted 0 objects" in vacuumed.out
    audited = program("pipeline", "audit", "--master", "local[2]")
    assert (audited.code, audited.err) == (0, "")
    assert "2 partitions, 1,000 records" in audited.out
    assert "no damage, 0 leftovers, 0 orphans for vacuum" in audited.out


@pytest.mark.usefixtures("spark")
def test_the_service_runs_until_it_is_told_to_end(lines: Path, tmp_path: Path) -> None:
    environment = clean_environment(
        CATENA_DATA=str(tmp_path / "data"),
        CATENA_PIPELINE__TIER__MIN_AGE_MS="0",
        CATENA_PIPELINE__TIER__MIN_BYTES="0",
        CATENA_PIPELINE__SERVICE__EVERY_MS="100",
    )

    def catena(*arguments: str) -> None:
        subprocess.run([CATENA, *arguments], env=environment, check=True, stdout=subprocess.DEVNULL)

    catena("topic", "create", "t")
    catena("produce", "t", str(lines))
    command = [str(CATENA), "pipeline", "run", "--json", "--master", "local[2]"]
    with subprocess.Popen(command, env=environment, stdout=subprocess.PIPE, text=True) as process:
        try:
            assert process.stdout is not None
            http = json.loads(process.stdout.readline())["http"]

            def metrics() -> Any:
                with urllib.request.urlopen(f"http://{http}/metrics", timeout=30) as answer:
                    return json.load(answer)["tier"]

            until(lambda: metrics()["runs"] == 1, "the first run is tiered")
            catena("produce", "t", str(lines))
            until(lambda: metrics()["runs"] == 2, "the second run is tiered")
            process.send_signal(signal.SIGTERM)
            ended = json.loads(process.stdout.readline())
            assert process.wait(60) == 0
        except BaseException:
            process.kill()
            raise
    assert ended["failing"] == []
    assert ended["tier"]["outcomes"]["tiered"] >= 2
    assert ended["jobs"]["retention"]["runs"]["good"] >= 1


@pytest.mark.usefixtures("spark")
def test_what_another_driver_holds_is_not_taken_for_done(program: Catena, lines: Path, tmp_path: Path) -> None:
    program("topic", "create", "t")
    program("produce", "t", str(lines))

    async def hold() -> Ran:
        settings = Settings(data=str(tmp_path / "data"))
        async with open_site(settings, SystemClock(), SystemEntropy()) as (site, _):
            (place,) = await find_places(site, EVERYTHING)
            session = await site.meta.session(60_000)
            assert await compactions.claim(site, place.tp, session) is not None
            command = ("pipeline", "tier", "--force-up-to", "latest", "--master", "local[2]")
            try:
                return await asyncio.to_thread(program, *command)
            finally:
                await session.close()

    shown = asyncio.run(hold())
    assert shown.code == 1
    assert "1 partition left to another driver" in shown.err


def test_a_service_for_a_topic_that_is_not_there_does_not_begin(catena: Catena) -> None:
    catena("topic", "create", "t")
    shown = catena("pipeline", "run", "--once", "--topic", "nothing")
    assert shown.code == 2
    assert "no topic 'nothing'" in shown.err
    assert catena("pipeline", "run", "--http-port", "99999").code == 2


def test_the_help_names_the_extra(catena: Catena) -> None:
    assert "catena-log[spark]" in catena("pipeline", "--help").out


def test_a_dry_run_of_the_service_shows_what_it_would_do_and_ends(catena: Catena, lines: Path) -> None:
    env = {"CATENA_PIPELINE__TIER__MIN_AGE_MS": "0", "CATENA_PIPELINE__TIER__MIN_BYTES": "0"}
    catena("topic", "create", "t")
    catena("produce", "t", str(lines))
    planned = catena("pipeline", "run", "--dry-run", "--topic", "t", "--json", env=env)
    assert planned.code == 0
    assert [each["outcome"] for each in planned.json["tier"]["partitions"]] == ["planned"]
    assert planned.json["retention"]["partitions"] == []
    assert list(planned.json) == ["retention", "tier", "compact"], "orphans are of no topic"
    assert "bytes would be tiered" in catena("pipeline", "run", "--dry-run", "--topic", "t", env=env).out
    assert [link["kind"] for link in catena("chain", "t", "0", "--json").json["links"]] == ["diskless"]


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
