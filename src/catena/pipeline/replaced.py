"""What jobs have taken the place of stays for a while: queries and jobs that were planned before still name it.

A plan names objects (`virtual_log.extents`), and is read without the chain, for up to `pipeline.vacuum.longest_job_ms`.
Tiering, merging and compaction take objects out of use that may be older than vacuum's grace by far. So a manifest
tells what it has taken the place of, and vacuum counts that as referred to (`references`) until it is so long ago:

- **Segments.** A job whose manifest has no place for all segments of the one before names that one, as `replaced`. It
  is kept, with all its segments. What was named before is named on, until it is long enough ago.
- **WAL blobs.** When their records are tiered they are as a rule so young that the grace alone keeps them for long
  enough. Where tiering is late they are not, and then the manifest names them, as `blobs`. The manifests that follow
  name that one, in the same way.

Since when, the chain tells: each compare-and-set that takes a manifest says when that was. Not the manifest, which is
written before, by a driver that may die then, and be finished by another one hours later. The manifest that follows
writes it down, because it takes the chain's place for it.

Nobody relies on any of it to find records: a manifest that is named here and is gone is no damage. What it does not
cover: what is trimmed together with the whole tiered part of a log; blobs of a job that was left behind for half of the
grace before another driver finished it; a driver that is held up for long within the compare-and-set, which is taken
off the time. Clocks of drivers and of vacuum have to agree to a small part of `longest_job_ms`, and all have to go by
the same settings.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from msgspec import UNSET, UnsetType

from catena.formats.manifest import Manifest, Replaced
from catena.formats.segment import SegmentInfo
from catena.loglets.diskless.blobs import object_key
from catena.loglets.diskless.records import IndexEntry
from catena.pipeline.settings import VacuumSettings
from catena.virtual_log.chain import Chain

MAX_REPLACED = 256
"""That a manifest names. Past it the oldest are let go before their time."""
TAKEN_AT = "at_ms"
"""In what the chain says of a tiered link: when it took its manifest."""


def replaced_by(
    chain: Chain, manifest: Manifest | None, segments: Sequence[SegmentInfo], now_ms: int, settings: VacuumSettings
) -> tuple[Replaced, ...] | UnsetType:
    """What a manifest that has these segments says, where the chain names `manifest` so far."""
    if manifest is None:
        return UNSET
    since_ms, kept = now_ms - settings.longest_job_ms, {segment.key for segment in segments}
    known = [Replaced(key, at_ms) for key, at_ms in told(chain, manifest) if at_ms > since_ms]
    if any(segment.key not in kept for segment in manifest.segments):
        known.append(Replaced(_key(chain)))
    elif manifest.blobs is not UNSET and taken_at_ms(chain) > since_ms:
        known.append(Replaced(_key(chain), taken_at_ms(chain)))
    return tuple(known[-MAX_REPLACED:]) or UNSET


def late_blobs(tiered: Iterable[IndexEntry], now_ms: int, settings: VacuumSettings) -> tuple[str, ...] | UnsetType:
    """Of the runs that are tiered now: the objects that the grace does not keep for as long as a plan may name them.

    Half of the grace is for clocks that do not agree, as in `vacuum`.
    """
    spare_ms = settings.grace_ms // 2 - settings.longest_job_ms
    late = (entry for entry in tiered if spare_ms <= 0 or entry.created_at_ms <= now_ms - spare_ms)
    return tuple({object_key(entry.data_key): None for entry in late}) or UNSET


def told(chain: Chain, manifest: Manifest) -> list[tuple[str, int]]:
    """Manifests that the chain's has taken the place of, or those before it have, each with when that was."""
    if manifest.replaced is UNSET:
        return []
    taken_ms = taken_at_ms(chain)
    return [(each.key, taken_ms if each.at_ms is UNSET else each.at_ms) for each in manifest.replaced]


def taken_at_ms(chain: Chain) -> int:
    """When the chain took the manifest that it names; 0: an older release did not say."""
    at_ms = chain.tiered.params.get(TAKEN_AT) if chain.tiered is not None else None
    return at_ms if isinstance(at_ms, int) else 0


def _key(chain: Chain) -> str:
    assert chain.tiered is not None
    return str(chain.tiered.params["manifest"])
