"""What the stored state may never look like, checked at every single change of the meta store and at the end.

The TLA+ invariants of the leaderless log, stated over our records and, where they speak of time, over each change:

    S1  an index entry and a handoff are written once, and the end of a link is; an epoch names one link only
    S2  `next` and the epoch of a control record never go back; nor do `start` and `next_epoch` of a chain
    S3  a fenced control record takes no append; a link is closed only where its control record is fenced
    S7  no two index entries overlap, and none lies at or beyond `next`
    S8  every offset below `next` that a reader may ask for is in the index or in `pending`
    S9  an index entry comes up below the boundary only by a writer that had looked before the boundary passed it
"""

from __future__ import annotations

from bisect import bisect_left

import msgspec

from catena.loglets.diskless.records import Control, IndexEntry
from catena.meta import keys
from catena.virtual_log.chain import Chain, Link
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

    def passed_at(self, offset: int) -> int | None:
        """The number of the change with which the boundary passed this offset."""
        at = bisect_left(self.boundaries, (offset + 1, 0))
        return self.boundaries[at][1] if at < len(self.boundaries) else None

    def covers(self, start: int, end: int) -> int:
        """The first offset in [start, end) that is neither in the index nor in `pending`; `end` if there is none."""
        pending = self.control.pending.entries if self.control is not None and self.control.pending is not None else ()
        by_start = {entry.start_offset: entry for entry in pending}
        at = start
        while at < end:
            found = bisect_left(self.ends, at)
            entry = self.entries[self.ends[found]] if found < len(self.ends) else None
            if entry is None or entry.start_offset > at:
                entry = by_start.get(at)
            if entry is None:
                return at
            at = entry.end_offset + 1
        return end


class Invariants:
    def __init__(self) -> None:
        self.violations: list[Violation] = []
        self.partitions: dict[str, PartitionState] = {}
        self._changes = 0

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

    def check_end(self) -> None:
        """Once everything is quiet: all that a reader may ask for can be found."""
        for state in self.partitions.values():
            if state.control is None or (state.chain is not None and state.chain.deleted):
                continue
            for base, end in _diskless_ranges(state):
                gap = state.covers(base, end)
                if gap < end:
                    self._broken("S8", f"{state.prefix} offset {gap} of [{base}, {end}) is in no index entry")

    def _control_changed(self, state: PartitionState, new: Control) -> None:
        old, state.control = state.control, new
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
            boundary = state.chain.boundary if state.chain is not None else 0
            for entry in old.pending.entries:
                if entry.end_offset >= boundary and entry.end_offset not in state.entries:
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
        if state.control is None or end >= state.control.next:
            self._broken("S7", f"{state.prefix} index entry {end} lies beyond next")

    def _chain_changed(self, state: PartitionState, new: Chain) -> None:
        old, state.chain = state.chain, new
        if new.boundary > state.boundaries[-1][0]:
            state.boundaries.append((new.boundary, self._changes))
        for link in new.links:
            if state.links.setdefault(link.epoch, (link.kind, link.base)) != (link.kind, link.base):
                self._broken("S1", f"{state.prefix} epoch {link.epoch} names {state.links[link.epoch]} and {link}")
            if link.end is not None and (old is None or _link_of(old, link.epoch) is None or old.last.is_open):
                self._check_closed(state, link)
        if old is None:
            return
        if new.start < old.start or new.next_epoch < old.next_epoch or new.revision != old.revision + 1:
            self._broken("S2", f"{state.prefix} chain went back: {old} then {new}")
        if old.deleted and not new.deleted:
            self._broken("deleted", f"{state.prefix} chain came back")
        for link in old.links:
            now = _link_of(new, link.epoch)
            gone = link.end is not None and (link.end <= new.start or link.end == link.base)
            if now is None and not gone and not (link is old.last and new.last.base == link.base):
                self._broken("S1", f"{state.prefix} {link} vanished from the chain")
            if now is not None and link.end is not None and now.end != link.end:
                self._broken("S1", f"{state.prefix} {link} became {now}")

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
