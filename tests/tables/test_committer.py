"""Every format of tables keeps the contract, in a folder and on S3; and the rule by which changes may follow."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable
from pathlib import Path

import pytest

from catena.config import Settings
from catena.runtime import Disk, SystemClock, SystemEntropy
from catena.stores import open_objects
from catena.tables.committer import Change, Committer, Guards, Owner, guards_after, may_follow
from catena.tables.settings import TableFormat
from catena.tables.storage import Storage, TableOpener
from catena.testing.contracts.tables import TableContract
from catena.testing.s3_server import ACCESS_KEY, BUCKET, SECRET_KEY, SeaweedServer
from catena.types import TopicId

OWNER = Owner("orders", TopicId("1" * 32), 3)


def settings_on(store: str, folder: Path, request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> Settings:
    if store == "folder":
        return Settings(data=str(folder))
    server: SeaweedServer = request.getfixturevalue("s3_server")
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", ACCESS_KEY)
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", SECRET_KEY)
    place = f"{BUCKET}/tables/{SystemEntropy().hex_id()}"
    url = f"s3://{place}?endpoint={server.endpoint}&region=us-east-1&lists_as_tree=true"
    return Settings(data=str(folder), objects=url)


@pytest.fixture
async def opener(
    store: str, tmp_path: Path, request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch
) -> AsyncIterator[TableOpener]:
    settings = settings_on(store, tmp_path, request, monkeypatch)
    clock, entropy, disk = SystemClock(), SystemEntropy(), Disk()
    async with open_objects(settings, clock, entropy) as (objects, _):
        opener = TableOpener(Storage.of(settings), objects, disk, clock, entropy)
        yield opener
        await opener.close()
    disk.close()


@pytest.fixture
def open_table(opener: TableOpener, kind: TableFormat) -> Callable[[], Committer]:
    return lambda: opener.committer("orders", OWNER, kind)


@pytest.mark.parametrize("store", ["folder", pytest.param("s3", marks=pytest.mark.long)])
@pytest.mark.parametrize("kind", ["delta", "iceberg"])
class TestContract(TableContract):
    pass


BEFORE = Guards({0: 5, 1: 7}, 3, 2)


@pytest.mark.parametrize(
    ("change", "now", "may"),
    [
        (Change(progress={0: 6}), BEFORE, True),
        (Change(progress={0: 6}), BEFORE._replace(progress={0: 5, 1: 8}), False),
        (Change(progress={0: 6}), BEFORE._replace(letters=4), False),
        (Change(progress={0: 6}), BEFORE._replace(fence=3), False),
        (Change(letters=9), BEFORE._replace(letters=4), False),
        (Change(), BEFORE._replace(progress={0: 9}, letters=4), True),
        (Change(), BEFORE._replace(fence=3), False),
        (Change(fence=3), BEFORE._replace(progress={}), True),
        (Change(fence=3), BEFORE._replace(fence=3), False),
    ],
)
def test_what_may_follow(change: Change, now: Guards, may: bool) -> None:
    assert may_follow(BEFORE, now, change) is may


def test_guards_after() -> None:
    assert guards_after(BEFORE, Change(progress={1: 9, 2: 1}, fence=4)) == Guards({0: 5, 1: 9, 2: 1}, 3, 4)
