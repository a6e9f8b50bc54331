"""Names for every write to a store: the steps of append, commit, seal, reconfigure, trim, delete and tier.

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
from catena.pipeline.records import CompactionRecord
from catena.virtual_log.chain import Chain
from catena.virtual_log.topics import TopicRecord

STEPS = (
    "blob:put",
    "chain:delete",
    "chain:intent",
    "chain:open",
    "chain:seal",
    "chain:trim",
    "cluster:create",
    "control:append",
    "control:open",
    "control:seal",
    "deleted:create",
    "handoff:create",
    "handoff:delete range",
    "index:create",
    "index:delete range",
    "lease:create",
    "producer:put",
    "session:end",
    "session:open",
    "session:renew",
    "topic:create",
    "topic:delete",
    "topic:free",
    "transact:append",
    "transact:check",
    "transact:open",
)
"""Those that a long run must hit."""
RARE_STEPS = {
    "writers": ("control:append", "producer:put", "transact:check"),
    "fencers": ("chain:seal",),
    "reconfigurers": ("chain:open", "control:open", "handoff:create", "transact:open"),
    "trimmers": ("chain:trim", "handoff:delete range", "index:delete range"),
    "deleters": ("chain:delete", "control:seal", "deleted:create", "topic:create", "topic:delete", "topic:free"),
    "holders": ("lease:create", "session:end", "session:open", "session:renew"),
}
"""By the clients that have them taken: aimed at where there are such clients, or too few seeds would hit them."""

_control = msgspec.json.Decoder(Control)
_chain = msgspec.json.Decoder(Chain)
_topic = msgspec.json.Decoder(TopicRecord)
_compaction = msgspec.json.Decoder(CompactionRecord)
_OBJECTS = {"segments": "segment", "manifests": "manifest"}
_COMPACTION_STEPS = {
    "WRITING_COMPACTED_INDEX": "writing",
    "UPDATING_CURSOR": "updating",
    "DELETING_OLD": "deleting",
}
_TOPIC_STEPS = {"ACTIVE": "create", "DELETING": "delete", "DELETED": "free"}


def name_object_put(key: str) -> str:
    if key.startswith(keys.WAL_BLOBS):
        return "blob:put"
    parts = key.split("/")
    return f"{_OBJECTS[parts[4]]}:put" if len(parts) > 5 and parts[4] in _OBJECTS else "object:put"


def kind_of(key: str) -> str:
    """Which record of the catalogue in `catena.meta.keys` this is; of a prefix of a partition that."""
    if key.startswith(keys.TOPICS):
        return "topic"
    if key.startswith(keys.DELETED):
        return "deleted"
    parts = key.rstrip("\0").split("/")
    if len(parts) == 5 and parts[2] == "partitions":
        return "partition"
    if len(parts) >= 6 and parts[2] == "partitions":
        return parts[5] if parts[4] == "meta" else {"producers": "producer"}.get(parts[4], parts[4])
    return parts[-1]


def chain_of(key: str) -> str:
    """The key of the chain of the partition that this record belongs to."""
    return "/".join([*key.split("/")[:4], "meta", "chain"])


def name_put(key: str, value: bytes, old: bytes | None) -> str:
    kind = kind_of(key)
    match kind:
        case "control":
            return f"control:{_control_change(value, old)}"
        case "chain":
            return f"chain:{_chain_change(value, old)}"
        case "topic":
            return f"topic:{_TOPIC_STEPS[_topic.decode(value).state]}"
        case "producer":
            return "producer:put"
        case "deleted" if b"is_forgotten" in value:
            return "deleted:forget"
        case "compaction":
            return f"compaction:{_COMPACTION_STEPS[_compaction.decode(value).state]}"
    return f"{kind}:create"


def name_transact(groups: Sequence[Group], old: Callable[[str], bytes | None]) -> str:
    """By the first change of a control record; a call that writes nothing only checks."""
    for group in groups:
        for op in group:
            if isinstance(op, Put) and kind_of(op.key) == "control":
                return f"transact:{_control_change(op.value, old(op.key))}"
    return "transact:check"


def _control_change(value: bytes, old: bytes | None) -> str:
    new = _control.decode(value)
    if new.state == "FENCED":
        return "seal"
    return "open" if old is None or new.epoch > _control.decode(old).epoch else "append"


def _chain_change(value: bytes, old: bytes | None) -> str:
    new = _chain.decode(value)
    before = None if old is None else _chain.decode(old)
    if new.deleted:
        return "delete"
    if new.tiering != (None if before is None else before.tiering):
        return _tiering_change(new, before)
    if new.intent is not None and (before is None or before.intent != new.intent):
        return "intent"
    if before is not None and before.intent is not None and new.intent is None:
        return "open" if new.last.is_open else "seal"
    if new.start > (0 if before is None else before.start):
        return "trim"
    return "too late"


def _tiering_change(new: Chain, before: Chain | None) -> str:
    if new.tiering is not None:
        return "tier begin"
    return "tier finish" if before is not None and new.tiered != before.tiered else "tier abandon"
