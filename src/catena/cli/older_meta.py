"""`catena doctor --accept-older-meta`: what is lost with a meta store that was set back, and going on without it.

Producer ids are skipped first, then the loss is accepted. A crash in between leaves a meta store that is still behind,
and ids that nobody has: it is done again.
"""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from catena.broker.producer_ids import ProducerIds
from catena.cli.output import show_time
from catena.cli.running import has_log
from catena.config import Settings
from catena.errors import ConfigError, StoreRefused
from catena.runtime import SystemClock, SystemEntropy
from catena.stores import Stores, open_stores
from catena.virtual_log.cluster import find_in_bucket, find_in_meta
from catena.virtual_log.incarnation import Compared, Incarnation, accept_older_meta, compare


async def look(settings: Settings) -> Compared:
    async with _stores(settings) as stores:
        return await compare(stores.meta, stores.objects)


async def accept(settings: Settings) -> Incarnation:
    clock = SystemClock()
    async with _stores(settings) as stores:
        await ProducerIds(stores.meta, clock).skip_ids()
        return await accept_older_meta(stores.meta, stores.objects, clock, SystemEntropy())


def loss(compared: Compared) -> list[str]:
    in_bucket, in_meta = compared
    since = f"after about {show_time(in_meta.at_ms)}" if in_meta.number else "since its beginning"
    return [
        "The meta store is older than the object store. Who goes on with it loses, for good:",
        "",
        f"  - what was written {since},",
        f"    up to {show_time(in_bucket.at_ms)} at least: records, topics, configs, groups and their offsets.",
        "  - the offsets of these records: new ones get them. Nobody is given old bytes for them, but a consumer",
        "    that was beyond the restored end is told OFFSET_OUT_OF_RANGE, or goes on there once new records have",
        "    passed it, and misses those in between. Reset those that keep their offsets elsewhere, and start all",
        "    clients again.",
        "",
        "What was deleted, trimmed or tiered since is as it was before, and bytes may be gone that it needs: run",
        "`catena pipeline audit` afterwards. The bytes of what is lost stay in the object store until vacuum collects",
        "them; if you want to look into them, copy them before that. A newer backup of the meta store would lose less.",
        "",
    ]


@asynccontextmanager
async def _stores(settings: Settings) -> AsyncIterator[Stores]:
    """Those of one cluster that is there."""
    if not has_log(settings):
        raise ConfigError(f"there is no log in the folder {settings.data!r}: --data DIR names another one")
    async with open_stores(settings, SystemClock(), SystemEntropy()) as stores:
        in_meta, in_bucket = await find_in_meta(stores.meta), await find_in_bucket(stores.objects)
        if in_meta is None or in_bucket is None or in_meta.cluster_id != in_bucket.cluster_id:
            raise StoreRefused("the stores are not of one cluster: `catena doctor` says more")
        yield stores
