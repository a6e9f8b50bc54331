"""The object store as Arrow opens it, to read the files of tables from it."""

from __future__ import annotations

import os
from typing import NamedTuple
from urllib.parse import urlsplit

from pyarrow import fs

from catena.tables.storage import Storage


class Files(NamedTuple):
    system: fs.FileSystem
    root: str


def open_files(storage: Storage) -> Files:
    if not storage.root.startswith("s3://"):
        return Files(fs.LocalFileSystem(), storage.root)
    given = storage.iceberg_properties
    endpoint = urlsplit(given.get("s3.endpoint", ""))
    system = fs.S3FileSystem(
        access_key=given.get("s3.access-key-id"),
        secret_key=given.get("s3.secret-access-key"),
        session_token=os.environ.get("AWS_SESSION_TOKEN") if "s3.access-key-id" in given else None,
        endpoint_override=endpoint.netloc or None,
        scheme=endpoint.scheme or "https",
        region=given.get("s3.region"),
    )
    return Files(system, storage.root.removeprefix("s3://"))
