"""A record that can't be read is named."""

from __future__ import annotations

import msgspec
import pytest

from catena.errors import Corrupt
from catena.pipeline.records import WRITING, CompactionRecord, decode_compaction

RECORD = CompactionRecord("id", WRITING, 0, 9, 10, "manifest", 1, 0, 10)


def test_it_is_read_as_it_was_written() -> None:
    assert decode_compaction("key", msgspec.json.encode(RECORD)) == RECORD


@pytest.mark.parametrize("value", [b"", b"{}", msgspec.json.encode(RECORD).replace(b"WRITING_", b"EATING_")])
def test_what_is_none_is_corrupt(value: bytes) -> None:
    with pytest.raises(Corrupt, match="meta record the/key"):
        decode_compaction("the/key", value)
