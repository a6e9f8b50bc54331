"""What the diskless loglets of a node count of themselves; see `catena.counting`.

Entries wait in a queue, become a blob and are uploaded, wait in the queue of commits, are committed, and acked.
"""

from __future__ import annotations

from typing import Literal, TypeAlias

import msgspec

from catena.counting import NUMBER_BOUNDS, SIZE_BOUNDS, Histogram

Reason: TypeAlias = Literal["idle", "full", "delay"]
"""Why a blob was sent: nothing else was in flight; it was full; its first entry had waited for long enough."""


class WriterCounts(msgspec.Struct):
    blobs: dict[Reason, int] = msgspec.field(default_factory=lambda: {"idle": 0, "full": 0, "delay": 0})
    blob_bytes: Histogram = msgspec.field(default_factory=lambda: Histogram(SIZE_BOUNDS))
    """Of batches, of each blob that was sent."""
    blob_partitions: Histogram = msgspec.field(default_factory=lambda: Histogram(NUMBER_BOUNDS))
    upload_seconds: Histogram = msgspec.field(default_factory=Histogram)
    """Until the blob was stored, or given up; tries and pauses included."""
    upload_failures: int = 0
    """Blobs that were given up."""
    back_pressure: int = 0
    """Appends that were refused because too much was held."""


class WriterQueue(msgspec.Struct, frozen=True):
    """How it stands now."""

    held_bytes: int
    """Taken and not yet answered."""
    forming_bytes: int
    """In the blob that is not sent yet."""
    full_blobs: int
    """That wait for an upload to end."""
    uploads: int
    """In flight."""


class CommitCounts(msgspec.Struct):
    commit_seconds: Histogram = msgspec.field(default_factory=Histogram)
    """Of calls for many partitions; further tries and pauses included."""
    wait_seconds: Histogram = msgspec.field(default_factory=Histogram)
    """From the end of a run's upload to the start of its commit."""
    batches_per_partition: Histogram = msgspec.field(default_factory=lambda: Histogram(NUMBER_BOUNDS))
    """Of one partition in one commit."""
    queued_bytes: int = 0
    """Now: stored, and not yet committed."""
    batches: int = 0
    """That were acked and are new in the log, as their records and bytes."""
    records: int = 0
    bytes: int = 0
    duplicates: int = 0
    """Batches that were in the log already, and those that were rejected."""
    failures: dict[str, int] = {}
    """Commits of a partition that were given up, by the name of the error."""


class FindCounts(msgspec.Struct):
    """Where batches are: a look into the index."""

    seconds: Histogram = msgspec.field(default_factory=Histogram)
    """Of looks that asked the meta store."""
    kept: int = 0
    """Looks that what was kept could answer."""


class TailCounts(msgspec.Struct):
    """What processes of this host tell each other of their commits (`tail_sharing`); all 0 where they do not."""

    published_batches: int = 0
    """Of this process, that others could find."""
    published_bytes: int = 0
    left_out_batches: int = 0
    """Of this process, that others can't find: they came faster than they could be written, or there is no ring."""
    rings: int = 0
    """Now: of other processes, that are read."""
    heard_batches: int = 0
    """Of others, that were taken over."""
    heard_bytes: int = 0
    gaps: int = 0
    """Of these, those before which something is missing that was not heard, or is heard too late."""
    lost: int = 0
    """How often something was overwritten before it was read here, or could not be read."""
    evicted_batches: int = 0
    """From the tail cache, its own ones and those that were heard, to make room."""
    fallbacks: int = 0
    """Reads of what had been told of, and that the stores had to answer."""
