from __future__ import annotations

import pickle
from pathlib import Path

import pytest

from catena.config import Settings
from catena.errors import ConfigError
from catena.runtime import SystemClock, SystemEntropy
from catena.store_spec import StoreSpec

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
