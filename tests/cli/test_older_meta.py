"""Going on with a meta store that was set back: what it costs is said first, and nothing is done unasked."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from catena.broker.producer_ids import SKIPPED
from catena.cli.older_meta import accept, look, loss
from catena.config import Settings
from catena.embedded import open_log
from catena.errors import ConfigError, StoreRefused
from catena.meta import keys
from catena.meta.sqlite import SqliteMeta
from catena.runtime import SystemClock, SystemEntropy
from catena.virtual_log.incarnation import Compared, Incarnation
from tests.backups import copy_sqlite
from tests.cli.conftest import Catena


@pytest.fixture
def restored(catena: Catena, tmp_path: Path) -> Path:
    """The folder of a log whose meta store has forgotten a topic."""
    folder = tmp_path / "log"
    catena("topic", "create", "kept")
    copy_sqlite(folder / "meta.db", tmp_path / "backup")
    catena("topic", "create", "lost")
    copy_sqlite(tmp_path / "backup", folder / "meta.db")
    return folder


def test_the_way_from_the_doctor_to_a_log_that_works(catena: Catena, restored: Path) -> None:
    refused = catena("topic", "create", "new")
    assert (refused.code, "the meta store was set back" in refused.err) == (3, True)
    assert "--accept-older-meta" in " ".join(catena("doctor").out.split())
    ran = catena("doctor", "--accept-older-meta", "--yes")
    assert ran.code == 0
    assert "loses, for good" in ran.out
    assert ran.out.splitlines()[-1].startswith("accepted, incarnation 3: start all nodes again")
    assert catena("doctor").code == 0
    assert catena("topic", "create", "new").code == 0
    assert [topic["name"] for topic in catena("topic", "list", "--json").json] == ["kept", "new"]


def test_nobody_is_asked_and_nothing_is_done_where_nobody_is(catena: Catena, restored: Path) -> None:
    ran = catena("doctor", "--accept-older-meta")
    assert (ran.code, "say --yes" in ran.err) == (2, True)
    assert catena("doctor").code == 3


def test_for_programs(catena: Catena, restored: Path) -> None:
    accepted = catena("doctor", "--accept-older-meta", "--yes", "--json").json
    assert (accepted["accepted"], accepted["incarnation"]) == (True, 3)
    assert catena("doctor", "--accept-older-meta", "--yes", "--json").json["accepted"] is False


def test_a_meta_store_that_was_not_set_back(catena: Catena) -> None:
    catena("topic", "create", "kept")
    ran = catena("doctor", "--accept-older-meta")
    assert (ran.code, ran.out) == (0, "there is nothing to accept: the meta store was not set back\n")


def test_no_log_is_made_by_it(catena: Catena, tmp_path: Path) -> None:
    ran = catena("doctor", "--accept-older-meta")
    assert (ran.code, "there is no log" in ran.err) == (2, True)
    assert list(tmp_path.iterdir()) == []


async def test_stores_that_hold_no_cluster(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="there is no log"):
        await look(Settings(data=str(tmp_path / "nothing")))
    with pytest.raises(StoreRefused, match="not of one cluster"):
        await look(Settings(meta="memory:", objects="memory:"))


async def test_producer_ids_that_were_forgotten_are_skipped(tmp_path: Path) -> None:
    async with open_log(Settings(data=str(tmp_path / "log"))) as log:
        await log.create_topic("t")
    copy_sqlite(tmp_path / "log" / "meta.db", tmp_path / "backup")
    async with open_log(Settings(data=str(tmp_path / "log"))) as log:
        await log.append("t", "lost")
    copy_sqlite(tmp_path / "backup", tmp_path / "log" / "meta.db")
    await accept(Settings(data=str(tmp_path / "log")))
    meta = SqliteMeta(tmp_path / "log" / "meta.db", SystemClock(), SystemEntropy())
    record = await meta.get(keys.PRODUCER_IDS)
    await meta.close()
    assert record is not None
    assert json.loads(record.value)["next"] == SKIPPED


def test_what_is_lost_is_said_with_times() -> None:
    said = "\n".join(loss(Compared(Incarnation(9, "", 86_400_000), Incarnation(5, "", 3_600_000))))
    assert "after about 1970-01-01 01:00:00 UTC" in said
    assert "1970-01-02 00:00:00 UTC" in said
    assert "OFFSET_OUT_OF_RANGE" in said
    assert "since its beginning" in "\n".join(loss(Compared(Incarnation(9), Incarnation())))
