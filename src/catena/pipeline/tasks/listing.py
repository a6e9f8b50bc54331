"""The task that lists objects: those below a prefix that vacuum may take for orphans.

Only what has exactly a form that is known here is ever looked at, and so nothing else is ever deleted: not the markers
of the cluster, not a meta store in the same bucket, not what people have put there.
"""

from __future__ import annotations

import re
from typing import Literal, TypeAlias

import msgspec

from catena.meta import keys
from catena.pipeline.tasks.base import TaskContext

Kind: TypeAlias = Literal["wal", "segment", "manifest"]

_ID = "[0-9a-f]{32}"
_PARTITION = rf"{keys.ROOT}/{_ID}/partitions/(?:0|[1-9][0-9]*)"
_FORMS: dict[Kind, re.Pattern[str]] = {
    "wal": re.compile(keys.WAL_BLOBS + _ID),
    "segment": re.compile(f"{_PARTITION}/segments/{_ID}/{_ID}"),
    "manifest": re.compile(f"{_PARTITION}/manifests/{_ID}"),
}


class ListingPlan(msgspec.Struct, frozen=True):
    prefix: str
    cutoff_ms: int
    """What was modified then or later is left out."""


class Listed(msgspec.Struct, frozen=True):
    """The result of any task that lists rows: each row is a key with a size."""

    keys: list[str]
    sizes: list[int]
    counts: dict[str, int]
    """What else there is to say, in numbers that add up."""

    @property
    def totals(self) -> dict[str, int]:
        return {"rows": len(self.keys), **self.counts}


def kind_of(key: str) -> Kind | None:
    """None: vacuum does not know it."""
    return next((kind for kind, form in _FORMS.items() if form.fullmatch(key)), None)


def decode(result: bytes) -> Listed:
    return msgspec.msgpack.decode(result, type=Listed)


async def run(context: TaskContext, plan: bytes) -> bytes:
    return msgspec.msgpack.encode(await list_objects(context, msgspec.json.decode(plan, type=ListingPlan)))


async def list_objects(context: TaskContext, plan: ListingPlan) -> Listed:
    listed = Listed([], [], dict.fromkeys(("seen", "young", "unknown"), 0))
    counts = listed.counts
    async for info in context.objects.list(plan.prefix):
        counts["seen"] += 1
        if kind_of(info.key) is None:
            counts["unknown"] += 1
        elif info.modified_ms >= plan.cutoff_ms:
            counts["young"] += 1
        else:
            listed.keys.append(info.key)
            listed.sizes.append(info.size)
    return listed
