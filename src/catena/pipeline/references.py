"""What is referred to, read in the order in which references move: so that none is missed while others work.

**WAL blobs.** A committed blob is named by `pending` in the control record, then by an index entry, which is written
before `pending` is replaced. The entry is deleted only after the chain has moved the boundary beyond it, and then the
records are in a segment and nobody needs the blob. So `pending` is read first and the index second: a blob that is in
neither was not committed when `pending` was read, or its records had been moved. In the other order a blob that is
materialized between the two reads would be seen by neither.

**Writes under way.** What an application writes is in blobs that its intent names (`virtual_log.intents`) until they
are appended to their logs; then `pending` and the index name them, and only then is the intent over. So intents are
read before all of that. One that is published later names blobs that are too young to be listed.

**`pending` below the boundary.** Without `transact` the last append stays in the control record until the next one,
even when tiering or a trim has taken it: then it names a blob that nobody needs. So the chain, read last, has a say:
what was pending and lies below its boundary is no reference. Boundaries only grow, so this can't become wrong later.
Nobody clears `pending` for that: a writer that does not know whether its append took place looks for it there. Who
reads by an older chain misses the blob, and reads the chain again; who writes it down late, by an older boundary,
leaves an entry below the boundary, where nobody looks.

**Segments and manifests.** The chain names the one manifest that counts, and the one job (`tiering`) that may replace
it. What that job has written, all of it, is referred to. A job that is not named any more can't finish, however long it
has slept: what it wrote is nobody's. A job that is named later writes under a new name, which is not in the listing,
and takes over segments only from the manifest that the chain named when it began; that is the one read here, or one
that follows from it. So it does not matter how fast jobs come and go after the chain was read.

**Manifests that are gone.** Between the reads of chain and manifest a job may finish and another vacuum may delete
the manifest. Then the chain names another one, which is read instead: the argument holds for that later chain alone.
If the chain still names the same, it is an error.

**What was replaced a moment ago** is referred to as well, since plans that were made before name it: `replaced` says
how that is known. The argument above does not need it, so manifests of that kind may be gone.

**Topics.** Records of topics are read before tombstones of deleted ones, since a tombstone is written before the record
says DELETED. A topic that is created, or gets partitions, later than this refers to nothing in the listing.

**Deleted topics** are forgotten a grace after they were deleted: what the meta store has of them goes, but for fences
and the tombstone.

- The fences, chain and control record of each partition, stay for good. A commit is one compare-and-set of the control
  record, and where there is none a writer takes the log for a new one: whoever has not looked at the topic since, for
  however long, would ack what nobody ever reads. The chain says the same to whoever reads, reconfigures or tiers: where
  there is none it is that of a topic that nobody has changed yet.
- The tombstone stays for `SWEPT_MS`, and as long as it does, each vacuum looks again: a writer or a job that has slept
  through all of it wakes up and writes the index entry, the producer or the handoff that it was about to write. Only
  ids with a tombstone are ever swept; one that is just being created, or that nothing tells of, has none.

Whatever can't be read or understood raises an error that names it. Nothing is deleted on doubt.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Collection, Sequence
from contextlib import suppress
from typing import NamedTuple

import msgspec
from msgspec import UNSET

from catena.errors import Conflict, Corrupt, ObjectMissing
from catena.formats import manifest as manifests
from catena.formats.manifest import Manifest
from catena.loglets.diskless.blobs import object_key
from catena.loglets.diskless.records import IndexEntry, decode_control
from catena.meta import keys
from catena.meta.base import SCAN_LIMIT, MetaStore, Record
from catena.pipeline.replaced import taken_at_ms, told
from catena.pipeline.site import Place, Site
from catena.pipeline.tier import load_manifest
from catena.runtime.tasks import map_bounded
from catena.types import Offset, TopicPartition
from catena.virtual_log.chain import Chain
from catena.virtual_log.intents import open_blobs
from catena.virtual_log.topics import TopicRecord, decode_topic

AT_ONCE = 16
"""Partitions that the meta store is asked about at the same time."""
CHUNK = 50_000
"""References that are handed over together."""
MAX_ATTEMPTS = 10
SWEPT_MS = 30 * 24 * 3_600_000
"""How long it is looked for what comes late to a topic that is forgotten. Later than this it does no harm either."""

_FENCES = ("/meta/chain", "/meta/control")


class Tombstone(msgspec.Struct, frozen=True, omit_defaults=True):
    topic: TopicRecord
    deleted_at_ms: int
    is_forgotten: bool = False


class Topics(NamedTuple):
    referring: list[TopicRecord]
    """Those that there are, those that are being deleted, and those that were deleted not long ago."""
    expired: list[TopicRecord]
    """Deleted so long ago that nobody can write to them any more; they are to be forgotten."""
    forgotten: list[TopicRecord]
    """They were before; something may have come late."""
    over: list[TopicRecord]
    """Of these, those whose tombstones have stayed for long enough."""


async def find_topics(meta: MetaStore, cutoff_ms: int) -> Topics:
    """Those that were deleted before the cutoff are expired."""
    topics = [decode_topic(record) for record in await _scan(meta, keys.TOPICS)]
    tombstones = [_decode_tombstone(record) for record in await _scan(meta, keys.DELETED)]
    referring = {topic.topic_id: topic for topic in topics if topic.state != "DELETED"}
    found = Topics([], [], [], [])
    for tombstone in tombstones:
        topic = tombstone.topic
        if topic.topic_id in referring:
            continue  # whoever deletes it is not done yet, whatever its tombstone says
        if tombstone.is_forgotten:
            found.forgotten.append(topic)
            if tombstone.deleted_at_ms < cutoff_ms - SWEPT_MS:
                found.over.append(topic)
        elif tombstone.deleted_at_ms < cutoff_ms:
            found.expired.append(topic)
        else:
            referring[topic.topic_id] = topic
    return found._replace(referring=list(referring.values()))


async def has_leftovers(meta: MetaStore, topic: TopicRecord) -> bool:
    """Whether there is more than fences of a topic that was forgotten."""
    prefix = f"{keys.ROOT}/{topic.topic_id}/"
    start, end = prefix, keys.after(prefix)
    while page := await meta.scan(start, end):
        if not all(record.key.endswith(_FENCES) for record in page):
            return True
        if len(page) < SCAN_LIMIT:
            break
        start = page[-1].key + "\0"
    return False


async def forget_topic(meta: MetaStore, topic: TopicRecord) -> None:
    """Delete what the meta store has of a topic that is expired, but for fences and tombstone, which says so then."""

    async def forget(number: int) -> None:
        tp = topic.partition(number)
        chain, control, prefix = keys.chain(tp), keys.control(tp), keys.partition(tp)
        for start, end in ((prefix, chain), (chain + "\0", control), (control + "\0", keys.after(prefix))):
            await meta.delete_range(start, end)

    await map_bounded(AT_ONCE, forget, range(topic.partitions))
    record = await meta.get(keys.deleted(topic.topic_id))
    if record is not None and not (tombstone := _decode_tombstone(record)).is_forgotten:
        with suppress(Conflict):  # another vacuum is done with it as well
            said = msgspec.structs.replace(tombstone, is_forgotten=True)
            await meta.put(record.key, msgspec.json.encode(said), record.version)


class References:
    """Of partitions, handed to `take` as keys of objects, in chunks; some may come more than once."""

    def __init__(
        self, site: Site, take: Callable[[Collection[str]], Awaitable[None]], replaced_since_ms: int = 0
    ) -> None:
        """What was replaced before `replaced_since_ms` is not referred to any more."""
        self._site = site
        self._take = take
        self._replaced_since_ms = replaced_since_ms
        self._found: set[str] = set()

    async def read_writes(self) -> None:
        """What writes under way refer to. MUST be done before the first partition is read."""
        self._found |= await open_blobs(self._site.meta)
        await self._hand_over()

    async def read(self, places: Sequence[Place]) -> None:
        """All of them have been taken when this returns."""
        await map_bounded(AT_ONCE, self._read_partition, places)
        await self._hand_over()

    async def _read_partition(self, place: Place) -> None:
        """The order of the three is what makes it safe."""
        pending = await self._read_pending(place.tp)
        await self._read_index(place.tp)
        boundary = await self._read_chain(place)
        self._found.update(_blob_of(place.tp, entry) for entry in pending if entry.end_offset >= boundary)

    async def _read_pending(self, tp: TopicPartition) -> Sequence[IndexEntry]:
        record = await self._site.meta.get(keys.control(tp))
        control = decode_control(record.key, record.value) if record is not None else None
        return control.pending.entries if control is not None and control.pending is not None else ()

    async def _read_index(self, tp: TopicPartition) -> None:
        async for entry in self._site.index_entries(tp, 0):
            self._found.add(_blob_of(tp, entry))
            if len(self._found) >= CHUNK:
                await self._hand_over()

    async def _read_chain(self, place: Place) -> Offset:
        """What the chain names is found; returns its boundary."""
        tp, missing = place.tp, ""
        for _ in range(MAX_ATTEMPTS):
            chain = (await self._site.chains.load(tp, place.kind)).chain
            if chain.tiering is not None:
                await self._add_job(tp, chain.tiering)
            if chain.tiered is None:
                return chain.boundary
            key = _manifest_of(tp, chain)
            try:
                manifest = await load_manifest(self._site, tp, chain)
            except ObjectMissing:
                if chain.deleted:
                    return chain.boundary  # vacuumed before; nobody reads it any more
                if key == missing:
                    break
                missing = key
                continue
            assert manifest is not None
            self._add_manifest(key, manifest)
            if taken_at_ms(chain) >= self._replaced_since_ms:
                self._add_blobs(manifest)
            await self._read_replaced(chain, manifest)
            return chain.boundary
        raise ObjectMissing(missing)

    async def _read_replaced(self, chain: Chain, manifest: Manifest) -> None:
        for key, at_ms in told(chain, manifest):
            if at_ms < self._replaced_since_ms:
                continue
            with suppress(ObjectMissing):  # a vacuum whose clock is ahead has let go of it
                was = manifests.decode((await self._site.objects.get(key)).data, key)
                self._add_manifest(key, was)
                self._add_blobs(was)

    def _add_manifest(self, key: str, manifest: Manifest) -> None:
        self._found.add(key)
        self._found.update(segment.key for segment in manifest.segments)

    def _add_blobs(self, manifest: Manifest) -> None:
        self._found.update(() if manifest.blobs is UNSET else manifest.blobs)

    async def _add_job(self, tp: TopicPartition, job: str) -> None:
        """What it has written so far; what it will write is too young to be in the listing."""
        self._found.add(keys.manifest(tp, job))
        async for info in self._site.objects.list(f"{keys.segment_prefix(tp)}{job}/"):
            self._found.add(info.key)

    async def _hand_over(self) -> None:
        found, self._found = self._found, set()
        if found:
            await self._take(found)


async def _scan(meta: MetaStore, prefix: str) -> list[Record]:
    records: list[Record] = []
    start, end = prefix, keys.after(prefix)
    while page := await meta.scan(start, end):
        records += page
        if len(page) < SCAN_LIMIT:
            break
        start = page[-1].key + "\0"
    return records


def _blob_of(tp: TopicPartition, entry: IndexEntry) -> str:
    key = object_key(entry.data_key)
    if "://" in key:
        raise Corrupt(f"{tp}: the index entry of offset {entry.end_offset} names {key}, which is no place we know")
    return key


def _manifest_of(tp: TopicPartition, chain: Chain) -> str:
    key = chain.tiered.params.get("manifest") if chain.tiered is not None else None
    if not isinstance(key, str):
        raise Corrupt(f"meta record {keys.chain(tp)}: its tiered link names no manifest")
    return key


def _decode_tombstone(record: Record) -> Tombstone:
    try:
        return msgspec.json.decode(record.value, type=Tombstone)
    except msgspec.MsgspecError as error:
        raise Corrupt(f"meta record {record.key} can't be read: {error}") from error
