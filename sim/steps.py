"""Names for every write to a store: the steps of append, commit, seal, reconfigure, trim and delete.

A step is named by the record it changes and by what the change means, found by comparing the old value with the new
one. A process can die (or freeze) right before a step and right after it, with the answer still under way: these are
the named crash points, and a long run that never hit one of them has not tested it.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import msgspec

from catena.loglets.diskless.records import Control
from catena.meta import keys
from catena.meta.base import Group, Put
from catena.virtual_log.chain import Chain

STEPS = (
    "blob:put",
    "chain:delete",
    "chain:intent",
    "chain:open",
    "chain:seal",
    "chain:trim",
    "control:append",
    "control:seal",
    "handoff:create",
    "index:create",
    "producer:put",
    "topic:create",
    "topic:delete",
    "topic:tombstone",
    "transact:append",
)
"""Those that must be hit."""

_control = msgspec.json.Decoder(Control)
_chain = msgspec.json.Decoder(Chain)


def kind_of(key: str) -> str:
    """Which record of the catalogue in `catena.meta.keys` this is."""
    if key.startswith(keys.TOPICS):
        return "topic"
    if key.startswith(keys.DELETED):
        return "deleted"
    parts = key.split("/")
    if len(parts) >= 6 and parts[2] == "partitions":
        return parts[5] if parts[4] == "meta" else {"producers": "producer"}.get(parts[4], parts[4])
    return parts[-1]


def name_put(key: str, value: bytes, old: bytes | None) -> str:
    kind = kind_of(key)
    match kind:
        case "control":
            return f"control:{_control_change(value, old)}"
        case "chain":
            return f"chain:{_chain_change(value, old)}"
        case "producer":
            return "producer:put"
    return f"{kind}:{'create' if old is None else 'change'}"


def name_transact(groups: Sequence[Group], old: Callable[[str], bytes | None]) -> str:
    """By the first change of a control record; a call that has none by its first write."""
    names = [name_put(op.key, op.value, old(op.key)) for group in groups for op in group if isinstance(op, Put)]
    for name in names:
        if name.startswith("control:"):
            return f"transact:{name.removeprefix('control:')}"
    return f"transact:{names[0] if names else 'check'}"


def _control_change(value: bytes, old: bytes | None) -> str:
    new = _control.decode(value)
    before = None if old is None else _control.decode(old)
    if new.state == "FENCED":
        return "seal"
    if before is None or new.epoch > before.epoch or new.next > before.next:
        return "append"
    return "clear" if new.pending is None else "rewrite"


def _chain_change(value: bytes, old: bytes | None) -> str:
    new = _chain.decode(value)
    before = None if old is None else _chain.decode(old)
    if new.deleted:
        return "delete"
    if new.intent is not None and (before is None or before.intent != new.intent):
        return "intent"
    if before is not None and before.intent is not None and new.intent is None:
        return "open" if new.last.is_open else "seal"
    if new.start > (0 if before is None else before.start):
        return "trim"
    return "rewrite"
