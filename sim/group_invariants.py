"""What the stored state of groups may never look like, checked at every single change of the meta store.

a state record never goes away, and its coordinator epoch and `offsets_from_epoch` never go back
a generation (or group epoch) never goes back while the group lives, nor does the epoch of its assignment
a deleted group is gone under a new coordinator epoch, and comes back under another one
a chunk of offsets never gets a lower coordinator epoch than it had
"""

from __future__ import annotations

from collections.abc import Callable

import msgspec

from catena.broker.group_store import OffsetChunk, decode_state
from catena.meta import keys
from catena.meta.base import Record
from catena.types import Version
from sim.checker import Violation

_chunk = msgspec.json.Decoder(OffsetChunk)


class _Numbers(msgspec.Struct):
    """What both kinds of snapshots number their lives with."""

    generation: int = 0
    epoch: int = 0
    assignment_epoch: int = 0

    @property
    def life(self) -> int:
        return self.generation + self.epoch  # one of them is 0


_numbers = msgspec.json.Decoder(_Numbers)


class GroupInvariants:
    def __init__(self, note: Callable[[str], object]) -> None:
        """`note` is told of each violation, so that it stands in the transcript where it came about."""
        self.violations: list[Violation] = []
        self._note = note

    def changed(self, key: str, old: bytes | None, new: bytes | None) -> None:
        if key.startswith(keys.GROUPS):
            self._state_changed(key, old, new)
        elif key.startswith(keys.GROUP_OFFSETS) and old is not None and new is not None:
            before, after = _chunk.decode(old).coordinator_epoch, _chunk.decode(new).coordinator_epoch
            if after < before:
                self._report("chunk", f"{key} goes from coordinator epoch {before} to {after}")

    def _state_changed(self, key: str, old: bytes | None, new: bytes | None) -> None:
        if new is None:
            self._report("state", f"{key} is removed")
            return
        if old is None:
            return
        before, snapshot_before = decode_state(Record(key, old, Version("")))
        after, snapshot_after = decode_state(Record(key, new, Version("")))
        if after.coordinator_epoch < before.coordinator_epoch:
            self._report("epoch", f"{key} goes from {before.coordinator_epoch} to {after.coordinator_epoch}")
        if after.offsets_from_epoch < before.offsets_from_epoch:
            self._report("epoch", f"{key} takes offsets from {after.offsets_from_epoch} on again")
        if "deleted" in (before.kind, after.kind):
            if after.coordinator_epoch == before.coordinator_epoch:
                self._report("epoch", f"{key} is {after.kind} after {before.kind} in one coordinator epoch")
            return
        numbers_before, numbers_after = _numbers.decode(snapshot_before), _numbers.decode(snapshot_after)
        if numbers_after.life < numbers_before.life:
            self._report("generation", f"{key} goes from {numbers_before} to {numbers_after}")
        if numbers_after.epoch and numbers_after.assignment_epoch < numbers_before.assignment_epoch:
            self._report("generation", f"{key} goes from {numbers_before} to {numbers_after}")

    def _report(self, rule: str, what: str) -> None:
        self._note(f"VIOLATION: {what}")
        self.violations.append(Violation(f"stored {rule}", what))
