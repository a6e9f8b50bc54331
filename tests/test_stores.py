"""From an address to a store, each of them real, and what is said of an address that is none."""

from __future__ import annotations

import threading
from pathlib import Path

import pytest

from catena.config import Settings
from catena.errors import CatenaError, ConfigError
from catena.meta.memory import MemoryMeta
from catena.meta.object_storage import ObjectMeta
from catena.meta.postgres import PostgresMeta
from catena.meta.sqlite import SqliteMeta
from catena.runtime import SystemClock, SystemEntropy
from catena.stores import Stores, addresses_of_objects, open_stores, s3_settings
from catena.testing.postgres_server import PostgresServer

CLOCK, ENTROPY = SystemClock(), SystemEntropy()


async def use(settings: Settings) -> type:
    """Write to both stores and read it back; returns the kind of the meta store."""
    async with open_stores(settings, CLOCK, ENTROPY) as stores:
        await _use(stores)
        return type(stores.meta_calls.store)


async def _use(stores: Stores) -> None:
    await stores.meta.put("llog/key", b"value")
    found = await stores.meta.get("llog/key")
    assert found is not None
    assert found.value == b"value"
    await stores.objects.put("key", [b"object"])
    assert (await stores.objects.get("key")).data == b"object"
    assert stores.requests.snapshot()["put"].requests >= 1
    assert stores.meta_calls.snapshot()["put"].requests == 1


async def test_the_embedded_default(tmp_path: Path) -> None:
    assert await use(Settings(data=str(tmp_path / "log"))) is SqliteMeta
    assert (tmp_path / "log" / "meta.db").exists()
    assert (tmp_path / "log" / "objects" / "key").read_bytes() == b"object"


@pytest.mark.parametrize(("meta", "kind"), [("memory:", MemoryMeta), ("objects:", ObjectMeta)])
async def test_metadata_elsewhere(tmp_path: Path, meta: str, kind: type) -> None:
    assert await use(Settings(data=str(tmp_path / "log"), meta=meta)) is kind
    assert not (tmp_path / "log" / "meta.db").exists()


async def test_named_paths(tmp_path: Path) -> None:
    await use(Settings(meta=f"sqlite:{tmp_path / 'm'}", objects=f"folder:{tmp_path / 'o'}"))
    assert (tmp_path / "m").is_file()
    assert (tmp_path / "o").is_dir()


async def test_postgres(postgres_server: PostgresServer) -> None:
    assert await use(Settings(meta=postgres_server.dsn, objects="memory:")) is PostgresMeta


def test_where_people_find_an_object(tmp_path: Path) -> None:
    folder = tmp_path / "a folder"
    found = {
        url: addresses_of_objects(Settings(objects=url))("llog/x")
        for url in (f"folder:{folder}", "s3://bucket/some/prefix?endpoint=http://h", "s3://bucket", "memory:")
    }
    assert list(found.values()) == [
        f"{folder.as_uri()}/llog/x",
        "s3://bucket/some/prefix/llog/x",
        "s3://bucket/llog/x",
        "memory:llog/x",
    ]


def test_an_s3_address() -> None:
    settings = s3_settings("s3://bucket/some/prefix/?endpoint=http://127.0.0.1:9000&region=eu-1&lists_as_tree=true")
    assert (settings.bucket, settings.prefix) == ("bucket", "some/prefix")
    assert (settings.endpoint, settings.region, settings.lists_as_tree) == ("http://127.0.0.1:9000", "eu-1", True)
    plain = s3_settings("s3://bucket")
    assert (plain.prefix, plain.endpoint, plain.region, plain.lists_as_tree) == ("", None, None, False)


@pytest.mark.parametrize(
    ("settings", "says"),
    [
        (Settings(objects="nfs:/data"), "setting objects: 'nfs:/data' is no object store; it may be folder:PATH"),
        (Settings(objects="folder:"), "setting objects"),
        (Settings(objects="/a/path"), "setting objects"),
        (Settings(objects="memory:x"), "setting objects"),
        (Settings(objects="s3://"), "bucket has no name"),
        (Settings(objects="s3://bucket?regoin=x"), "no parameter 'regoin'"),
        (Settings(objects="s3://bucket?secret_access_key=x"), "AWS_SECRET_ACCESS_KEY"),
        (Settings(objects="s3://key:secret@bucket"), "no credentials in the address"),
        (Settings(objects="s3://bucket?lists_as_tree=yes"), "lists_as_tree is true or false"),
        (Settings(objects="memory:", meta="oracle://host"), "setting meta: 'oracle://host' is no meta store"),
        (Settings(objects="memory:", meta="sqlite:"), "setting meta"),
        (Settings(objects="memory:", meta="mysql://user:secret@host"), "'mysql:...' is no meta store"),
    ],
)
async def test_an_address_that_is_none(settings: Settings, says: str) -> None:
    with pytest.raises(ConfigError) as refused:
        async with open_stores(settings, CLOCK, ENTROPY):
            pass
    assert says in str(refused.value)
    assert "secret@" not in str(refused.value)


async def test_what_was_opened_is_closed_when_the_rest_fails(tmp_path: Path) -> None:
    before = threading.active_count()
    with pytest.raises(ConfigError):
        async with open_stores(Settings(data=str(tmp_path), meta="nothing:"), CLOCK, ENTROPY):
            pass
    assert threading.active_count() == before


async def test_a_folder_that_can_not_be() -> None:
    with pytest.raises(CatenaError):
        async with open_stores(Settings(objects=f"folder:{__file__}/below", meta="memory:"), CLOCK, ENTROPY):
            pass
