"""What jobs keep in the meta store while they work on a partition; the keys are in `catena.meta.keys`.

The record shows what a job is doing and how far it has come, and from it anyone finishes or abandons what was left. It
decides nothing: that the chain does.

    WRITING_COMPACTED_INDEX    segments and manifest are being written
    UPDATING_CURSOR            the manifest is written; the chain is about to take it
    DELETING_OLD               the chain has taken it; what it stands for is being deleted from the index
"""

from __future__ import annotations

from typing import Literal, TypeAlias

import msgspec

from catena.errors import Corrupt
from catena.formats.wal_blob import KAFKA_BATCH_V2
from catena.types import Offset

State: TypeAlias = Literal["WRITING_COMPACTED_INDEX", "UPDATING_CURSOR", "DELETING_OLD"]
WRITING: State = "WRITING_COMPACTED_INDEX"
UPDATING: State = "UPDATING_CURSOR"
DELETING: State = "DELETING_OLD"


class CompactionRecord(msgspec.Struct, frozen=True):
    compaction_id: str
    """The chain names it as the job that may change the tiered link."""
    state: State
    start_offset: Offset
    end_offset: Offset
    """The last one."""
    msg_count: int
    data_key: str
    """Of the manifest."""
    created_at_ms: int
    base: Offset
    """Where the tiered link begins."""
    boundary: Offset
    encoding: str = KAFKA_BATCH_V2


class Claim(msgspec.Struct, frozen=True):
    compactor_id: str
    claimed_at_ms: int


_record = msgspec.json.Decoder(CompactionRecord)


def decode_compaction(key: str, value: bytes) -> CompactionRecord:
    try:
        return _record.decode(value)
    except msgspec.MsgspecError as error:
        raise Corrupt(f"meta record {key} can't be read: {error}") from error
