"""What the meta store and the manifest say of a partition, held against itself; pure.

    chain      links meet, epochs are as they must be, the tiered link is what its manifest says
    control    its epoch and tail are those of the chain's last diskless link
    index      from the boundary to the tail every offset is in one entry, or in what the control record has pending
    jobs       nothing is left of them: no record, no entries below the boundary

A `View` is read in this order: compaction record and claim, chain, control record, manifest, index, and the chain
again. If the chain is the same at the end (`is_settled`), what looks like damage is damage:

- an entry at or above the boundary is never deleted, and the chain moves the boundary before anyone deletes below it;
- what the control record counts is in the index, or pending in the very record that was read, since nobody replaces
  `pending` before it is in the index; what the index has beyond that came later, and is not looked at;
- a manifest that the chain names is not deleted while it does.

Leftovers come and go while jobs work: they count when they are seen twice.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Sequence
from typing import NamedTuple

from catena.formats.manifest import Manifest
from catena.loglets.diskless.records import Control, IndexEntry
from catena.meta import keys
from catena.pipeline.defects import Defect, Kind, defect
from catena.pipeline.records import DELETING, UPDATING, WRITING, CompactionRecord
from catena.types import Offset, TopicPartition
from catena.virtual_log.chain import TIERED, Chain, Link

DISKLESS = "diskless"

_LEFT: dict[str, tuple[Kind, str]] = {
    WRITING: ("compaction_writing", "the next job abandons it, and vacuum collects what it has written"),
    UPDATING: ("compaction_updating", "the next job finishes it, or abandons it"),
    DELETING: ("compaction_deleting", "the next job finishes it"),
}


class View(NamedTuple):
    tp: TopicPartition
    cluster_id: str
    chain: Chain
    is_settled: bool
    control: Control | None = None
    entries: Sequence[IndexEntry] = ()
    """Of the index, from `since` or the boundary on, whichever is later."""
    is_whole: bool = True
    """Whether these are all up to the index's end."""
    stale: Sequence[IndexEntry] = ()
    """Of the index, below the boundary."""
    manifest: Manifest | None = None
    compaction: CompactionRecord | None = None
    is_claimed: bool = False
    """Whether somebody works on the partition."""
    unreadable: Sequence[Defect] = ()
    """What could not even be decoded."""
    since: Offset = 0
    """Offsets below are not looked at: it was done before."""

    @property
    def first(self) -> Offset:
        return max(self.since, self.chain.boundary)


def check(view: View) -> list[Defect]:
    """All that is wrong; of a view that begins in the middle, what is wrong with its index."""
    if view.chain.deleted:
        return []
    found = [*view.unreadable, *check_index(view)]
    if view.since == 0:
        found += [*check_chain(view), *check_control(view), *check_manifest(view), *check_jobs(view)]
    return found


def tail_of(chain: Chain, control: Control | None) -> Offset:
    """Up to where the last link is known to reach."""
    last = chain.last
    if last.end is not None:
        return last.end
    return control.next if control is not None and control.epoch == last.epoch else last.base


def pending_entries(view: View) -> list[IndexEntry]:
    """Committed, and in the control record only, as far as the view tells."""
    if view.control is None or view.control.pending is None or not view.is_whole:
        return []
    known = {entry.end_offset for entry in view.entries}
    return [
        entry
        for entry in view.control.pending.entries
        if entry.end_offset not in known and entry.end_offset >= view.first
    ]


def covering(view: View) -> list[IndexEntry]:
    """The entries of the offsets that the control record counts, in order; those that came later are left out."""
    tail = tail_of(view.chain, view.control)
    entries = sorted([*view.entries, *pending_entries(view)], key=lambda entry: entry.end_offset)
    return [entry for entry in entries if entry.start_offset < tail]


def check_chain(view: View) -> Iterator[Defect]:
    chain, tp = view.chain, view.tp
    key = keys.chain(tp)
    end = tail_of(chain, view.control)
    for left, right in itertools.pairwise(chain.links):
        if left.end != right.base:
            edges = sorted((right.base, left.end if left.end is not None else right.base))
            what = f"{_named(left)} is followed by {_named(right)}"
            yield defect("links_do_not_meet", tp, key, edges[0], max(edges[0], edges[1] - 1), what)
        if left.kind != TIERED and left.epoch >= right.epoch:
            what = f"epochs don't grow: {_named(left)} is followed by {_named(right)}"
            yield defect("chain_mismatch", tp, key, right.base, max(right.base, end - 1), what)
    for link in chain.links:
        last = link.end if link.end is not None else end
        wrong = [
            link.epoch >= chain.next_epoch,
            link.end is not None and link.end < link.base,
            link.kind == TIERED and link is not chain.links[0],
        ]
        if any(wrong):
            what = f"{_named(link)} can't be, and the next epoch is {chain.next_epoch}"
            yield defect("chain_mismatch", tp, key, link.base, max(link.base, last - 1), what)
    if chain.start < chain.links[0].base or (chain.last.end is not None and chain.start > chain.last.end):
        what = f"the log starts at {chain.start}, and its links reach from {chain.links[0].base} to {end}"
        yield defect("chain_mismatch", tp, key, chain.start, max(chain.start, end - 1), what)


def check_control(view: View) -> Iterator[Defect]:
    chain, control, tp = view.chain, view.control, view.tp
    key = keys.control(tp)
    last = chain.last
    if control is None:
        for link in chain.links:
            if link.kind == DISKLESS and link.end is not None and link.end > max(link.base, view.first):
                what = f"there is no control record, and {_named(link)}"
                yield defect("control_mismatch", tp, key, link.base, link.end - 1, what)
        return
    told = f"the control record has epoch {control.epoch}, {control.state}, next {control.next}"
    if control.epoch > last.epoch:
        yield defect("control_mismatch", tp, key, last.base, control.next, f"{told}, and the chain: {_named(last)}")
    for link in chain.links:
        if link.kind != DISKLESS or link.epoch != control.epoch:
            continue
        is_sealed = link.end is not None
        if control.next < link.base or (is_sealed and (control.next, control.state) != (link.end, "FENCED")):
            edges = sorted((control.next, link.end if link.end is not None else link.base))
            what = f"{told}, and the chain: {_named(link)}"
            yield defect("control_mismatch", tp, key, edges[0], max(edges[0], edges[1] - 1), what)
        elif not is_sealed and control.state == "FENCED" and chain.intent is None:
            what = f"{told}: nothing can be appended, and the chain knows of no change under way"
            yield defect("control_mismatch", tp, key, control.next, control.next, what)
    pending = control.pending
    if pending is not None and (not pending.entries or pending.entries[-1].end_offset + 1 != control.next):
        what = f"{told}, and what is pending does not end there"
        yield defect("control_mismatch", tp, key, control.next, control.next, what)


def check_index(view: View) -> Iterator[Defect]:
    """Every offset from the boundary on once, and no bytes of an object twice."""
    tp = view.tp
    entries = covering(view)
    end = tail_of(view.chain, view.control) if view.is_whole else max((e.end_offset + 1 for e in entries), default=0)
    ranges = [(low, min(high, end)) for low, high in _diskless(view) if low < end]
    place, following = 0, ranges[0][0] if ranges else 0
    for entry in entries:
        key = keys.index(tp, entry.end_offset)
        while place < len(ranges) and entry.start_offset >= ranges[place][1]:
            yield from _gap(view, following, ranges[place][1])
            place += 1
            following = ranges[place][0] if place < len(ranges) else following
        if place == len(ranges):
            break
        low, high = ranges[place]
        yield from _gap(view, following, entry.start_offset)
        if entry.start_offset < following and not (following == low and _may_cut(view, low)):
            what = f"it begins at {entry.start_offset}, and what comes before reaches to {following - 1}"
            yield defect("overlap", tp, key, entry.start_offset, min(following - 1, entry.end_offset), what)
        if entry.end_offset >= high:
            what = f"it ends at {entry.end_offset}, and the link or the log at {high - 1}"
            yield defect("overlap", tp, key, high, entry.end_offset, what)
        following = max(following, entry.end_offset + 1)
    for low, high in ranges[place:]:
        yield from _gap(view, max(low, following), high)
    yield from _stored_twice(view, entries)


def check_manifest(view: View) -> Iterator[Defect]:
    link, manifest, tp = view.chain.tiered, view.manifest, view.tp
    if link is None or manifest is None:
        return
    key = str(link.params.get("manifest"))
    said = (view.cluster_id, tp.topic_id, tp.topic, tp.partition, link.base, link.end)
    found = (manifest.cluster_id, manifest.topic_id, manifest.topic, manifest.partition, manifest.base, manifest.end)
    last = max(link.base, (link.end or 0) - 1)
    if said != found:
        yield defect("manifest_mismatch", tp, key, link.base, last, f"it is of {found}, and the chain says {said}")
    size = sum(segment.size for segment in manifest.segments)
    for name, value in (("segments", len(manifest.segments)), ("bytes", size)):
        if link.params.get(name, value) != value:
            what = f"it has {value} {name}, and the chain says {link.params[name]}"
            yield defect("manifest_mismatch", tp, key, link.base, last, what)


def check_jobs(view: View) -> Iterator[Defect]:
    """What jobs and writers have left behind."""
    chain, tp = view.chain, view.tp
    for stretch in _stretches(view.stale):
        what = f"{len(stretch)} entries lie below the boundary, {chain.boundary}: the next job deletes them"
        key = keys.index(tp, stretch[0].end_offset)
        yield defect("stale_entry", tp, key, stretch[0].start_offset, stretch[-1].end_offset, what)
    if view.control is not None and view.control.pending is not None and (left := pending_entries(view)):
        what = f"append {view.control.pending.append_id} is in no index yet: the next append writes it down"
        yield defect("pending_left", tp, keys.control(tp), left[0].start_offset, left[-1].end_offset, what)
    if view.is_claimed:
        return
    if (record := view.compaction) is not None:
        kind, then = _LEFT[record.state]
        what = f"nobody works on job {record.compaction_id}: {then}"
        yield defect(kind, tp, keys.compaction(tp), record.start_offset, record.end_offset, what)
    elif chain.tiering is not None:
        what = f"the chain waits for job {chain.tiering}, of which nothing is left: the next one takes its place"
        yield defect("tiering_left", tp, keys.chain(tp), chain.links[0].base, chain.boundary, what)


def _diskless(view: View) -> list[tuple[Offset, Offset]]:
    """What the index has to cover: neighbouring links together."""
    ranges: list[tuple[Offset, Offset]] = []
    for link in view.chain.links:
        low = max(link.base, view.first)
        high = link.end if link.end is not None else tail_of(view.chain, view.control)
        if link.kind != DISKLESS or low >= high:
            continue
        if ranges and ranges[-1][1] == low:
            ranges[-1] = (ranges[-1][0], high)
        else:
            ranges.append((low, high))
    return ranges


def _may_cut(view: View, low: Offset) -> bool:
    """Whether an entry may begin before the first offset that is looked at: a trim cuts runs, tiering does not."""
    return low == view.first and (low == view.since > 0 or (view.chain.tiered is None and low == view.chain.start))


def _gap(view: View, low: Offset, high: Offset) -> Iterator[Defect]:
    if low < high:
        what = f"no entry of the index holds these {high - low} offsets"
        yield defect("gap", view.tp, keys.index(view.tp, high - 1), low, high - 1, what)


def _stored_twice(view: View, entries: Sequence[IndexEntry]) -> Iterator[Defect]:
    """The same bytes under two offsets: an append that was committed twice."""
    ends: dict[str, int] = {}
    for entry in sorted(entries, key=lambda entry: (entry.data_key, entry.byte_offset, entry.end_offset)):
        if entry.byte_offset < ends.get(entry.data_key, 0):
            key = keys.index(view.tp, entry.end_offset)
            what = f"its bytes in object {entry.data_key} are another entry's, too"
            yield defect("duplicate_batch", view.tp, key, entry.start_offset, entry.end_offset, what)
        end = entry.byte_offset + (entry.byte_length if entry.byte_length is not None else 1 << 62)
        ends[entry.data_key] = max(end, ends.get(entry.data_key, 0))


def _stretches(entries: Sequence[IndexEntry]) -> list[list[IndexEntry]]:
    stretches: list[list[IndexEntry]] = []
    for entry in entries:
        if stretches and stretches[-1][-1].end_offset + 1 == entry.start_offset:
            stretches[-1].append(entry)
        else:
            stretches.append([entry])
    return stretches


def _named(link: Link) -> str:
    end = "on" if link.end is None else f"to {link.end}"
    return f"the {link.kind} link of epoch {link.epoch} from {link.base} {end}"
