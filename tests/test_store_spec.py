from __future__ import annotations

import pickle
from pathlib import Path

import pytest

from catena.config import Settings
from catena.errors import ConfigError
from catena.objects.counted import KINDS
from catena.runtime import SystemClock, SystemEntropy
from catena.store_spec import StoreSpec, settings_of_log
from catena.stores import open_objects
from catena.testing.s3_server import ACCESS_KEY, BUCKET, SECRET_KEY, SeaweedServer

CLOCK, ENTROPY = SystemClock(), SystemEntropy()


async def test_a_folder_is_the_same_in_another_working_directory(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "here").mkdir()
    (tmp_path / "there").mkdir()
    monkeypatch.chdir(tmp_path / "here")
    sent = pickle.dumps(StoreSpec.of(Settings(data="log")))
    monkeypatch.chdir(tmp_path / "there")
    async with pickle.loads(sent)(CLOCK, ENTROPY) as (objects, counted):
        await objects.put("key", [b"object"])
        assert counted.snapshot()["put"].bytes == 6
    assert (tmp_path / "here" / "log" / "objects" / "key").read_bytes() == b"object"


def test_an_address_of_s3_stays_as_it_is() -> None:
    url = "s3://bucket/prefix?endpoint=http://127.0.0.1:9000"
    assert StoreSpec.of(Settings(objects=url)).objects_url == url


def test_memory_is_refused() -> None:
    with pytest.raises(ConfigError, match="setting objects: what is in the memory of one process"):
        StoreSpec.of(Settings(objects="memory:"))


async def test_a_store_is_asked_what_it_can_do_once_and_not_by_each_task(
    s3_server: SeaweedServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", ACCESS_KEY)
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", SECRET_KEY)
    url = f"s3://{BUCKET}/{ENTROPY.hex_id()}?endpoint={s3_server.endpoint}&region=us-east-1&lists_as_tree=true"
    settings = Settings(objects=url)
    async with open_objects(settings, CLOCK, ENTROPY) as (_, counted):
        assert counted.snapshot()["put"].requests >= 4
    async with StoreSpec.of(settings)(CLOCK, ENTROPY) as (objects, counted):
        assert {kind: counts.requests for kind, counts in counted.snapshot().items()} == dict.fromkeys(KINDS, 0)
        await objects.put("key", [b"object"])
        assert (await objects.get("key")).data == b"object"
        assert {kind: counts.requests for kind, counts in counted.snapshot().items() if counts.requests} == {
            "put": 1,
            "get": 1,
        }


def test_settings_of_a_log_that_is_there(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A typing error is told, and leaves nothing behind."""
    monkeypatch.chdir(tmp_path)
    with pytest.raises(ConfigError, match="there is no log in the folder 'nowhere': the option data names another"):
        settings_of_log(None, "nowhere")
    assert list(tmp_path.iterdir()) == []
    (tmp_path / "meta.db").touch()
    assert settings_of_log(None, str(tmp_path)).data == str(tmp_path)
    (tmp_path / "catena.toml").write_text('meta = "postgres://somewhere/db"')
    assert settings_of_log("catena.toml", None).meta == "postgres://somewhere/db"
