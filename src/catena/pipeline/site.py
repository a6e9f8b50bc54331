"""What every job works on: the stores of a cluster, and the time and chance that come with them."""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import NamedTuple

from catena.loglets.diskless.records import IndexEntry, decode_index_entry
from catena.meta import keys
from catena.meta.base import SCAN_LIMIT, MetaStore
from catena.objects.base import ObjectStore
from catena.pipeline.settings import VacuumSettings
from catena.runtime import Clock, Entropy
from catena.types import Offset, TopicPartition
from catena.virtual_log.chain_store import ChainStore


class Site(NamedTuple):
    cluster_id: str
    meta: MetaStore
    objects: ObjectStore
    chains: ChainStore
    clock: Clock
    entropy: Entropy
    vacuum: VacuumSettings = VacuumSettings()
    """By which vacuum goes, here or elsewhere: jobs have to know what it would take."""

    async def index_entries(self, tp: TopicPartition, start: Offset) -> AsyncIterator[IndexEntry]:
        """Entries of the index from the one that may hold `start` on."""
        after, end = keys.index(tp, start), keys.after(keys.index_prefix(tp))
        while page := await self.meta.scan(after, end):
            for record in page:
                yield decode_index_entry(record.key, record.value)
            if len(page) < SCAN_LIMIT:
                return
            after = page[-1].key + "\0"


class Place(NamedTuple):
    """A partition, and the kind of its first link."""

    tp: TopicPartition
    kind: str
