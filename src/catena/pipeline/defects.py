"""What an audit may find: each kind of defect has a name, and a name says how bad it is.

Damage is data that is lost, wrong or can't be reached. Leftovers are harmless: nobody reads them, and the next job that
comes along clears them away.
"""

from __future__ import annotations

from typing import Literal, TypeAlias, get_args

import msgspec

from catena.types import Offset, TopicPartition

Severity: TypeAlias = Literal["damage", "leftover"]

Damage: TypeAlias = Literal[
    "missing_object",
    "truncated_object",
    "corrupt_batch",  # or bytes between batches
    "corrupt_header",  # of a segment or WAL blob
    "corrupt_index",  # of a segment
    "corrupt_footer",
    "corrupt_manifest",
    "corrupt_record",  # of the meta store
    "links_do_not_meet",
    "chain_mismatch",  # the chain contradicts itself in another way
    "control_mismatch",  # control record and chain
    "manifest_mismatch",  # manifest and chain
    "segment_mismatch",  # segment and manifest
    "header_mismatch",  # WAL blob and index
    "foreign_segment",
    "foreign_run",
    "gap",
    "overlap",
    "count_mismatch",  # other offsets than the index says
    "wrong_timestamp",
    "duplicate_batch",
    "sequence_break",
]
Leftover: TypeAlias = Literal[
    "stale_entry",
    "pending_left",
    "compaction_writing",
    "compaction_updating",
    "compaction_deleting",
    "tiering_left",  # the chain still names a job that is gone
]
Kind: TypeAlias = Literal[Damage, Leftover]

LEFTOVERS: frozenset[str] = frozenset(get_args(Leftover))
OF_CONTENT: frozenset[str] = frozenset({"duplicate_batch", "sequence_break"})
"""What the records themselves say, wherever they are stored by now."""


class Defect(msgspec.Struct, frozen=True):
    kind: Kind
    severity: Severity
    topic: str
    partition: int
    key: str
    """Of the object or meta record."""
    offsets: tuple[Offset, Offset]
    """The first and the last that it is about."""
    what: str


def defect(kind: Kind, tp: TopicPartition, key: str, first: Offset, last: Offset, what: str) -> Defect:
    severity: Severity = "leftover" if kind in LEFTOVERS else "damage"
    return Defect(kind, severity, tp.topic, tp.partition, key, (first, last), what)
