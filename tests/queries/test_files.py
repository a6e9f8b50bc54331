"""The object store as Arrow opens it: a folder, and a real bucket."""

from __future__ import annotations

from pathlib import Path

import pytest

from catena.config import load
from catena.objects.s3 import S3Objects
from catena.queries.files import open_files
from catena.runtime import SystemEntropy
from catena.tables.storage import Storage
from catena.testing.s3_server import ACCESS_KEY, BUCKET, SECRET_KEY, SeaweedServer


def test_a_folder(tmp_path: Path) -> None:
    (tmp_path / "objects" / "tables").mkdir(parents=True)
    (tmp_path / "objects" / "tables" / "a").write_bytes(b"1")
    files = open_files(Storage.of(load(data=str(tmp_path))))
    with files.system.open_input_file(f"{files.root}/tables/a") as found:
        assert found.read() == b"1"


async def test_a_bucket(s3_server: SeaweedServer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", ACCESS_KEY)
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", SECRET_KEY)
    prefix = f"files/{SystemEntropy().hex_id()}"
    await S3Objects(s3_server.settings(prefix)).put("tables/a", [b"1"])
    url = f"s3://{BUCKET}/{prefix}?endpoint={s3_server.endpoint}&region=us-east-1&lists_as_tree=true"
    files = open_files(Storage.of(load(data=str(tmp_path), objects=url)))
    with files.system.open_input_file(f"{files.root}/tables/a") as found:
        assert found.read() == b"1"
