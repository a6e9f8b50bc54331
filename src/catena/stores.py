"""From settings to open stores: the one place that knows which address means which backend.

Objects are counted next to the store and retried around that, so that each try counts. A store that others made is
asked at start whether it honours conditional writes, by one process for all that it starts; the folder and the memory
are ours, and known to.
Whatever was opened is closed in reverse order, also when a later step fails.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple
from urllib.parse import parse_qsl, urlsplit

from catena.config import Settings
from catena.errors import ConfigError
from catena.meta.base import MetaStore
from catena.meta.counted import CountedMeta
from catena.objects.base import ObjectStore
from catena.objects.counted import CountedObjects
from catena.objects.probe import probe
from catena.objects.retrying import RetryingObjects, RetrySettings
from catena.runtime import Clock, Disk, Entropy

if TYPE_CHECKING:
    from catena.objects.s3 import S3Settings

META_FORMS = "sqlite:PATH, postgres://USER@HOST/DATABASE, objects: or memory:"
OBJECTS_FORMS = "folder:PATH, s3://BUCKET/PREFIX?endpoint=URL&region=NAME or memory:"
PROBE_TRIES = 5
SETTLE_S = 0.05
"""After its last answer obstore's threads still let go of Python objects for an instant, and the process aborts if the
interpreter ends just then."""
S3_PARAMETERS = ("endpoint", "region", "lists_as_tree")


class Stores(NamedTuple):
    meta: MetaStore
    objects: ObjectStore
    requests: CountedObjects
    """What the object store has been asked so far."""
    meta_calls: CountedMeta
    """What the meta store has."""


@asynccontextmanager
async def open_stores(settings: Settings, clock: Clock, entropy: Entropy) -> AsyncIterator[Stores]:
    async with (
        open_objects(settings, clock, entropy) as (objects, requests),
        open_meta(settings, objects, clock, entropy) as meta,
    ):
        counted = CountedMeta(meta, clock)
        yield Stores(counted, objects, requests, counted)


@asynccontextmanager
async def open_objects(
    settings: Settings, clock: Clock, entropy: Entropy, was_probed: bool = False
) -> AsyncIterator[tuple[ObjectStore, CountedObjects]]:
    """`was_probed`: another process of the same job has asked this store already, and goes on only where it passed."""
    async with AsyncExitStack() as opened:
        requests = CountedObjects(await _open_objects(settings.objects_url, clock, entropy, opened), clock)
        objects = RetryingObjects(requests, clock, entropy)
        opened.push_async_callback(objects.close)
        if settings.objects_url.startswith("s3:") and not was_probed:
            # Less patient than later on: who has just given a wrong address should soon be told.
            await probe(RetryingObjects(requests, clock, entropy, RetrySettings(max_tries=PROBE_TRIES)), entropy)
        yield objects, requests


@asynccontextmanager
async def open_meta(
    settings: Settings, objects: ObjectStore, clock: Clock, entropy: Entropy
) -> AsyncIterator[MetaStore]:
    meta = _open_meta(settings.meta_url, objects, clock, entropy)
    try:
        yield meta
    finally:
        await meta.close()


async def _open_objects(url: str, clock: Clock, entropy: Entropy, opened: AsyncExitStack) -> ObjectStore:
    # Backends are imported when they are used: most processes use one, and some bring heavy libraries along.
    scheme, _, rest = url.partition(":")
    match scheme:
        case "folder" if rest:
            from catena.objects.folder import FolderObjects

            disk = Disk()
            opened.callback(disk.close)
            return await FolderObjects.open(Path(rest), disk, clock, entropy)
        case "s3" if rest.startswith("//"):
            from catena.objects.s3 import S3Objects

            opened.push_async_callback(clock.sleep, SETTLE_S)
            return S3Objects(s3_settings(url))
        case "memory" if not rest:
            from catena.objects.memory import MemoryObjects

            return MemoryObjects(clock)
        case _:
            raise ConfigError(f"setting objects: {_shown(url)} is no object store; it may be {OBJECTS_FORMS}")


def presigning(settings: Settings) -> Callable[[Sequence[str], float], Awaitable[Sequence[str]]] | None:
    """How addresses are made by which objects can be read for a while without credentials; None: not by this store."""
    if not settings.objects_url.startswith("s3:"):
        return None
    from catena.objects.s3 import S3Objects

    return S3Objects(s3_settings(settings.objects_url)).presign


def addresses_of_objects(settings: Settings) -> Callable[[str], str]:
    """From the key of an object to the address that people and tools find it at."""
    scheme, _, rest = settings.objects_url.partition(":")
    match scheme:
        case "s3":
            s3 = s3_settings(settings.objects_url)
            base = f"s3://{s3.bucket}/{s3.prefix}/" if s3.prefix else f"s3://{s3.bucket}/"
        case "folder":
            base = f"{Path(rest).absolute().as_uri()}/"
        case _:
            base = "memory:"
    return lambda key: base + key


def _open_meta(url: str, objects: ObjectStore, clock: Clock, entropy: Entropy) -> MetaStore:
    scheme, _, rest = url.partition(":")
    match scheme:
        case "sqlite" if rest:
            from catena.meta.sqlite import SqliteMeta

            return SqliteMeta(Path(rest), clock, entropy)
        case "postgres" | "postgresql" if rest.startswith("//"):
            from catena.meta.postgres import PostgresMeta

            return PostgresMeta(url, clock, entropy)
        case "objects" if not rest:
            from catena.meta.object_storage import ObjectMeta

            return ObjectMeta(objects, clock, entropy)
        case "memory" if not rest:
            from catena.meta.memory import MemoryMeta

            return MemoryMeta(clock)
        case _:
            raise ConfigError(f"setting meta: {_shown(url)} is no meta store; it may be {META_FORMS}")


def s3_settings(url: str) -> S3Settings:
    """Credentials are not taken from the address, which ends up in logs and process lists."""
    from catena.objects.s3 import S3Settings

    address = urlsplit(url)
    parameters = dict(parse_qsl(address.query, keep_blank_values=True))
    unknown = [name for name in parameters if name not in S3_PARAMETERS]
    if unknown:
        raise ConfigError(
            f"setting objects: an s3 address has no parameter {unknown[0]!r}, only {', '.join(S3_PARAMETERS)}; "
            "credentials come from AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY"
        )
    as_tree = parameters.get("lists_as_tree", "false")
    if as_tree not in ("true", "false"):
        raise ConfigError(f"setting objects: lists_as_tree is true or false, not {as_tree!r}")
    if "@" in address.netloc:
        raise ConfigError("setting objects: no credentials in the address; set AWS_ACCESS_KEY_ID and its secret")
    return S3Settings(
        bucket=address.netloc,
        prefix=address.path.strip("/"),
        endpoint=parameters.get("endpoint"),
        region=parameters.get("region"),
        lists_as_tree=as_tree == "true",
    )


def _shown(url: str) -> str:
    """Enough to recognize it by; the rest may hold a password."""
    return repr(url if "@" not in url else url.partition(":")[0] + ":...")
