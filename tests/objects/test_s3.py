"""S3 keeps the contract, on a real server; what the server refuses is named with what to do about it."""

from __future__ import annotations

from dataclasses import replace

import pytest

from catena.errors import ConfigError, StoreRefused
from catena.objects.base import ObjectStore, Range
from catena.objects.linked import LinkedObjects
from catena.objects.s3 import S3Objects, S3Settings
from catena.runtime import SystemEntropy
from catena.testing.contracts.objects import ObjectStoreContract, list_keys
from catena.testing.s3_server import SeaweedServer
from catena.types import ABSENT


@pytest.fixture
def settings(s3_server: SeaweedServer) -> S3Settings:
    return s3_server.settings(f"contract/{SystemEntropy().hex_id()}")


class TestS3Objects(ObjectStoreContract):
    @pytest.fixture
    def store(self, settings: S3Settings) -> ObjectStore:
        return S3Objects(settings)

    @pytest.fixture
    def second_store(self, settings: S3Settings) -> ObjectStore:
        return S3Objects(settings)


async def test_a_prefix_keeps_stores_in_one_bucket_apart(settings: S3Settings) -> None:
    first = S3Objects(replace(settings, prefix=f"{settings.prefix}/first"))
    second = S3Objects(replace(settings, prefix=f"{settings.prefix}/second"))
    await first.put("a/b", [b"1"])
    await second.put("a/b", [b"2"], ABSENT)
    assert (await first.get("a/b")).data == b"1"
    assert await list_keys(S3Objects(settings), "") == ["first/a/b", "second/a/b"]
    assert await list_keys(second, "") == ["a/b"]


async def test_whoever_has_a_link_can_read_the_object_and_nothing_else(settings: S3Settings) -> None:
    store = S3Objects(settings)
    await store.put("a/b", [b"0123456789"])
    await store.put("a/c", [b"0123456789"])
    (link,) = await store.presign(["a/b"], 60.0)
    assert settings.secret_access_key is not None
    assert settings.secret_access_key not in link
    for key, words in (("a/b", ""), ("a/c", "its link is not valid, or not any more")):
        objects = LinkedObjects({key: link.replace("a/b", key)})
        try:
            if words:
                with pytest.raises(StoreRefused, match=words):
                    await objects.get(key)
            else:
                assert (await objects.get(key)).data == b"0123456789"
                assert await objects.get_ranges(key, [Range(2, 3)]) == [b"234"]
        finally:
            await objects.close()
    assert await store.presign([], 60.0) == []


async def test_a_listing_streams_where_the_store_is_in_order(settings: S3Settings) -> None:
    store = S3Objects(replace(settings, lists_as_tree=False))
    keys = ["a", "b/1", "b/11", "b/2", "c/1", "d"]
    for key in keys:
        await store.put(key, [b"1"])
    assert await list_keys(store, "") == keys
    assert await list_keys(store, "b/1") == ["b/1", "b/11"]
    assert await list_keys(store, "b", after="b/1") == ["b/11", "b/2"]


async def test_a_wrong_order_is_noticed(settings: S3Settings) -> None:
    store = S3Objects(replace(settings, lists_as_tree=False))
    for key in ("a-b", "a/b"):
        await store.put(key, [b"1"])
    with pytest.raises(StoreRefused, match="lists a/b before a-b: set lists_as_tree"):
        await list_keys(store, "")


async def test_a_bucket_that_is_not_there_is_refused(settings: S3Settings) -> None:
    store = S3Objects(replace(settings, bucket="no-such-bucket"))
    for call in (store.put("a", [b"1"]), store.put("a", [b"1"], ABSENT), store.get("a"), list_keys(store, "")):
        with pytest.raises(StoreRefused, match="create the bucket"):
            await call


async def test_wrong_credentials_are_refused(settings: S3Settings) -> None:
    with pytest.raises(StoreRefused, match="check the secret access key"):
        await S3Objects(replace(settings, secret_access_key="wrong")).put("a", [b"1"])
    with pytest.raises(StoreRefused, match="check the access key id"):
        await S3Objects(replace(settings, access_key_id="nobody")).get("a")


@pytest.mark.parametrize(
    "wrong", [{"bucket": ""}, {"endpoint": "localhost:9000"}, {"prefix": "a/"}, {"prefix": "a" * 101}]
)
def test_settings_that_make_no_sense_are_named(wrong: dict[str, str]) -> None:
    (name,) = wrong
    with pytest.raises(ConfigError, match=f"the {name} "):
        S3Settings(**{"bucket": "catena", **wrong})  # type: ignore[arg-type]


def test_a_connection_that_cannot_be_is_named() -> None:
    with pytest.raises(ConfigError, match="cannot use s3://catena"):
        S3Objects(S3Settings(bucket="catena", connect_timeout_ms=-1))


def test_secrets_are_not_shown(settings: S3Settings) -> None:
    assert settings.secret_access_key is not None
    assert settings.secret_access_key not in repr(replace(settings, session_token=settings.secret_access_key))
