"""Commit a write: publish its intent, then make what its tasks have stored a part of the logs; finish those of others.

The steps, and what a crash at each of them leaves, are in `virtual_log.intents`. Here is what is done in the fourth:
the runs of a partition are appended one after the other, in the order of tasks and their blobs; partitions beside each
other. Nobody sees a run before that, so tasks that fail leave nothing visible. A reader may see a part of a write while
it goes on: it is made of appends, and is no transaction.

**Exactly once.** The batches of a blob have the stamp of a producer (`stamp_of`) that has no others of this epoch in a
log, and logs take what they have not seen: whoever appends a run again is told where it is. That holds for as long as a
log remembers a producer, a day. So a run is handed over with a limit, `Stored.not_after_ms`: half a day after it was
known to be in no log, which the intent's own time tells at first. Past it the log refuses, at the very moment at which
it would look for the producer; then we look ourselves, through the log from where it ended when the write began, and go
on with a new limit. A driver that slept, for however long, between any two steps appends nothing twice. (The first
design was to read the intent again after each refused commit; between that and the commit there is a moment for sleep,
and the log's own clock leaves none.)

**The stamp** is made of application, task and blob, and its epoch of the version: so an application that writes for
ever leaves one producer in each log for each of its blobs, and not one for each blob of each version; and a driver that
comes with an older version than the log has seen is fenced there, too.

**Topics that are deleted** meanwhile are left out: what was written to them would be gone as well.

**Blobs must be young** when the intent is published: vacuum goes by their age until it sees the intent. That is looked
at again once it is published, and only then is it confirmed.
"""

from __future__ import annotations

import functools
import hashlib
import logging
from collections.abc import Mapping, Sequence
from typing import NamedTuple

from catena.errors import (
    Contended,
    OutcomeUnknown,
    ProducerFenced,
    Rejected,
    RetryLater,
    StaleView,
    UnknownPartition,
    UnknownTopic,
)
from catena.formats.record_batch import parse_header
from catena.loglets.base import Stored, spanning_header
from catena.loglets.producers import EXPIRY_MS
from catena.node import Node
from catena.objects.base import ObjectStore, Range
from catena.runtime import Clock, Entropy
from catena.runtime.tasks import map_bounded
from catena.types import Buffer, Offset, TopicId
from catena.virtual_log.intents import Body, Done, Intent, Intents, PartitionTail, StoredBlob, StoredRun, WriteHead
from catena.virtual_log.log import VirtualLog
from catena.virtual_log.topics import TopicRecord
from catena.virtual_log.vacuum_grace import published_grace_ms

log = logging.getLogger(__name__)

AT_ONCE = 32
MAX_TURNS = 100
"""How many writes of the same application one call finishes."""
MAX_TRIES = 12
FIRST_PAUSE_S = 0.05
LONGEST_PAUSE_S = 5.0
REMEMBERED_MS = EXPIRY_MS // 2
READ_BYTES = 8 << 20
EPOCHS = 1 << 15
ID_BITS = 62


class Stamp(NamedTuple):
    producer_id: int
    epoch: int


def stamp_of(app: str, version: int, task: int, blob: int) -> Stamp:
    """Of the blob with this number of this task. Nodes give out small ids, so bit 62 tells these apart."""
    name = f"{app}\0{version // EPOCHS}\0{task}\0{blob}".encode("utf-8", "surrogatepass")
    number = int.from_bytes(hashlib.blake2b(name, digest_size=8).digest(), "big") % (1 << ID_BITS)
    return Stamp(1 << ID_BITS | number, version % EPOCHS)


class Written(NamedTuple):
    """What tasks have stored, in the order of the tasks."""

    topics: Mapping[TopicId, str]
    blobs: Sequence[StoredBlob]


class _Place(NamedTuple):
    topic_id: TopicId
    partition: int


class _Piece(NamedTuple):
    blob: StoredBlob
    run: StoredRun


GRACES = 4
"""Blobs are committed within this part of vacuum's grace; half of that is for clocks that differ."""


class Adopter:
    """For the writes of one application."""

    def __init__(self, node: Node, entropy: Entropy, app: str, max_blob_age_ms: int, forget: bool = False) -> None:
        """`forget`: the application is this one call, and nobody comes again for it."""
        self._node = node
        self._clock: Clock = node.clock
        self._entropy = entropy
        self._app = app
        self._max_blob_age_ms = max_blob_age_ms
        self._forget = forget
        self._intents = Intents(node.meta, node.clock, entropy)

    async def commit(self, version: int, written: Written) -> None:
        """Return once this version is over: by what was written now, or by what another attempt had begun with."""
        mine: Body | None = None
        for _ in range(MAX_TURNS):
            head = await self._intents.find(self._app)
            if head.open is not None:
                await self._finish(head.open)
                continue
            if head.done >= version or not written.blobs:
                return
            mine = mine or await self._body(written)
            begun = await self._intents.begin(self._app, version, mine, self._forget)
            if isinstance(begun, Done):
                return
            if await self._finish(begun) and begun.version >= version:
                return
            mine = None
        raise Contended(f"others write as {self._app!r} all the time")

    async def find(self) -> WriteHead:
        """How far the application's writes are."""
        return await self._intents.find(self._app)

    async def finish_open(self, older_than_ms: int) -> bool | None:
        """Finish the write that is under way, if it was begun before this time: True; False: it was abandoned, or is
        over by now; None: there is none."""
        head = await self.find()
        if head.open is None or head.open.created_at_ms >= older_than_ms:
            return None
        return await self._finish(head.open)

    async def _body(self, written: Written) -> Body:
        """Everything is checked before anything becomes visible."""
        age_ms, max_age_ms = self._age_ms(written.blobs), await self._max_age_ms()
        if age_ms > max_age_ms:
            raise Rejected(
                f"the first records of this write were stored {age_ms // 1000} s ago, and have to be committed within "
                f"{max_age_ms // 1000} s, a quarter of the setting pipeline.vacuum.grace_ms, here or of a vacuum that "
                "has run: nothing was written; write less at once, or set a longer grace"
            )
        places = list(dict.fromkeys(_Place(run.topic_id, run.partition) for blob in written.blobs for run in blob.runs))
        topics = await self._find_topics(written.topics)
        for topic_id, number in places:
            topic = topics.get(topic_id)
            if topic is None:
                raise UnknownTopic(written.topics[topic_id])
            if not 0 <= number < topic.partitions:
                raise UnknownPartition(topic.name, number, topic.partitions)

        async def tail(place: _Place) -> Offset:
            return await self._node.open_log(topics[place.topic_id], place.partition).tail()

        tails = await map_bounded(AT_ONCE, tail, places)
        return Body(
            dict(written.topics),
            tuple(PartitionTail(*place, tail) for place, tail in zip(places, tails, strict=True)),
            tuple(written.blobs),
        )

    async def _find_topics(self, names: Mapping[TopicId, str]) -> dict[TopicId, TopicRecord]:
        """Those that are still what they were; another one may have got a name."""

        async def find(name: str) -> TopicRecord | None:
            try:
                return await self._node.topics.get(name)
            except UnknownTopic:
                return None

        found = await map_bounded(AT_ONCE, find, list(names.values()))
        return {topic.topic_id: topic for topic in found if topic is not None and topic.topic_id in names}

    async def _max_age_ms(self) -> int:
        """By our own settings, and by those of whoever vacuums."""
        published_ms = await published_grace_ms(self._node.meta)
        return self._max_blob_age_ms if published_ms is None else min(self._max_blob_age_ms, published_ms // GRACES)

    def _age_ms(self, blobs: Sequence[StoredBlob]) -> int:
        return self._clock.now_ms() - min(blob.created_at_ms for blob in blobs)

    async def _finish(self, intent: Intent) -> bool:
        """False: it was abandoned, or is not the one that is open any more."""
        body = await self._intents.body(self._app, intent)
        if body is None:
            if not intent.is_confirmed:
                await self._intents.abandon(self._app, intent)
            return False
        if not intent.is_confirmed:
            if self._age_ms(body.blobs) > await self._max_age_ms():
                await self._intents.abandon(self._app, intent)
                return False
            if not await self._intents.confirm(self._app, intent):
                return False
        topics = await self._find_topics(body.topics)
        tails = {_Place(each.topic_id, each.partition): each.tail for each in body.tails}
        pieces: dict[_Place, list[_Piece]] = {}
        for blob in body.blobs:
            for run in blob.runs:
                pieces.setdefault(_Place(run.topic_id, run.partition), []).append(_Piece(blob, run))

        async def adopt(place: _Place) -> None:
            topic = topics.get(place.topic_id)
            if topic is None:
                log.warning("topic %s was deleted while it was written to", body.topics[place.topic_id])
                return
            partition = self._node.open_log(topic, place.partition)
            await _Partition(partition, self._node.objects, self._clock, tails[place]).adopt(intent, pieces[place])

        try:
            await map_bounded(AT_ONCE, adopt, list(pieces))
        except ProducerFenced:
            if (await self._intents.find(self._app)).done < intent.version:
                raise
            return True  # a later version has followed: this one was finished by others
        await self._intents.finish(self._app, intent, self._forget)
        return True


class _Partition:
    """One partition's part in a write."""

    def __init__(self, partition: VirtualLog, objects: ObjectStore, clock: Clock, tail: Offset) -> None:
        self._log = partition
        self._objects = objects
        self._clock = clock
        self._tail = tail

    async def adopt(self, intent: Intent, pieces: Sequence[_Piece]) -> None:
        not_after_ms = intent.created_at_ms + REMEMBERED_MS
        left = list(pieces)
        tries = 0
        while left:
            try:
                await self._log.append(self._stored(left[0], not_after_ms))
            except UnknownTopic:
                log.warning("topic %s was deleted while it was written to", self._log.tp.topic)
                return
            except StaleView:
                tries += 1
                if tries == MAX_TRIES:
                    raise
                began_ms = self._clock.now_ms()
                found = await self._look(left)
                left = [piece for piece in left if _stamp(piece) not in found]
                not_after_ms = began_ms + REMEMBERED_MS
            except (RetryLater, OutcomeUnknown) as error:
                # An unknown outcome is settled by doing it again: the log knows the stamp if it took place.
                tries += 1
                if tries == MAX_TRIES:
                    raise
                log.info("%s: tried again: %s", self._log.tp, error)
                await self._clock.sleep(min(FIRST_PAUSE_S * 2**tries, LONGEST_PAUSE_S))
            else:
                left.pop(0)
                tries = 0

    def _stored(self, piece: _Piece, not_after_ms: int) -> Stored:
        blob, run = piece
        header = spanning_header(run.count, run.length, run.max_timestamp, *_stamp(piece))
        fetch = functools.partial(_fetch, self._objects, blob.key, run)
        return Stored(header, blob.key, run.at, blob.created_at_ms, not_after_ms, fetch)

    async def _look(self, pieces: Sequence[_Piece]) -> set[Stamp]:
        """Which of them are in the log. Raises OutcomeUnknown if what would tell was trimmed."""
        wanted = {_stamp(piece) for piece in pieces}
        found: set[Stamp] = set()
        end = await self._log.tail()
        start = await self._log.start()
        if start > self._tail:
            raise self._cannot_tell(f"was trimmed up to {start}")
        at, is_whole = self._tail, True
        while at < end and wanted - found:
            batches = await self._log.read(at, READ_BYTES)
            for batch in batches:
                header = parse_header(batch.data)
                stamp = Stamp(header.producer_id, header.producer_epoch)
                if stamp in wanted:
                    found.add(stamp)
                is_whole = is_whole and batch.offset <= at and header.record_count == header.count
                at = batch.end
            if not batches:
                break
        if wanted - found and not is_whole:
            raise self._cannot_tell("was compacted")
        return found

    def _cannot_tell(self, what: str) -> OutcomeUnknown:
        return OutcomeUnknown(
            f"{self._log.tp}: a write that began long ago is to be finished, and the log {what} since then: nothing "
            f"tells whether the write's records, from offset {self._tail} on, had come in. Compare the topic with what "
            "was written, and go on with another txnAppId"
        )


def _stamp(piece: _Piece) -> Stamp:
    return Stamp(piece.blob.producer_id, piece.blob.producer_epoch)


async def _fetch(objects: ObjectStore, key: str, run: StoredRun) -> Buffer:
    (data,) = await objects.get_ranges(key, [Range(run.at, run.length)])
    return data
