"""Objects in a bucket of S3, or of a store that speaks its protocol, through obstore.

One call is one attempt: obstore's own retries are off, because they do not know which puts may be repeated; that is
decided in `catena.objects.retrying`. What the store answers is named in `catena.objects.s3_errors`.

A put is a single PutObject, never a multipart upload, so that conditions hold everywhere and no parts are left behind.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Sequence
from dataclasses import dataclass, field
from datetime import timedelta
from typing import TYPE_CHECKING

import obstore
from obstore.exceptions import BaseError
from obstore.store import S3Store

from catena.errors import ConfigError, Corrupt, StoreRefused
from catena.objects.base import Blob, ObjectInfo, Range, check_key
from catena.objects.s3_errors import Operation, name_error
from catena.types import ABSENT, ANY, Buffer, Buffers, ETag, Expect

if TYPE_CHECKING:
    from obstore import ObjectMeta, PutMode
    from obstore.store import S3Config

LIST_PAGE = 1_000
MAX_TREE_LISTING = 1_000_000
MAX_PREFIX_CHARS = 100
"""With the longest key and the slash between them it stays within S3's 1,024."""

_FAILURES = (BaseError, OSError)
"""What obstore raises: its own errors, and FileNotFoundError."""


@dataclass(frozen=True, slots=True, kw_only=True)
class S3Settings:
    """Where the bucket is. What is None comes from the usual AWS_* variables or the machine's role."""

    bucket: str
    prefix: str = ""
    endpoint: str | None = None
    region: str | None = None
    access_key_id: str | None = None
    secret_access_key: str | None = field(default=None, repr=False)
    session_token: str | None = field(default=None, repr=False)
    connect_timeout_ms: int = 5_000
    request_timeout_ms: int = 30_000
    lists_as_tree: bool = False
    """The store lists folder by folder (`a/b` before `a-b`), as SeaweedFS does, and not in byte order."""

    def __post_init__(self) -> None:
        if not self.bucket:
            raise ConfigError("the bucket has no name")
        if self.endpoint is not None and not self.endpoint.startswith(("http://", "https://")):
            raise ConfigError(f"the endpoint {self.endpoint!r} does not begin with https:// or http://")
        if self.prefix:
            try:
                check_key(self.prefix)
            except ValueError as error:
                raise ConfigError(f"the prefix {self.prefix!r} cannot stand before keys: {error}") from error
        if len(self.prefix) > MAX_PREFIX_CHARS:
            raise ConfigError(f"the prefix {self.prefix!r} is longer than {MAX_PREFIX_CHARS} characters")


class S3Objects:
    def __init__(self, settings: S3Settings) -> None:
        self._where = f"s3://{settings.bucket}/{settings.prefix}".rstrip("/")
        self._lists_as_tree = settings.lists_as_tree
        try:
            self._store = S3Store(
                settings.bucket,
                prefix=settings.prefix or None,
                config=_config(settings),
                client_options={
                    "allow_http": (settings.endpoint or "").startswith("http://"),
                    "connect_timeout": f"{settings.connect_timeout_ms}ms",
                    "timeout": f"{settings.request_timeout_ms}ms",
                },
                retry_config={"max_retries": 0},
            )
        except (BaseError, ValueError) as error:
            raise ConfigError(f"cannot use {self._where}: {error}") from error

    async def put(self, key: str, data: Buffers, expect: Expect | ETag = ANY) -> ETag:
        check_key(key)
        try:
            result = await obstore.put_async(self._store, key, data, mode=_mode(expect), use_multipart=False)
        except _FAILURES as error:
            raise name_error(error, Operation.PUT, self._where, key) from error
        return _etag(result["e_tag"], self._where)

    async def get(self, key: str) -> Blob:
        check_key(key)
        try:
            result = await obstore.get_async(self._store, key)
            data = await result.bytes_async()
        except _FAILURES as error:
            raise name_error(error, Operation.READ, self._where, key) from error
        return Blob(data.to_bytes(), _etag(result.meta["e_tag"], self._where))

    async def get_ranges(self, key: str, ranges: Sequence[Range]) -> list[Buffer]:
        check_key(key)
        wanted = [part for part in ranges if part.length]
        if not wanted:
            return [b"" for _ in ranges]
        starts, lengths = zip(*wanted, strict=True)
        try:
            parts = await obstore.get_ranges_async(self._store, key, starts=starts, lengths=lengths, coalesce=0)
        except _FAILURES as error:
            raise name_error(error, Operation.READ, self._where, key) from error
        for (start, length), part in zip(wanted, parts, strict=True):
            if len(part) != length:
                raise Corrupt(
                    f"object {key} ends at byte {start + len(part)}; {length} bytes from {start} were asked for"
                )
        found = iter(parts)
        return [memoryview(next(found)) if length else b"" for _, length in ranges]

    async def head(self, key: str) -> ObjectInfo:
        check_key(key)
        try:
            return self._info(await obstore.head_async(self._store, key))
        except _FAILURES as error:
            raise name_error(error, Operation.READ, self._where, key) from error

    def list(self, prefix: str, after: str = "") -> AsyncIterator[ObjectInfo]:
        return self._list_tree(prefix, after) if self._lists_as_tree else self._list_in_order(prefix, after)

    async def delete(self, keys: Sequence[str]) -> None:
        for key in keys:
            check_key(key)
        if keys:
            try:
                await obstore.delete_async(self._store, keys)
            except _FAILURES as error:
                raise name_error(error, Operation.DELETE, self._where, keys[0]) from error

    async def presign(self, keys: Sequence[str], valid_s: float) -> Sequence[str]:
        """Addresses by which whoever has them can read these objects for so long, without credentials."""
        try:
            return await obstore.sign_async(self._store, "GET", keys, timedelta(seconds=valid_s)) if keys else []
        except _FAILURES as error:
            raise name_error(error, Operation.READ, self._where, keys[0]) from error

    async def close(self) -> None:
        """Nothing to give back: idle connections end with the store."""

    async def _list_in_order(self, prefix: str, after: str) -> AsyncIterator[ObjectInfo]:
        last = ""
        async for info in self._list_folder(prefix, max(after, _just_below(prefix))):
            if info.key < last:
                raise StoreRefused(f"{self._where} lists {last} before {info.key}: set lists_as_tree for this store")
            last = info.key
            if info.key.startswith(prefix):
                yield info
            elif info.key > prefix:
                return

    async def _list_tree(self, prefix: str, after: str) -> AsyncIterator[ObjectInfo]:
        # A sibling that belongs before a whole subtree may come after it, so nothing is sure until all of it is seen.
        found: list[ObjectInfo] = []
        async for info in self._list_folder(prefix, ""):
            if info.key.startswith(prefix) and info.key > after:
                if len(found) == MAX_TREE_LISTING:
                    raise StoreRefused(
                        f"{self._where} has too much below {prefix!r} to be sorted here: list less of it"
                    )
                found.append(info)
        for info in sorted(found):
            yield info

    async def _list_folder(self, prefix: str, after: str) -> AsyncIterator[ObjectInfo]:
        """All below the last folder that `prefix` names (obstore takes whole parts only), as the store lists it."""
        folder = prefix[: prefix.rfind("/") + 1]
        pages = obstore.list(self._store, folder or None, offset=after or None, chunk_size=LIST_PAGE)
        try:
            async for page in pages:
                for meta in page:
                    yield self._info(meta)
        except _FAILURES as error:
            raise name_error(error, Operation.LIST, self._where, prefix) from error

    def _info(self, meta: ObjectMeta) -> ObjectInfo:
        modified_ms = int(meta["last_modified"].timestamp() * 1_000)
        return ObjectInfo(meta["path"], meta["size"], _etag(meta["e_tag"], self._where), modified_ms)


def _config(settings: S3Settings) -> S3Config:
    config: S3Config = {"conditional_put": "etag"}
    if settings.endpoint is not None:
        config["endpoint"] = settings.endpoint
    if settings.region is not None:
        config["region"] = settings.region
    if settings.access_key_id is not None:
        config["access_key_id"] = settings.access_key_id
    if settings.secret_access_key is not None:
        config["secret_access_key"] = settings.secret_access_key
    if settings.session_token is not None:
        config["session_token"] = settings.session_token
    return config


def _mode(expect: Expect | ETag) -> PutMode:
    if expect is ABSENT:
        return "create"
    if isinstance(expect, Expect):
        return "overwrite"
    return {"e_tag": expect}


def _etag(etag: str | None, where: str) -> ETag:
    if etag is None:
        raise StoreRefused(f"{where} gives its objects no etag, so nothing in it can be compared and set")
    return ETag(etag)


def _just_below(prefix: str) -> str:
    """A string above every key that is less than `prefix`, and below every key that starts with it.

    It need not be a key: `~` is above all characters of keys.
    """
    return prefix and f"{prefix[:-1]}{chr(ord(prefix[-1]) - 1)}~"
