"""What a task does: rows become record batches, batches go into blobs, blobs into the object store. Nobody sees them.

    rows -> partitions (columns.partitioning) -> gather -> batches (columns.encode) -> blob -> put

A blob is what a node would write: the batches of a partition stand together. It is sent when so many bytes of rows have
been gathered, so a task holds little in memory, and partitions get batches that are worth reading. Its batches carry
the stamp that `adopting` gives it, with sequence numbers from 0 on in each partition.

Topics are as the driver saw them when the write was planned. Their configs are obeyed as a node does: the compression
and size of batches, the times that are allowed, and whose time counts; where that is the time of the append, it is here
that of this task.

Crash at any step: blobs that are stored are orphans, which vacuum collects. A put of unknown outcome is done again
under a new name, for the same reason.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, NamedTuple

from catena.columns import schema
from catena.columns.encode import MAX_BATCH_BYTES, Producer, encode
from catena.columns.partitioning import join, route
from catena.errors import BatchTooLarge, CatenaError, Conflict, OutcomeUnknown, Rejected, StoreUnavailable, UnknownTopic
from catena.formats import wal_blob
from catena.formats.compression import Compression
from catena.formats.recompress import stamp_append_time, timestamp_fault
from catena.formats.record_batch import parse_header
from catena.meta import keys
from catena.objects.base import ObjectStore
from catena.runtime import Clock, Entropy
from catena.source.adopting import Stamp, stamp_of
from catena.types import ABSENT, Buffers, TopicId, TopicPartition
from catena.virtual_log.intents import StoredBlob, StoredRun
from catena.virtual_log.topic_configs import TopicSettings

if TYPE_CHECKING:
    import pyarrow as pa

BLOB_BYTES = 8 << 20
"""Of rows, before they are compressed. A run is read as one piece, so none is larger than those of nodes."""
PUT_ATTEMPTS = 5
COLUMNS = (schema.KEY, schema.VALUE, schema.HEADERS, schema.TOPIC, schema.PARTITION, schema.TIMESTAMP)
"""That are looked at; the value has to be there."""


class TopicPlan(NamedTuple):
    topic_id: TopicId
    partitions: int
    settings: TopicSettings


class WritePlan(NamedTuple):
    """What the driver has found out for all tasks."""

    cluster_id: str
    topic: str | None
    """None: a column names it."""
    topics: Mapping[str, TopicPlan]


class TaskWriter:
    """Of one task. `put` stores a blob, and returns once it is stored."""

    def __init__(
        self,
        plan: WritePlan,
        app: str,
        version: int,
        task: int,
        put: Callable[[Buffers], str],
        clock: Clock,
        blob_bytes: int = BLOB_BYTES,
    ) -> None:
        self._plan = plan
        self._app = app
        self._version = version
        self._task = task
        self._put = put
        self._clock = clock
        self._blob_bytes = blob_bytes
        self._rows: dict[TopicPartition, list[pa.RecordBatch]] = {}
        self._size = 0
        self._blobs: list[StoredBlob] = []

    def add(self, rows: pa.RecordBatch) -> None:
        """In pieces, should it be larger than a blob."""
        rows = rows.select([name for name in rows.schema.names if name in COLUMNS])
        pieces = max(1, -(-rows.nbytes // self._blob_bytes))
        step = max(1, -(-rows.num_rows // pieces))
        for start in range(0, rows.num_rows, step):
            self._gather(rows.slice(start, step))
            if self._size >= self._blob_bytes:
                self._send()

    def finish(self) -> tuple[StoredBlob, ...]:
        if self._rows:
            self._send()
        return tuple(self._blobs)

    @property
    def topics(self) -> dict[TopicId, str]:
        """Those that its blobs have something of."""
        ids = {run.topic_id for blob in self._blobs for run in blob.runs}
        return {plan.topic_id: name for name, plan in self._plan.topics.items() if plan.topic_id in ids}

    def _gather(self, rows: pa.RecordBatch) -> None:
        sticky = self._task + len(self._blobs)
        for name, number, some in route(rows, self._plan.topic, lambda name: self._find(name).partitions, sticky):
            self._rows.setdefault(TopicPartition(name, self._find(name).topic_id, number), []).append(some)
        self._size += rows.nbytes

    def _find(self, name: str) -> TopicPlan:
        topic = self._plan.topics.get(name)
        if topic is None:
            raise UnknownTopic(name)
        return topic

    def _send(self) -> None:
        now_ms = self._clock.now_ms()
        stamp = stamp_of(self._app, self._version, self._task, len(self._blobs))
        sections = [self._section(tp, rows, stamp, now_ms) for tp, rows in self._rows.items()]
        chunks, positions = wal_blob.encode(self._plan.cluster_id, now_ms, sections)
        key = self._put(chunks)
        runs = tuple(_run(section, at) for section, at in zip(sections, positions, strict=True))
        self._blobs.append(StoredBlob(key, now_ms, *stamp, runs))
        self._rows.clear()
        self._size = 0

    def _section(self, tp: TopicPartition, rows: list[pa.RecordBatch], stamp: Stamp, now_ms: int) -> wal_blob.Section:
        settings = self._find(tp.topic).settings
        try:
            batches = encode(
                join(rows),
                compression=settings.compression or Compression.NONE,
                max_batch_bytes=_room(settings),
                time_ms=now_ms,
                producer=Producer(*stamp, 0),
            )
            batches = [_obey(batch, settings, now_ms) for batch in batches]
        except Rejected as error:
            raise type(error)(f"{tp}: {error}") from None
        count = sum(parse_header(batch).count for batch in batches)
        return wal_blob.Section(*tp, count, wal_blob.KAFKA_BATCH_V2, batches)


async def put_under_new_name(
    objects: ObjectStore, chunks: Buffers, clock: Clock, entropy: Entropy, pause_s: float = 0.1
) -> str:
    trouble: CatenaError | None = None
    for attempt in range(PUT_ATTEMPTS):
        key = keys.wal_blob(entropy.hex_id())
        try:
            await objects.put(key, chunks, ABSENT)
        except (OutcomeUnknown, StoreUnavailable, Conflict) as error:
            trouble = error
            await clock.sleep(pause_s * 2**attempt * (0.5 + entropy.jitter()))
        else:
            return key
    raise StoreUnavailable(f"the blob could not be stored: {trouble}") from trouble


def _room(settings: TopicSettings) -> int:
    """Of a batch before it is compressed, which makes some larger: by a frame, and by a little for each block."""
    most = min(MAX_BATCH_BYTES, settings.max_message_bytes)
    return most - (128 + most // 128 if settings.compression else 0)


def _obey(batch: bytes, settings: TopicSettings, now_ms: int) -> bytes:
    """As a node does with what producers send."""
    if len(batch) > settings.max_message_bytes:
        raise BatchTooLarge(f"a row takes {len(batch)} bytes, and max.message.bytes is {settings.max_message_bytes}")
    if settings.log_append_time:
        return stamp_append_time(batch, now_ms)
    before, after = settings.timestamp_before_max_ms, settings.timestamp_after_max_ms
    if before is not None or after is not None:
        fault = timestamp_fault(batch, now_ms, before, after)
        if fault is not None:
            raise Rejected(fault)
    return batch


def _run(section: wal_blob.Section, at: int) -> StoredRun:
    newest = max(parse_header(batch).max_timestamp for batch in section.bodies)
    length = sum(map(len, section.bodies))
    return StoredRun(section.topic_id, section.partition, at, length, section.msg_count, newest)
