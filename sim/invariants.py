"""What the stored state may never look like, checked at every single change of the meta store and at the end.

The TLA+ invariants of the leaderless log, stated over our records and, where they speak of time, over each change:

    S1  an index entry and a handoff are written once, and the end of a link is; an epoch names one link only, and its
        base moves only with the boundary; leader epochs of offsets never change
    S2  `next` and the epoch of a control record never go back; nor do `start` and `next_epoch` of a chain
    S3  a fenced control record takes no append; a link is closed only where its control record is fenced
    S4  (CompactionPreservesData) every offset from the start to the tail is once in the tiered manifest, the index or
        `pending`; a segment holds the bytes of the runs that it stands for, and as long as the chain names a manifest,
        it is there with all its segments that are not below the start
    S5  (NoPhantomEntries) what an index entry or `pending` names is there, if it lies at or above the boundary; of a
        deleted topic nothing is left after the last vacuum but its fences (`pipeline_workload` looks)
    S6  (cursor <= counter) the boundary never goes back, and never passes `next`
    S7  no two index entries overlap, and none lies at or beyond `next`
    S8  every offset below `next` that a reader may ask for is in the index or in `pending`
    S9  (SequentialCompactionSafety) only the job that the chain names commits, and only once: one that was abandoned or
        had its place taken never does. What it commits goes on where the last commit ended, and has no segments
        but its own and those that the chain named until then: others may be gone. An index entry
        comes up below the boundary only by a writer that had looked before the boundary passed it
    S10 what a job has taken the place of, segments and blobs, is not deleted for as long as a plan may name it, counted
        from when the chain says that it took the job's manifest; unless the whole tiered part was trimmed since
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Callable, Iterator

import msgspec

from catena.errors import Corrupt, InvalidBatch
from catena.formats import manifest as manifests
from catena.formats import segment as segments
from catena.formats.record_batch import split_batches
from catena.formats.records import Record, iter_records
from catena.formats.segment import SegmentInfo
from catena.loglets.diskless.blobs import as_batches, object_key
from catena.loglets.diskless.records import Control, IndexEntry
from catena.meta import keys
from catena.virtual_log.chain import TIERED, Chain, Link
from sim.checker import Violation
from sim.steps import kind_of

DISKLESS = "diskless"

_control = msgspec.json.Decoder(Control)
_chain = msgspec.json.Decoder(Chain)
_entry = msgspec.json.Decoder(IndexEntry)


class PartitionState:
    """One partition's records as they stand, decoded."""

    def __init__(self, prefix: str) -> None:
        self.prefix = prefix
        self.control: Control | None = None
        self.chain: Chain | None = None
        self.entries: dict[int, IndexEntry] = {}
        """By end offset."""
        self.ends: list[int] = []
        self.links: dict[int, tuple[str, int]] = {}
        """By epoch: kind and base of the link that was given it."""
        self.boundaries: list[tuple[int, int]] = [(0, 0)]
        """Each boundary and the number of the change that brought it."""
        self.runs: dict[int, tuple[int, bytes]] = {}
        """By first offset: end and bytes of each run that ever was in the index."""
        self.segments: dict[str, SegmentInfo] = {}
        """Of the manifest that the chain names."""
        self.over: set[str] = set()
        """Jobs that committed, were abandoned, or had their place taken."""
        self.epochs: dict[int, int] = {}
        """By offset: which epoch has written it."""
        self.replaced: dict[str, int] = {}
        """By object: when, in milliseconds, the chain took a manifest that has no place for it."""

    @property
    def start(self) -> int:
        return self.chain.start if self.chain is not None else 0

    @property
    def boundary(self) -> int:
        return self.chain.boundary if self.chain is not None else 0

    @property
    def is_deleted(self) -> bool:
        return self.chain is not None and self.chain.deleted

    def references(self, readable: bool = True) -> dict[str, int]:
        """Objects that readers may be sent to, and an offset for which; if not `readable`, all that anything names.

        Only what is pending below the boundary is nobody's: it is not written to the index any more.
        """
        start, boundary = (self.start, self.boundary) if readable else (-1, -1)
        found = {key: info.base for key, info in self.segments.items() if info.end > start}
        if self.chain is not None and self.chain.tiered is not None:
            found[self.chain.tiered.params["manifest"]] = self.chain.tiered.base
        pending = self.control.pending.entries if self.control is not None and self.control.pending is not None else ()
        named = [entry for entry in self.entries.values() if entry.end_offset >= boundary]
        named += [entry for entry in pending if entry.end_offset >= self.boundary]
        return found | {object_key(entry.data_key): entry.start_offset for entry in named}

    def passed_at(self, offset: int) -> int | None:
        """The number of the change with which the boundary passed this offset."""
        at = bisect_left(self.boundaries, (offset + 1, 0))
        return self.boundaries[at][1] if at < len(self.boundaries) else None

    def covers(self, start: int, end: int) -> int:
        """The first offset in [start, end) that is neither in the index nor in `pending`; `end` if there is none."""
        pending = self.control.pending.entries if self.control is not None and self.control.pending is not None else ()
        at = start
        while at < end:
            found = bisect_left(self.ends, at)
            entry = self.entries[self.ends[found]] if found < len(self.ends) else None
            if entry is None or entry.start_offset > at:
                entry = next((each for each in pending if each.start_offset <= at <= each.end_offset), None)
            if entry is None:
                return at
            at = entry.end_offset + 1
        return end


class Invariants:
    def __init__(self, find_object: Callable[[str], bytes | None] | None = None) -> None:
        """`find_object` looks into the object store; without it nothing is said about objects."""
        self._find_object = find_object
        self._now_ms: Callable[[], int] = lambda: 0
        self._kept_ms = 0
        self.violations: list[Violation] = []
        self.partitions: dict[str, PartitionState] = {}
        self._changes = 0

    def keep_replaced(self, kept_ms: int, now_ms: Callable[[], int]) -> None:
        """What was replaced has to stay for so long."""
        self._kept_ms, self._now_ms = kept_ms, now_ms

    def changed(self, key: str, old: bytes | None, new: bytes | None) -> None:
        """One record was written (or, with `new` None, deleted)."""
        self._changes += 1
        if "/partitions/" not in key:
            return
        state = self._state(key)
        match kind_of(key):
            case "control" if new is not None:
                self._control_changed(state, _control.decode(new))
            case "chain" if new is not None:
                self._chain_changed(state, _chain.decode(new))
            case "index":
                self._index_changed(state, int(key[-keys.OFFSET_DIGITS :]), None if new is None else _entry.decode(new))
            case "handoff" if old is not None and new is not None and old != new:
                self._broken("S1", f"{key} was written twice")

    def index_put(self, key: str, looked: int | None) -> None:
        """An index entry was put alone, by somebody who last looked at the chain at that change; None: never."""
        state = self._state(key)
        passed_at = state.passed_at(int(key[-keys.OFFSET_DIGITS :]))
        if passed_at is not None and (looked is None or looked >= passed_at):
            self._broken("S9", f"{key} was put below the boundary, which had passed it at {passed_at}, seen {looked}")

    def object_deleted(self, key: str) -> None:
        for state in self.partitions.values():
            if not state.is_deleted and (offset := state.references().get(key)) is not None:
                rule = "S5" if key.startswith(keys.WAL_BLOBS) else "S4"
                self._broken(rule, f"{state.prefix} offset {offset} is in {key}, which was deleted")
            at_ms = None if state.is_deleted else state.replaced.get(key)
            if at_ms is not None and self._now_ms() - at_ms < self._kept_ms:
                self._broken("S10", f"{state.prefix} {key} was replaced at {at_ms}, and deleted at {self._now_ms()}")

    def check_end(self) -> None:
        """Once everything is quiet: all that a reader may ask for can be found."""
        for state in self.partitions.values():
            if state.is_deleted:
                continue
            self._check_covered(state)
            for key in state.references() if self._find_object is not None else ():
                self._check_there(state, key)

    def _control_changed(self, state: PartitionState, new: Control) -> None:
        old, state.control = state.control, new
        for pending in new.pending.entries if new.pending is not None else ():
            if pending.end_offset >= state.boundary:
                self._check_there(state, object_key(pending.data_key))
        if new.pending is not None and new.pending.entries[-1].end_offset != new.next - 1:
            self._broken(
                "S7", f"{state.prefix} pending ends at {new.pending.entries[-1].end_offset}, next is {new.next}"
            )
        if old is None:
            return
        if new.next < old.next or new.epoch < old.epoch:
            self._broken("S2", f"{state.prefix} control went back: {_brief(old)} then {_brief(new)}")
        if old.state == "FENCED" and new.epoch == old.epoch and (new.state, new.next) != (old.state, old.next):
            self._broken("S3", f"{state.prefix} fenced, but changed: {_brief(old)} then {_brief(new)}")
        if old.pending is not None and (new.pending is None or new.pending.append_id != old.pending.append_id):
            for entry in old.pending.entries:
                if entry.end_offset >= state.boundary and entry.end_offset not in state.entries:
                    self._broken("S8", f"{state.prefix} pending {entry.end_offset} was overwritten, and is in no index")

    def _index_changed(self, state: PartitionState, end: int, new: IndexEntry | None) -> None:
        old = state.entries.get(end)
        at = bisect_left(state.ends, end)
        if new is None:
            if old is not None:
                del state.entries[end]
                del state.ends[at]
                if state.chain is None or not (state.chain.deleted or end < state.chain.boundary):
                    self._broken("S8", f"{state.prefix} index entry {end} was deleted above the boundary")
            return
        if old is not None:
            self._broken("S1", f"{state.prefix} index entry {end} was written twice")
            return
        for other in (state.entries[each] for each in state.ends[max(at - 1, 0) : at + 1]):
            if other.start_offset <= new.end_offset and new.start_offset <= other.end_offset:
                self._broken("S7", f"{state.prefix} index entries {other} and {new} overlap")
        state.entries[end] = new
        state.ends.insert(at, end)
        if end >= state.boundary and not state.is_deleted:
            self._entry_created(state, new)
        if state.control is None or end >= state.control.next:
            self._broken("S7", f"{state.prefix} index entry {end} lies beyond next")

    def _chain_changed(self, state: PartitionState, new: Chain) -> None:
        old, state.chain = state.chain, new
        if new.boundary > state.boundaries[-1][0]:
            state.boundaries.append((new.boundary, self._changes))
        tiered = new.tiered
        was_tiered = tiered is not None and (old is None or _link_of(old, tiered.epoch) is None)
        for link in new.links:
            named = state.links.setdefault(link.epoch, (link.kind, link.base))
            if named != (link.kind, link.base):
                state.links[link.epoch] = (link.kind, link.base)
                if not (was_tiered and tiered is not None and named[0] == link.kind and link.base == tiered.end):
                    self._broken("S1", f"{state.prefix} epoch {link.epoch} names {named} and {link}")
            if link.end is not None and (old is None or _link_of(old, link.epoch) is None or old.last.is_open):
                self._check_closed(state, link)
        if was_tiered and tiered is not None:
            self._tiered(state, old, tiered)
        if old is not None and old.tiering is not None and old.tiering != new.tiering:
            state.over.add(old.tiering)
        if tiered is None:
            state.segments, state.replaced = {}, {}
        if not new.deleted:
            self._check_covered(state)
            self._check_epochs(state, new)
        if old is None:
            return
        if new.start < old.start or new.next_epoch < old.next_epoch or new.revision != old.revision + 1:
            self._broken("S2", f"{state.prefix} chain went back: {old} then {new}")
        if new.boundary < old.boundary:
            self._broken("S6", f"{state.prefix} boundary went back: {old} then {new}")
        if old.deleted and not new.deleted:
            self._broken("deleted", f"{state.prefix} chain came back")
        for link in old.links:
            now = _link_of(new, link.epoch)
            gone = link.end is not None and (link.end <= new.start or link.end == link.base)
            if was_tiered and tiered is not None and tiered.end is not None:
                gone = gone or link.kind == TIERED or (link.end is not None and link.end <= tiered.end)
            if now is None and not gone and not (link is old.last and new.last.base == link.base):
                self._broken("S1", f"{state.prefix} {link} vanished from the chain")
            if now is not None and link.end is not None and now.end != link.end:
                self._broken("S1", f"{state.prefix} {link} became {now}")

    def _tiered(self, state: PartitionState, old: Chain | None, link: Link) -> None:
        """A job has committed: the chain names its manifest now."""
        key = link.params["manifest"]
        job = key.rpartition("/")[2]
        if old is None or old.tiering != job or job in state.over:
            self._broken("S9", f"{state.prefix} job {job} committed, and the chain had {old and old.tiering}")
        if old is not None and not (link.base <= max(old.start, old.links[0].base) and old.boundary <= (link.end or 0)):
            self._broken("S9", f"{state.prefix} {link} does not go on from {old}")
        if state.control is None or link.end is None or link.end > state.control.next:
            self._broken("S6", f"{state.prefix} {link} passes {state.control and _brief(state.control)}")
        if self._find_object is None:
            return
        found, before = self._find_object(key), state.segments
        try:
            manifest = manifests.decode(found if found is not None else b"", key)
        except Corrupt as error:
            self._broken("S4", f"{state.prefix} {link}: the manifest is missing or broken: {error}")
            return
        if (manifest.base, manifest.end) != (link.base, link.end):
            self._broken("S4", f"{state.prefix} {link}: its manifest has [{manifest.base}, {manifest.end})")
        state.segments = {info.key: info for info in manifest.segments}
        first, at_ms = old.boundary if old is not None else 0, int(link.params.get("at_ms", 0))
        blobs = [object_key(entry.data_key) for end, entry in state.entries.items() if first <= end < manifest.end]
        state.replaced |= dict.fromkeys([*(before.keys() - state.segments.keys()), *blobs], at_ms)
        ends = [manifest.base, *(info.end for info in manifest.segments)]
        if [info.base for info in manifest.segments] != ends[:-1] or ends[-1] != manifest.end:
            self._broken("S4", f"{state.prefix} {key}: segments of [{manifest.base}, {manifest.end}) do not meet")
        for info in manifest.segments:
            if info.key not in before:
                self._check_segment(state, info)
                if info.compaction_id != job:
                    self._broken("S9", f"{state.prefix} {info.key} came back with job {job}")

    def _check_segment(self, state: PartitionState, info: SegmentInfo) -> None:
        """Byte for byte what the runs were; those that were trimmed before they came to the index are not known."""
        self._check_there(state, info.key)
        found = self._find_object(info.key) if self._find_object is not None else None
        if info.is_compacted and found is not None:
            self._check_compacted(state, info, found)
            return
        at, position = info.base, info.body_at
        while found is not None and at < info.end:
            end, body = state.runs.get(at, (info.end, None))
            if body is None or end > info.end or found[position : position + len(body)] != body:
                self._broken("S4", f"{state.prefix} {info.key} does not hold the run of {at}")
                return
            at, position = end, position + len(body)

    def _check_compacted(self, state: PartitionState, info: SegmentInfo, found: bytes) -> None:
        """Sound, and each record is one of those that the runs had at its offset."""
        try:
            segments.check(found, info.key)
        except Corrupt as error:
            self._broken("S4", f"{state.prefix} {info.key}: {error}")
            return
        written = {
            record.offset: record
            for start, (_, body) in state.runs.items()
            if info.base <= start < info.end
            for record in _records(start, body)
        }
        for record in _records(info.base, found[info.body_at : info.index_at]):
            if written.get(record.offset) != record:
                self._broken("S4", f"{state.prefix} {info.key} has at {record.offset} what was not written there")

    def _check_covered(self, state: PartitionState) -> None:
        if state.control is None:
            return
        for base, end in _diskless_ranges(state):
            gap = state.covers(base, end)
            if gap < end:
                self._broken("S8", f"{state.prefix} offset {gap} of [{base}, {end}) is in no index entry")
        tiered = state.chain.tiered if state.chain is not None else None
        if tiered is None or tiered.end is None:
            return
        at = bisect_left(state.ends, tiered.end)
        entry = state.entries[state.ends[at]] if at < len(state.ends) else None
        if entry is not None and entry.start_offset < tiered.end:
            self._broken("S4", f"{state.prefix} {entry} is partly in {tiered}: it is there twice")

    def _check_epochs(self, state: PartitionState, chain: Chain) -> None:
        """Of what is committed for sure: others may come to be written by the next link."""
        last, control = chain.last, state.control
        is_written = last.kind == DISKLESS and control is not None and control.epoch == last.epoch
        end = last.end if last.end is not None else control.next if control is not None and is_written else last.base
        for offset in range(chain.start, end):
            epoch = chain.epoch_at(offset)
            if state.epochs.setdefault(offset, epoch) != epoch:
                self._broken("S1", f"{state.prefix} offset {offset} was of epoch {state.epochs[offset]}, now {epoch}")
                return

    def _entry_created(self, state: PartitionState, entry: IndexEntry) -> None:
        key = object_key(entry.data_key)
        self._check_there(state, key)
        blob = self._find_object(key) if self._find_object is not None else None
        if blob is not None:
            body = as_batches(entry, memoryview(blob)[entry.byte_offset :][: entry.byte_length])
            state.runs[entry.start_offset] = (entry.end_offset + 1, bytes(body))

    def _check_there(self, state: PartitionState, key: str) -> None:
        if self._find_object is not None and self._find_object(key) is None:
            rule = "S5" if key.startswith(keys.WAL_BLOBS) else "S4"
            self._broken(rule, f"{state.prefix} {key} is referred to, and is not there")

    def _check_closed(self, state: PartitionState, link: Link) -> None:
        control = state.control
        if link.kind != DISKLESS or control is None or control.epoch > link.epoch:
            return
        if control.epoch != link.epoch or control.state != "FENCED" or control.next != link.end:
            self._broken("S3", f"{state.prefix} {link} was closed, but control is {_brief(control)}")

    def _state(self, key: str) -> PartitionState:
        prefix = key[: key.index("/", key.index("/partitions/") + len("/partitions/")) + 1]
        return self.partitions.setdefault(prefix, PartitionState(prefix))

    def _broken(self, rule: str, what: str) -> None:
        self.violations.append(Violation(f"{rule} (stored state)", what))


def _diskless_ranges(state: PartitionState) -> list[tuple[int, int]]:
    """What readers may ask the diskless links for."""
    assert state.control is not None
    chain = state.chain
    if chain is None:
        return [(0, state.control.next)]
    ranges = []
    for link in chain.links:
        if link.kind == DISKLESS:
            end = link.end
            if end is None:
                end = state.control.next if state.control.epoch == link.epoch else link.base
            ranges.append((max(link.base, chain.boundary), end))
    return ranges


def _link_of(chain: Chain, epoch: int) -> Link | None:
    return next((link for link in chain.links if link.epoch == epoch), None)


def _brief(control: Control) -> str:
    return f"epoch {control.epoch} {control.state} next {control.next}"


def _records(offset: int, body: bytes) -> Iterator[Record]:
    """A batch that can't be decoded counts as one record."""
    for header, batch in split_batches(body):
        try:
            yield from list(iter_records(batch, offset))
        except InvalidBatch:
            yield Record(offset, -1, None, bytes(batch), ())
        offset += header.count
