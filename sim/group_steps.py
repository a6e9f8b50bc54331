"""Names for every write that nodes make for groups, and one process's way to the store that uses them. See `steps`."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial

from catena.broker.group_store import decode_state
from catena.meta import keys
from catena.meta.base import Group, GroupResult, Put, Record, Session
from catena.types import ANY, Expect, Version
from sim.stores import FaultyMeta, at_once

GROUP_STEPS = (
    "node:put",
    "offsets:delete",
    "offsets:put",
    "session:end",
    "session:open",
    "session:renew",
    "state:change",
    "state:create",
    "state:delete",
    "state:take over",
    "transact:change",
    "transact:create",
    "transact:delete",
    "transact:offsets",
)
"""Those that a long run must hit."""
DELETE_STEPS = ("offsets:delete", "state:delete", "transact:delete")
"""Rare ones, which are aimed at wherever something is deleted."""


def kind_of(key: str) -> str:
    for prefix, kind in ((keys.NODES, "node"), (keys.GROUPS, "state"), (keys.GROUP_OFFSETS, "offsets")):
        if key.startswith(prefix):
            return kind
    return "other"


def name_put(key: str, value: bytes, old: Record | None) -> str:
    kind = kind_of(key)
    return f"state:{_state_change(key, value, old)}" if kind == "state" else f"{kind}:put"


def _state_change(key: str, value: bytes, old: Record | None) -> str:
    new, _ = decode_state(Record(key, value, Version("")))
    before = None if old is None else decode_state(old)[0]
    if new.kind == "deleted":
        return "delete"
    if before is None or before.kind == "deleted":
        return "create"
    return "take over" if new.coordinator_epoch > before.coordinator_epoch else "change"


class GroupMeta(FaultyMeta):
    """A FaultyMeta that knows the records of groups and nodes."""

    async def put(
        self, key: str, value: bytes, expect: Version | Expect = ANY, ephemeral: Session | None = None
    ) -> Version:
        step = name_put(key, value, self._record(key))
        return await self._wire.write(step, lambda: at_once(self._inner.put(key, value, expect, ephemeral)))

    async def delete(self, key: str, expect: Version | Expect = ANY) -> None:
        await self._wire.write(f"{kind_of(key)}:delete", lambda: at_once(self._inner.delete(key, expect)))

    async def transact(self, groups: Sequence[Group]) -> list[GroupResult]:
        changes = [
            _state_change(op.key, op.value, self._record(op.key))
            for group in groups
            for op in group
            if isinstance(op, Put) and kind_of(op.key) == "state"
        ]
        step = f"transact:{changes[0] if changes else 'offsets'}"
        return await self._wire.write_parts(step, [partial(self._apply_group, group) for group in groups])

    def _record(self, key: str) -> Record | None:
        return at_once(self._inner.get(key))
