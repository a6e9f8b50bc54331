"""How much is stored: a listing of the bucket, now and then.

It costs a request for each 1,000 objects. So there are at most `MAX_PAGES` of these in a scan, and as many seconds lie
between two scans as one took requests, times `PAGE_PAUSE_S`: whatever the size of the bucket, that is 10 requests a
minute, and two dollars a month. Of several nodes only the one with the lowest id does it.
"""

from __future__ import annotations

import msgspec

from catena.meta import keys
from catena.objects.base import ObjectStore
from catena.objects.counted import LIST_PAGE
from catena.runtime import Clock

PAGE_PAUSE_S = 6.0
MAX_PAGES = 2_000
BREATH_S = 0.01
"""Between two pages: others have work to do."""

KINDS = ("wal", "segments", "manifests", "tables", "meta", "other")


class StoredFigures(msgspec.Struct, frozen=True):
    at_ms: int
    """When the scan ended."""
    objects: dict[str, int]
    """By kind."""
    bytes: dict[str, int]
    requests: int
    """That this scan took."""
    is_complete: bool = True
    """False: there are more objects than a scan looks at."""

    @property
    def pause_s(self) -> float:
        return self.requests * PAGE_PAUSE_S


async def scan(store: ObjectStore, clock: Clock, max_objects: int = MAX_PAGES * LIST_PAGE) -> StoredFigures:
    objects, sizes = dict.fromkeys(KINDS, 0), dict.fromkeys(KINDS, 0)
    seen = 0
    is_complete = True
    async for info in store.list(""):
        if seen == max_objects:
            is_complete = False
            break
        kind = kind_of(info.key)
        objects[kind] += 1
        sizes[kind] += info.size
        seen += 1
        if seen % LIST_PAGE == 0:
            await clock.sleep(BREATH_S)
    return StoredFigures(clock.now_ms(), objects, sizes, seen // LIST_PAGE + 1, is_complete)


def kind_of(key: str) -> str:
    if key.startswith(keys.WAL_BLOBS):
        return "wal"
    if key.startswith(f"{keys.ROOT}/"):
        if "/segments/" in key:
            return "segments"
        return "manifests" if "/manifests/" in key else "other"
    return next((kind for kind in ("tables", "meta") if key.startswith(f"{kind}/")), "other")
