"""How old an object has to be before vacuum takes it, published: who stores first and commits much later has to know.

A vacuum publishes its grace before it lists. Whoever confirms an intent (`intents`) reads the grace after the intent
was published. Either it reads what that vacuum has published, and objects that are young by it were young when they
were listed; or the vacuum published later, and so reads the intent. It does not matter by which settings they run.

A shorter grace counts at once. A longer one counts when the shorter is so old that no vacuum can be under way with it.
"""

from __future__ import annotations

import msgspec

from catena.errors import Conflict, Contended, Corrupt, OutcomeUnknown
from catena.meta import keys
from catena.meta.base import MetaStore
from catena.runtime import Clock
from catena.types import ABSENT, Expect, Version

LONGEST_VACUUM_MS = 7 * 86_400_000
RENEWED_MS = 3_600_000
"""A vacuum that finds its own grace published writes it again only if that is so old."""
MAX_ATTEMPTS = 20


class Grace(msgspec.Struct, frozen=True):
    grace_ms: int
    at_ms: int
    """When a vacuum has begun with it for the last time."""


_encode = msgspec.json.Encoder().encode
_decoder = msgspec.json.Decoder(Grace)


async def publish_grace(meta: MetaStore, clock: Clock, grace_ms: int) -> None:
    """Return once a grace of this or a shorter one counts."""
    for _ in range(MAX_ATTEMPTS):
        found, expect = await _find(meta)
        now_ms = clock.now_ms()
        if found is not None and found.grace_ms < grace_ms and now_ms - found.at_ms < LONGEST_VACUUM_MS:
            return
        if found is not None and found.grace_ms == grace_ms and now_ms - found.at_ms < RENEWED_MS:
            return
        try:
            await meta.put(keys.VACUUM_GRACE, _encode(Grace(grace_ms, now_ms)), expect)
        except (Conflict, OutcomeUnknown):
            continue
        return
    raise Contended(f"{keys.VACUUM_GRACE} changes all the time")


async def published_grace_ms(meta: MetaStore) -> int | None:
    """None: no vacuum has ever run."""
    found, _ = await _find(meta)
    return None if found is None else found.grace_ms


async def _find(meta: MetaStore) -> tuple[Grace | None, Version | Expect]:
    record = await meta.get(keys.VACUUM_GRACE)
    if record is None:
        return None, ABSENT
    try:
        return _decoder.decode(record.value), record.version
    except msgspec.MsgspecError as error:
        raise Corrupt(f"meta record {record.key} can't be read: {error}") from error
