"""What `catena doctor` looks at, from the machine up to the records. A check that needs one that failed is left out.

Nothing is made or changed that stays: the stores are tried on keys of their own, which are deleted again.
"""

from __future__ import annotations

import os
import shutil
import statistics
import sys
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import AsyncExitStack
from pathlib import Path
from typing import Literal, NamedTuple, TypeAlias
from urllib.parse import urlsplit

from catena.cli.output import count, show_time
from catena.cli.running import advice_on, has_log, message_of
from catena.config import Settings
from catena.errors import CatenaError, Conflict, StoreRefused
from catena.meta import keys
from catena.meta.base import MetaStore
from catena.node import Node
from catena.objects.base import ObjectStore
from catena.objects.probe import probe
from catena.runtime import Clock, Entropy
from catena.stores import open_meta, open_objects
from catena.types import ABSENT
from catena.virtual_log.cluster import find_in_bucket, find_in_meta
from catena.virtual_log.incarnation import compare

OLDEST_PYTHON, NEWEST_PYTHON = (3, 11), (3, 14)
LITTLE_SPACE_BYTES = 1 << 30
NO_SPACE_BYTES = 64 << 20
TRIES = 5
SLOW_MS = 1_000
SKEW_MS = 60_000
PARTITIONS_READ = 200
ACCEPT = "--accept-older-meta"

Status: TypeAlias = Literal["ok", "warn", "fail"]


class Finding(NamedTuple):
    check: str
    status: Status
    found: str
    advice: str = ""


EMPTY = Finding("cluster", "ok", "both stores are empty: the first topic makes a new log here")


def check_python() -> Finding:
    version = ".".join(map(str, sys.version_info[:3]))
    if OLDEST_PYTHON <= sys.version_info[:2] <= NEWEST_PYTHON:
        return Finding("python", "ok", version)
    return Finding("python", "warn", version, "Catena is tested with Python 3.11 to 3.14")


def check_settings(load: Callable[[], Settings]) -> tuple[Finding, Settings | None]:
    try:
        settings = load()
    except CatenaError as error:
        return Finding("settings", "fail", message_of(error), "correct it there"), None
    found = f"objects in {_shown(settings.objects_url)}, meta in {_shown(settings.meta_url)}"
    return Finding("settings", "ok", found), settings


def check_data_folder(settings: Settings) -> Finding | None:
    """None if no store is in it."""
    if settings.meta and settings.objects:
        return None
    folder = Path(settings.data).absolute()
    place = next(path for path in (folder, *folder.parents) if path.exists())
    if not place.is_dir():
        return Finding("data folder", "fail", f"{place} is a file", "name a folder with --data DIR")
    if not os.access(place, os.W_OK | os.X_OK):
        return Finding("data folder", "fail", f"{place} can't be written to", "let this user write there")
    free = shutil.disk_usage(place).free
    found = f"{folder}, {free / 1e9:,.1f} GB free"
    if free < NO_SPACE_BYTES:
        return Finding("data folder", "fail", found, "free some space")
    if free < LITTLE_SPACE_BYTES:
        return Finding("data folder", "warn", found, "free some space soon")
    if not has_log(settings):
        return Finding(
            "data folder", "warn", f"there is no log in {folder} yet", "`catena topic create NAME` makes one"
        )
    return Finding("data folder", "ok", found)


async def check_stores(settings: Settings, clock: Clock, entropy: Entropy) -> AsyncIterator[Finding]:
    """The object store, the meta store, and what is in them."""
    async with AsyncExitStack() as opened:
        objects: ObjectStore
        meta: MetaStore

        async def look_at_objects() -> Finding:
            nonlocal objects
            objects, _ = await opened.enter_async_context(open_objects(settings, clock, entropy))
            return await _try_objects(objects, clock, entropy)

        async def look_at_meta() -> Finding:
            nonlocal meta
            meta = await opened.enter_async_context(open_meta(settings, objects, clock, entropy))
            return await _try_meta(meta, clock, entropy)

        for check, look in [
            ("object store", look_at_objects),
            ("meta store", look_at_meta),
            ("clock", lambda: _compare_clocks(meta, objects, clock, entropy)),
            ("cluster", lambda: _compare_clusters(meta, objects)),
            ("history", lambda: _compare_incarnations(meta, objects)),
            ("topics", lambda: _read_topics(settings, meta, objects, clock, entropy)),
        ]:
            try:
                finding = await look()
            except (CatenaError, OSError) as error:
                finding = Finding(check, "fail", message_of(error), advice_on(error))
            yield finding
            if finding.status == "fail" or finding is EMPTY:
                return


async def _try_objects(objects: ObjectStore, clock: Clock, entropy: Entropy) -> Finding:
    await probe(objects, entropy)
    key = f"probe/doctor-{entropy.hex_id()}"
    try:
        took_ms = await _median_ms(clock, lambda: objects.put(key, [b"?" * 1000]))
    finally:
        await objects.delete([key])
    return _timed("object store", f"honours conditional writes; a small put takes {took_ms:.1f} ms", took_ms)


async def _try_meta(meta: MetaStore, clock: Clock, entropy: Entropy) -> Finding:
    key = keys.DOCTOR + entropy.hex_id()
    version = first = await meta.put(key, b"", ABSENT)

    async def change() -> None:
        nonlocal version
        version = await meta.put(key, b"", version)

    try:
        took_ms = await _median_ms(clock, change)
        try:
            await meta.put(key, b"", first)
        except Conflict:
            pass
        else:
            raise StoreRefused("the meta store took a write that expected an old version; it can't be relied on")
    finally:
        await meta.delete_range(key, key + "\0")
    how = "in groups" if meta.can_transact else "one by one"
    return _timed("meta store", f"compares and sets {how}; one takes {took_ms:.1f} ms", took_ms)


async def _compare_clocks(meta: MetaStore, objects: ObjectStore, clock: Clock, entropy: Entropy) -> Finding:
    """With that of the object store, and with the time when the cluster was made."""
    key = f"probe/doctor-{entropy.hex_id()}"
    try:
        await objects.put(key, [b"?"])
        skew_ms = abs(clock.now_ms() - (await objects.head(key)).modified_ms)
    finally:
        await objects.delete([key])
    remedy = "set the clock of this machine: times of records and expiry of producers depend on it"
    cluster = await find_in_meta(meta)
    if cluster is not None and clock.now_ms() < cluster.created_at_ms - SKEW_MS:
        return Finding("clock", "fail", f"{show_time(clock.now_ms())}, before the log was made", remedy)
    if skew_ms > SKEW_MS:
        return Finding("clock", "warn", f"{skew_ms / 1000:,.0f} s away from that of the object store", remedy)
    return Finding("clock", "ok", show_time(clock.now_ms()))


async def _compare_clusters(meta: MetaStore, objects: ObjectStore) -> Finding:
    in_meta, in_bucket = await find_in_meta(meta), await find_in_bucket(objects)
    if in_meta is None and in_bucket is None:
        return EMPTY
    if in_meta is None or in_bucket is None:
        lacking = "meta store" if in_meta is None else "object store"
        found = f"the {lacking} is empty, and the other one is not"
        return Finding("cluster", "fail", found, f"restore the {lacking}, or name the right one")
    if in_meta.cluster_id != in_bucket.cluster_id:
        found = f"the meta store is of cluster {in_meta.cluster_id}, the object store of {in_bucket.cluster_id}"
        return Finding("cluster", "fail", found, "check which of the two addresses is wrong")
    return Finding("cluster", "ok", f"{in_meta.cluster_id}, format {in_meta.format}, both stores agree")


async def _compare_incarnations(meta: MetaStore, objects: ObjectStore) -> Finding:
    """Whether the meta store was set back; see `catena.virtual_log.incarnation`."""
    compared = await compare(meta, objects)
    if not compared.is_behind:
        return Finding("history", "ok", f"incarnation {compared.in_meta.shown}; the object store is not ahead of it")
    found = (
        f"the meta store is older than the object store, as after a restore: its incarnation is "
        f"{compared.in_meta.shown}, that of the object store {compared.in_bucket.shown}. Nodes are read-only"
    )
    advice = (
        "stop all nodes, restore a newer backup of the meta store, and start them again. If there is none, "
        f"`catena doctor {ACCEPT}` says what is lost, and goes on without it if you agree"
    )
    return Finding("history", "fail", found, advice)


async def _read_topics(
    settings: Settings, meta: MetaStore, objects: ObjectStore, clock: Clock, entropy: Entropy
) -> Finding:
    """Of the first partitions, the chain, the oldest record and the newest one can be read."""
    node = await Node.start(settings, meta, objects, clock, entropy)
    try:
        topics = await node.topics.list()
        partitions = [(topic.name, number) for topic in topics for number in range(topic.partitions)]
        for name, number in partitions[:PARTITIONS_READ]:
            log = await node.log(name, number)
            start, tail = await log.start(), await log.tail()
            if tail > start:
                await log.read(start, 1)
                await log.read(tail - 1, 1)
    finally:
        await node.close()
    read = "each" if len(partitions) <= PARTITIONS_READ else f"the first {PARTITIONS_READ}"
    held = f"{count(len(topics), 'topic')} with {count(len(partitions), 'partition')}"
    found = f"{held}; oldest and newest record of {read} can be read"
    return Finding("topics", "ok", found if topics else "there are none yet")


async def _median_ms(clock: Clock, work: Callable[[], Awaitable[object]]) -> float:
    times = []
    for _ in range(TRIES):
        started = clock.monotonic()
        await work()
        times.append((clock.monotonic() - started) * 1000)
    return statistics.median(times)


def _timed(check: str, found: str, took_ms: float) -> Finding:
    if took_ms > SLOW_MS:
        return Finding(check, "warn", found, "that is slow: look at the disk, the network, the server")
    return Finding(check, "ok", found)


def _shown(url: str) -> str:
    """Without user and password."""
    address = urlsplit(url)
    return url.replace(f"{address.netloc}", address.netloc.rpartition("@")[2], 1) if "@" in address.netloc else url
