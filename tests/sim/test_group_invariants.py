"""What no coordinator may do to the stored state of a group is seen at once."""

from __future__ import annotations

import msgspec
import pytest

from catena.broker.group_store import GroupHeader, Kind, OffsetChunk, encode_state
from catena.meta import keys
from catena.types import TopicId
from sim.group_invariants import GroupInvariants

STATE = keys.group_state("g")
CHUNK = keys.group_offset_chunk("g", TopicId("t" * 32), 0)


def state(epoch: int, generation: int = 1, kind: Kind = "classic", offsets_from_epoch: int = 0) -> bytes:
    header = GroupHeader(
        kind=kind,
        coordinator_epoch=epoch,
        node_id=0,
        nonce="n",
        protocol_type="consumer",
        is_empty=True,
        changed_at_ms=0,
        offsets_from_epoch=offsets_from_epoch,
    )
    return encode_state(header, b"" if kind == "deleted" else msgspec.json.encode({"generation": generation}))


def chunk(epoch: int) -> bytes:
    return msgspec.json.encode(OffsetChunk(epoch, {}))


def rules(key: str, old: bytes | None, new: bytes | None) -> list[str]:
    noted: list[str] = []
    invariants = GroupInvariants(noted.append)
    invariants.changed(key, old, new)
    assert len(noted) == len(invariants.violations)
    return [violation.rule for violation in invariants.violations]


@pytest.mark.parametrize(
    ("old", "new"),
    [
        (None, state(1)),
        (state(1), state(2)),
        (state(1), state(1, 2)),
        (state(1), state(2, kind="deleted", offsets_from_epoch=2)),
        (state(2, kind="deleted", offsets_from_epoch=2), state(3, 0, offsets_from_epoch=2)),
    ],
)
def test_what_coordinators_do(old: bytes | None, new: bytes) -> None:
    assert rules(STATE, old, new) == []


@pytest.mark.parametrize(
    ("old", "new", "rule"),
    [
        (state(1), None, "stored state"),
        (state(2), state(1), "stored epoch"),
        (state(3, offsets_from_epoch=2), state(3), "stored epoch"),
        (state(1), state(1, kind="deleted"), "stored epoch"),
        (state(1, kind="deleted"), state(1), "stored epoch"),
        (state(1, 2), state(2, 1), "stored generation"),
    ],
)
def test_what_none_may_do(old: bytes, new: bytes | None, rule: str) -> None:
    assert rules(STATE, old, new) == [rule]


def test_chunks_keep_to_the_latest_coordinator() -> None:
    assert rules(CHUNK, chunk(1), chunk(1)) == rules(CHUNK, chunk(1), chunk(2)) == rules(CHUNK, chunk(2), None) == []
    assert rules(CHUNK, chunk(2), chunk(1)) == ["stored chunk"]
    assert rules(keys.CLUSTER, b"1", None) == []
