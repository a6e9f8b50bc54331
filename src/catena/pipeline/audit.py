"""Audit: every offset is there once, every byte is as it was stored, and all that tells of them agrees.

For each partition: a look at what the meta store and the manifest say (`audit_checks`), then tasks that read all bytes
this leads to (`tasks.audit`), then the sequence numbers of producers over all pieces, and the question whether what was
found still counts. The driver reads records and manifests, and no data.

It runs beside writers, jobs, trims and vacuum, and takes nothing that they do for damage:

- A look counts only if the chain was the same before and after it; else it is taken again. See `audit_checks`.
- Tasks read objects later than that, and what they miss may have been tiered, merged, trimmed or deleted meanwhile. So
  each of their findings is held against the log as it is then: the very object must still be the one that holds the
  offsets. Objects never change, and vacuum takes none that is referred to; so what is referred to before and after was
  bad or missing in between.
- Where the log grows is not chased: it ends where the first look saw its end.

Memory is bounded: a partition is looked at in windows of its index, and some partitions at a time.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import NamedTuple

import msgspec

from catena.errors import CatenaError, Contended, Corrupt
from catena.formats.segment import SegmentInfo
from catena.loglets.diskless.records import IndexEntry
from catena.meta import keys
from catena.pipeline import audit_checks
from catena.pipeline.audit_checks import View, covering, tail_of
from catena.pipeline.audit_views import read_view, still_stands
from catena.pipeline.defects import Defect, defect
from catena.pipeline.producer_trail import Trail
from catena.pipeline.settings import AuditSettings
from catena.pipeline.site import Place, Site
from catena.pipeline.tasks.audit import AuditPlan, AuditResult, Piece, PieceResult
from catena.pipeline.tier_pass import Progress
from catena.pipeline.work import Executor, TaskFailed, Usage, Work
from catena.runtime.tasks import map_bounded
from catena.types import Offset

AT_ONCE = 16
"""Partitions that the driver asks the meta store about at the same time."""
GROUP = 500
"""Partitions whose bytes are read together: enough to share blobs and to keep a cluster busy."""
MIN_WINDOW = 1000
RUNS_PER_PIECE = 20_000
RUN_COST = 4 << 10
"""What a run costs more than its bytes, in bytes: so tasks of tiny runs are not too long."""
LOOKS = 10
LISTED_OF_PARTITION = 1000
LISTED = 10_000
"""Defects that the report names; of the others damage is counted."""

_result = msgspec.json.Decoder(AuditResult)


class Orphans(msgspec.Struct, frozen=True):
    """Objects that nothing refers to; vacuum collects them."""

    objects: int
    bytes: int


class Unchecked(msgspec.Struct, frozen=True):
    """A partition, some of which could not be looked at."""

    topic: str
    partition: int
    error: str


class AuditReport(msgspec.Struct, frozen=True):
    started_at_ms: int
    duration_ms: int
    partitions: int
    """That were looked at; deleted ones don't count."""
    offsets: int
    """That were read and found sound, as were the batches and bytes."""
    batches: int
    bytes: int
    defects: tuple[Defect, ...]
    unlisted: int
    """Further damage, where there is very much of it."""
    unchecked: tuple[Unchecked, ...]
    is_complete: bool
    """It was not stopped before its end."""
    orphans: Orphans | None
    """None: nobody counted them."""
    executors: dict[str, Usage]
    """By who did the tasks: what they asked of the object store for it."""
    driver: Usage = Usage()
    """What the driver asked of it: manifests, and no data. Filled in by whoever counts the driver's requests."""

    @property
    def damage(self) -> tuple[Defect, ...]:
        return tuple(each for each in self.defects if each.severity == "damage")

    @property
    def ok(self) -> bool:
        """All was looked at, and there is no damage."""
        return self.is_complete and not self.damage and not self.unlisted and not self.unchecked


@dataclass(slots=True)
class _Walk:
    """How far the audit of a partition has come."""

    place: Place
    since: Offset = 0
    until: Offset = 0
    """Where the log ended when it was first looked at, if it takes more than one look."""
    is_deleted: bool = False
    is_done: bool = False
    offsets: int = 0
    batches: int = 0
    bytes: int = 0
    unlisted: int = 0
    defects: dict[Defect, None] = field(default_factory=dict)
    errors: dict[str, None] = field(default_factory=dict)
    trail: Trail = field(default_factory=Trail)
    reached: Offset = -1
    """Where the trail has come to."""


class _Planned(NamedTuple):
    walk: _Walk
    piece: Piece


async def audit(
    site: Site,
    work: Work,
    places: Sequence[Place],
    settings: AuditSettings,
    show: Callable[[Progress], None] = lambda _: None,
    should_stop: Callable[[], bool] = lambda: False,
    count_orphans: Callable[[], Awaitable[Orphans]] | None = None,
) -> AuditReport:
    """`should_stop` is asked between groups of partitions. `count_orphans` is vacuum's, when it deletes nothing."""
    started_at_ms, usage_before = site.clock.now_ms(), work.usage
    auditor = _Auditor(site, work, settings, show, len(places))
    walks: list[_Walk] = []
    for start in range(0, len(places), GROUP):
        if should_stop():
            break
        walks += await auditor.walk(places[start : start + GROUP])
    orphans = await count_orphans() if count_orphans is not None else None
    return AuditReport(
        started_at_ms=started_at_ms,
        duration_ms=site.clock.now_ms() - started_at_ms,
        partitions=sum(not walk.is_deleted for walk in walks),
        offsets=sum(walk.offsets for walk in walks),
        batches=sum(walk.batches for walk in walks),
        bytes=sum(walk.bytes for walk in walks),
        defects=tuple(found for walk in walks for found in walk.defects),
        unlisted=sum(walk.unlisted for walk in walks),
        unchecked=tuple(_unchecked(walk) for walk in walks if walk.errors),
        is_complete=len(walks) == len(places),
        orphans=orphans,
        executors=_used(usage_before, work.usage),
    )


class _Auditor:
    def __init__(
        self, site: Site, work: Work, settings: AuditSettings, show: Callable[[Progress], None], partitions: int
    ) -> None:
        self._site = site
        self._work = work
        self._settings = settings
        self._show = show
        self._progress = Progress(partitions, 0, 0, 0)
        self._listed = 0

    async def walk(self, places: Sequence[Place]) -> list[_Walk]:
        walks = [_Walk(place) for place in places]
        while ahead := [walk for walk in walks if not walk.is_done]:
            limit = max(MIN_WINDOW, self._settings.max_runs // len(ahead))
            looked = await map_bounded(AT_ONCE, partial(self._look, limit), ahead)
            await self._read([_Planned(walk, piece) for walk, its in zip(ahead, looked, strict=True) for piece in its])
            self._tell(partitions_done=sum(walk.is_done for walk in ahead))
        return walks

    async def _look(self, limit: int, walk: _Walk) -> list[Piece]:
        """What is to be read of a partition next. What goes wrong is the partition's own."""
        walk.is_done = True
        try:
            view, found = await look(self._site, walk.place, walk.since, limit)
        except Corrupt as error:
            key = keys.chain(walk.place.tp)
            self._list(walk, [defect("corrupt_record", walk.place.tp, key, walk.since, walk.since, str(error))])
            return []
        except CatenaError as error:
            walk.errors[f"{type(error).__name__}: {error}"] = None
            return []
        self._list(walk, found)
        walk.is_deleted = view.chain.deleted
        if walk.is_deleted:
            return []
        pieces = list(pieces_of(view, self._settings.task_bytes))
        if not view.is_whole:
            walk.since = view.entries[-1].end_offset + 1
            walk.until = walk.until or tail_of(view.chain, view.control)
            walk.is_done = walk.since >= walk.until
        return pieces

    async def _read(self, planned: Sequence[_Planned]) -> None:
        groups = list(_group(planned, self._settings.task_bytes))
        self._tell(bytes=sum(each.piece.size for each in planned))

        def done(number: int, _: bytes | TaskFailed) -> None:
            self._tell(bytes_done=sum(each.piece.size for each in groups[number]))

        plans = [
            msgspec.json.encode(AuditPlan(self._site.cluster_id, tuple(each.piece for each in group)))
            for group in groups
        ]
        found: dict[Place, list[Defect]] = {}
        walks: dict[Place, _Walk] = {}
        for group, result in zip(groups, await self._work.run("audit", plans, done), strict=True):
            results = [None] * len(group) if isinstance(result, TaskFailed) else _result.decode(result).pieces
            for (walk, piece), each in zip(group, results, strict=True):
                walks[walk.place] = walk
                if each is None:
                    assert isinstance(result, TaskFailed)
                    walk.errors[result.error] = None
                    walk.trail.break_off()
                else:
                    found.setdefault(walk.place, []).extend(_add(walk, piece, each))
        confirmed = await map_bounded(AT_ONCE, lambda place: self._confirm(walks[place], found[place]), list(found))
        for place, defects in zip(found, confirmed, strict=True):
            self._list(walks[place], defects)

    async def _confirm(self, walk: _Walk, found: Sequence[Defect]) -> list[Defect]:
        if not found:
            return []
        try:
            return await still_stands(self._site, walk.place, found)
        except CatenaError as error:
            walk.errors[f"{type(error).__name__}: {error}"] = None
            return []

    def _list(self, walk: _Walk, found: Sequence[Defect]) -> None:
        for each in found:
            if each in walk.defects:
                continue
            if len(walk.defects) < LISTED_OF_PARTITION and self._listed < LISTED:
                walk.defects[each] = None
                self._listed += 1
            else:
                walk.unlisted += each.severity == "damage"

    def _tell(self, partitions_done: int = 0, bytes: int = 0, bytes_done: int = 0) -> None:
        was = self._progress
        self._progress = Progress(
            was.partitions, was.partitions_done + partitions_done, was.bytes + bytes, was.bytes_done + bytes_done
        )
        self._show(self._progress)


async def look(site: Site, place: Place, since: Offset, limit: int) -> tuple[View, list[Defect]]:
    """A view of the partition from `since` on, and what is surely wrong with it. Raises Corrupt if its chain is."""
    before: set[Defect] | None = None
    for _ in range(LOOKS):
        view = await read_view(site, place, since, limit)
        found = audit_checks.check(view)
        if not found:
            return view, []
        if not view.is_settled:
            continue
        leftovers = {each for each in found if each.severity == "leftover"}
        if not leftovers or before is not None:
            return view, [each for each in found if each not in leftovers or each in (before or ())]
        before = leftovers
    raise Contended(f"the chain of {place.tp} was changed {LOOKS} times while it was looked at")


def pieces_of(view: View, max_bytes: int) -> Iterator[Piece]:
    """All that is to be read, in the order of offsets."""
    tp, start = view.tp, max(view.since, view.chain.start)
    segments: list[SegmentInfo] = []
    size = since_ms = before_ms = 0
    for segment in view.manifest.segments if view.manifest is not None else ():
        if segment.end > start:
            if segments and size + segment.size > max_bytes:
                yield Piece(*tp, segments=tuple(segments), since_ms=since_ms)
                segments, size = [], 0
            if not segments:
                since_ms = before_ms
            segments.append(segment)
            size += segment.size
        before_ms = max(before_ms, segment.appended_at_ms)
    if segments:
        yield Piece(*tp, segments=tuple(segments), since_ms=since_ms)
    runs: list[IndexEntry] = []
    size = 0
    for entry in covering(view):
        is_next = runs and runs[-1].end_offset + 1 == entry.start_offset
        if runs and (not is_next or size + (entry.byte_length or 0) > max_bytes or len(runs) == RUNS_PER_PIECE):
            yield Piece(*tp, runs=tuple(runs))
            runs, size = [], 0
        runs.append(entry)
        size += entry.byte_length or 0
    if runs:
        yield Piece(*tp, runs=tuple(runs))


def _group(planned: Sequence[_Planned], max_bytes: int) -> Iterator[list[_Planned]]:
    """What one task does: neighbours, about so many bytes, at least one piece."""
    group: list[_Planned] = []
    size = 0
    for each in planned:
        cost = each.piece.size + RUN_COST * len(each.piece.runs)
        if group and size + cost > max_bytes:
            yield group
            group, size = [], 0
        group.append(each)
        size += cost
    if group:
        yield group


def _add(walk: _Walk, piece: Piece, result: PieceResult) -> list[Defect]:
    """Add what was read of a piece to its partition's audit; returns what was found, its place in the log included."""
    walk.offsets += result.offsets
    walk.batches += result.batches
    walk.bytes += result.bytes
    walk.unlisted += result.unlisted
    walk.errors |= dict.fromkeys(result.errors)
    if piece.base != walk.reached:
        walk.trail.break_off()
    walk.reached = piece.end
    breaks = walk.trail.follow(result.track)
    joined = [defect(b.kind, piece.tp, piece.key_at(b.first), b.first, b.last, b.what) for b in breaks]
    return [*result.defects, *joined]


def _used(before: Mapping[Executor, Usage], after: Mapping[Executor, Usage]) -> dict[str, Usage]:
    """A session that is kept warm has done other jobs before."""
    found: dict[str, Usage] = {}
    for executor, usage in after.items():
        was = before.get(executor, Usage())
        requests = {kind: count - was.requests.get(kind, 0) for kind, count in usage.requests.items()}
        found[str(executor)] = Usage(
            usage.tasks - was.tasks,
            usage.bytes_read - was.bytes_read,
            usage.bytes_written - was.bytes_written,
            {kind: count for kind, count in requests.items() if count},
        )
    return {name: usage for name, usage in found.items() if usage.tasks}


def _unchecked(walk: _Walk) -> Unchecked:
    return Unchecked(walk.place.tp.topic, walk.place.tp.partition, "; ".join(walk.errors))
