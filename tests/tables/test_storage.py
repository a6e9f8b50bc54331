"""Where tables are, and whose they are."""

from __future__ import annotations

from pathlib import Path

import pytest

from catena.config import Settings
from catena.errors import ConfigError, StoreRefused
from catena.tables.columns import RAW
from catena.tables.storage import Storage
from tests.tables.world import TOPIC, World


def test_a_folder(tmp_path: Path) -> None:
    storage = Storage.of(Settings(data=str(tmp_path)))
    assert storage.uri("tables/delta/orders") == f"{tmp_path}/objects/tables/delta/orders"
    assert storage.catalog == f"sqlite:///{tmp_path}/tables.db"


def test_s3(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", "me")
    url = "s3://bucket/some/prefix?endpoint=http://127.0.0.1:1&region=r"
    storage = Storage.of(Settings(objects=url, meta="postgres://u:p@h/d"))
    assert storage.uri("tables/x") == "s3://bucket/some/prefix/tables/x"
    assert storage.delta_options["aws_allow_http"] == "true"
    assert storage.iceberg_properties["s3.access-key-id"] == "me"
    assert storage.catalog == "postgresql+psycopg2://u:p@h/d"


def test_a_catalog_of_its_own() -> None:
    settings = Settings(meta="objects:", objects="s3://bucket")
    assert Storage.of(settings).catalog == ""


def test_memory_is_seen_by_nobody_else() -> None:
    with pytest.raises(ConfigError, match="other programs"):
        Storage.of(Settings(objects="memory:"))


async def test_names(world: World) -> None:
    """The plain one, if it is free; whoever has one keeps it."""
    await world.create()
    topic = await world.topic()
    opener = world.driver(is_new=True).opener
    opened = await opener.open(topic, "delta")
    assert (opened.table.name, opened.letters.name) == (TOPIC, f"{TOPIC}__errors")
    await opened.table.create(RAW)
    opener = world.driver(is_new=True).opener
    assert (await opener.open(topic, "delta")).prefix == "tables/delta/orders"

    await world.log.delete_topic(TOPIC)
    await world.create()
    newer = await world.topic()
    second = await opener.open(newer, "delta")
    assert second.table.name == f"{TOPIC}-{newer.topic_id[:8]}"
    assert second.letters.name == f"{TOPIC}__errors", "no other has it"
    await second.table.create(RAW)
    keys = [info.key async for info in world.log.node.objects.list("tables/delta/orders/")]
    await world.log.node.objects.delete(keys)
    opener = world.driver(is_new=True).opener
    assert (await opener.open(newer, "delta")).table.name == second.table.name, "it does not move"


async def test_all_names_are_taken(world: World) -> None:
    await world.create()
    topic = await world.topic()
    await world.log.delete_topic(TOPIC)
    await world.create()
    other = await world.topic()
    opener = world.driver(is_new=True).opener
    owner = opener.owner_of(other)
    for name in (TOPIC, f"{TOPIC}-{topic.topic_id[:8]}", f"{TOPIC}-{topic.topic_id}"):
        await opener.committer(name, owner, "delta").create(RAW)
    with pytest.raises(StoreRefused, match="all names"):
        await opener.open(topic, "delta")


async def test_iceberg_needs_a_catalog(world: World) -> None:
    await world.create(format="iceberg")
    opener = world.driver(is_new=True).opener
    opener.storage = opener.storage._replace(catalog="")
    with pytest.raises(ConfigError, match=r"pipeline\.tables\.catalog"):
        await opener.open(await world.topic(), "iceberg")
