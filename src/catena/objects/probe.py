"""Does a store keep what it promises? Asked once at start, before anything is trusted to it.

Several stores that speak S3 accept conditional writes and ignore the condition. On such a store two writers would both
believe that they had won, and acked records would be lost without a trace. So it is refused.
"""

from __future__ import annotations

from contextlib import suppress

from catena.errors import CatenaError, Conflict, StoreRefused
from catena.objects.base import ObjectStore, Range
from catena.runtime import Entropy
from catena.types import ABSENT, ETag, Expect

_REMEDY = "use a store (or a version of it) that has conditional writes: if-none-match and if-match on PutObject"


async def probe(store: ObjectStore, entropy: Entropy) -> None:
    """Raise StoreRefused, with what to do, if the store breaks its contract where that can be seen at once.

    Works on keys of its own below `probe/`, which it deletes; what a crash leaves there means nothing to anybody.
    """
    name = entropy.hex_id()
    # In byte order `-` is below `/`; in the order of a walk through a tree it is above.
    in_order = [f"probe/order-{name}", f"probe/order/{name}"]
    try:
        await _probe_conditions(store, in_order[1])
        await _probe_listing(store, in_order)
    except CatenaError:
        with suppress(CatenaError):
            await store.delete(in_order)
        raise
    await store.delete(in_order)


async def _probe_conditions(store: ObjectStore, key: str) -> None:
    first = await store.put(key, [b"first"], ABSENT)
    await _must_conflict(store, key, ABSENT, "create only if absent (if-none-match: *)")
    second = await store.put(key, [b"sec", b"ond"], first)
    await _must_conflict(store, key, first, "replace only if unchanged (if-match)")

    blob = await store.get(key)
    if blob.data != b"second" or blob.etag != second:
        raise StoreRefused(f"the object store gave {blob} back for b'second' with etag {second}: it can't be relied on")
    (part,) = await store.get_ranges(key, [Range(1, 3)])
    if bytes(part) != b"eco":
        raise StoreRefused(
            f"the object store gave {bytes(part)!r} for bytes 1 to 4 of b'second': it can't be relied on"
        )


async def _probe_listing(store: ObjectStore, in_order: list[str]) -> None:
    await store.put(in_order[0], [b""])
    listed = [info.key async for info in store.list("probe/order") if info.key in in_order]
    if listed != in_order:
        raise StoreRefused(f"the object store lists {listed} where {in_order} is due: check its settings for listing")


async def _must_conflict(store: ObjectStore, key: str, expect: Expect | ETag, condition: str) -> None:
    try:
        await store.put(key, [b"overwritten"], expect)
    except Conflict:
        return
    raise StoreRefused(
        f"the object store ignores the condition of a write, {condition}, and would lose data; {_REMEDY}"
    )
