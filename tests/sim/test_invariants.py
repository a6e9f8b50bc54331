"""The invariants over stored state: each of these changes must never be seen, and is found out at once."""

from __future__ import annotations

from collections.abc import Callable

import msgspec
import pytest

from catena.formats.manifest import Manifest
from catena.formats.manifest import encode as encode_manifest
from catena.formats.segment import SegmentInfo
from catena.loglets.diskless.records import Control, IndexEntry, Pending, encode
from catena.meta import keys
from catena.types import TopicId, TopicPartition
from catena.virtual_log.chain import Chain, Link
from sim.invariants import Invariants

TP = TopicPartition("t", TopicId("1" * 32), 0)


class State:
    """A meta store that only tells the invariants what changes in it."""

    def __init__(self) -> None:
        self.invariants = Invariants()
        self.values: dict[str, bytes] = {}

    def put(self, key: str, value: bytes) -> None:
        self.invariants.changed(key, self.values.get(key), value)
        self.values[key] = value

    def control(self, epoch: int, state: str, next_offset: int, pending: Pending | None = None) -> None:
        self.put(
            keys.control(TP), encode(msgspec.convert({"epoch": epoch, "state": state, "next": next_offset}, Control))
        )
        if pending is not None:
            self.put(keys.control(TP), encode(Control(epoch, "OPEN", next_offset, pending)))

    def index(self, end: int, count: int = 1, append_id: str = "a") -> None:
        self.put(keys.index(TP, end), encode(entry(end, count, append_id)))

    def chain(self, revision: int, *links: Link, next_epoch: int = 9, start: int = 0, deleted: bool = False) -> None:
        chain = Chain(links, next_epoch, start, deleted=deleted, revision=revision)
        self.put(keys.chain(TP), msgspec.json.encode(chain))

    def found(self) -> set[str]:
        self.invariants.check_end()
        return {violation.rule.split()[0] for violation in self.invariants.violations}


def entry(end: int, count: int = 1, append_id: str = "a") -> IndexEntry:
    return IndexEntry(end, count, "blob", 1, append_id=append_id)


def pending(end: int, append_id: str = "a") -> Pending:
    return Pending(append_id, (entry(end, append_id=append_id),), {})


def diskless(epoch: int, base: int, end: int | None = None) -> Link:
    return Link("diskless", epoch, base, end)


def sound(state: State) -> None:
    state.control(1, "OPEN", 2)
    state.index(1, 2)
    state.control(1, "OPEN", 3, pending(2, "b"))
    state.index(2, append_id="b")
    state.control(1, "FENCED", 3)
    state.chain(1, diskless(1, 0, 3), diskless(2, 3))
    state.control(2, "OPEN", 4, pending(3, "c"))
    state.chain(2, diskless(1, 0, 3), diskless(2, 3), start=2)
    state.invariants.changed(keys.index(TP, 1), state.values.pop(keys.index(TP, 1)), None)


def test_a_sound_history_is_clean() -> None:
    state = State()
    sound(state)
    assert state.found() == set()


def next_goes_back(state: State) -> None:
    state.control(1, "FENCED", 3)
    state.control(2, "OPEN", 2)


def epoch_goes_back(state: State) -> None:
    state.control(2, "OPEN", 0)
    state.control(1, "OPEN", 0)


def a_fenced_record_moves(state: State) -> None:
    state.control(1, "FENCED", 1)
    state.control(1, "FENCED", 2)


def a_fenced_record_opens_again(state: State) -> None:
    state.control(1, "FENCED", 1)
    state.control(1, "OPEN", 1)


def a_link_is_closed_that_is_not_fenced(state: State) -> None:
    state.control(1, "OPEN", 1)
    state.chain(1, diskless(1, 0, 1), diskless(2, 1))


def a_link_is_closed_below_its_fence(state: State) -> None:
    state.control(1, "FENCED", 2)
    state.chain(1, diskless(1, 0, 1), diskless(2, 1))


def pending_is_overwritten(state: State) -> None:
    state.control(1, "OPEN", 1, pending(0, "a"))
    state.control(1, "OPEN", 2, pending(1, "b"))


def pending_ends_elsewhere(state: State) -> None:
    state.control(1, "OPEN", 3, pending(1))


def entries_overlap(state: State) -> None:
    state.control(1, "OPEN", 5)
    state.index(2, 3)
    state.index(4, 3)


def an_entry_lies_beyond_next(state: State) -> None:
    state.control(1, "OPEN", 2)
    state.index(2)


def an_entry_changes(state: State) -> None:
    state.control(1, "OPEN", 2)
    state.index(1, 2, "a")
    state.index(1, 2, "b")


def an_entry_is_written_again(state: State) -> None:
    state.control(1, "OPEN", 2)
    state.index(1, 2)
    state.index(1, 2)


def an_entry_comes_up_below_the_boundary(state: State) -> None:
    trimmed(state, looked=5)


def an_entry_comes_up_below_a_boundary_that_nobody_looked_at(state: State) -> None:
    trimmed(state, looked=None)


def trimmed(state: State, looked: int | None) -> None:
    """The fourth change takes the boundary past offset 1, whose entry is put after it."""
    state.control(1, "OPEN", 4, pending(3, "b"))
    state.index(3, 2, "b")
    state.chain(1, diskless(1, 0), start=2)
    state.index(1, 2)
    state.invariants.index_put(keys.index(TP, 1), looked)


def an_entry_above_the_start_is_deleted(state: State) -> None:
    state.control(1, "OPEN", 2)
    state.index(1, 2)
    state.invariants.changed(keys.index(TP, 1), b"", None)


def an_offset_is_nowhere(state: State) -> None:
    state.control(1, "OPEN", 3)
    state.index(2)


def a_closed_link_moves_its_end(state: State) -> None:
    state.chain(1, diskless(1, 0, 3), diskless(2, 3))
    state.chain(2, diskless(1, 0, 4), diskless(2, 4))


def a_link_vanishes(state: State) -> None:
    state.chain(1, diskless(1, 0, 3), diskless(2, 3, 5), diskless(3, 5))
    state.chain(2, diskless(2, 3, 5), diskless(3, 5))


def an_epoch_names_two_links(state: State) -> None:
    state.chain(1, diskless(1, 0, 3), Link("memory", 2, 3))
    state.chain(2, diskless(1, 0, 3), diskless(2, 3))


def a_start_goes_back(state: State) -> None:
    state.chain(1, diskless(1, 0), start=2)
    state.chain(2, diskless(1, 0), start=1)


def a_chain_is_overwritten(state: State) -> None:
    state.chain(2, diskless(1, 0), start=2)
    state.chain(2, diskless(1, 0), start=2)


def a_deleted_chain_comes_back(state: State) -> None:
    state.chain(1, diskless(1, 0), deleted=True)
    state.chain(2, diskless(1, 0))


def a_handoff_changes(state: State) -> None:
    state.put(keys.handoff(TP, 2), b"{}")
    state.put(keys.handoff(TP, 2), b'{"1":{}}')


@pytest.mark.parametrize(
    ("change", "rule"),
    [
        (next_goes_back, "S2"),
        (epoch_goes_back, "S2"),
        (a_fenced_record_moves, "S3"),
        (a_fenced_record_opens_again, "S3"),
        (a_link_is_closed_that_is_not_fenced, "S3"),
        (a_link_is_closed_below_its_fence, "S3"),
        (pending_is_overwritten, "S8"),
        (pending_ends_elsewhere, "S7"),
        (entries_overlap, "S7"),
        (an_entry_lies_beyond_next, "S7"),
        (an_entry_changes, "S1"),
        (an_entry_is_written_again, "S1"),
        (an_entry_comes_up_below_the_boundary, "S9"),
        (an_entry_comes_up_below_a_boundary_that_nobody_looked_at, "S9"),
        (an_entry_above_the_start_is_deleted, "S8"),
        (an_offset_is_nowhere, "S8"),
        (a_closed_link_moves_its_end, "S1"),
        (a_link_vanishes, "S1"),
        (an_epoch_names_two_links, "S1"),
        (a_start_goes_back, "S2"),
        (a_chain_is_overwritten, "S2"),
        (a_deleted_chain_comes_back, "deleted"),
        (a_handoff_changes, "S1"),
    ],
)
def test_a_change_that_must_never_be_is_found_out(change: Callable[[State], None], rule: str) -> None:
    state = State()
    change(state)
    assert rule in state.found()


def test_an_entry_may_come_up_below_a_boundary_that_moved_after_its_writer_looked() -> None:
    state = State()
    trimmed(state, looked=3)
    assert state.found() == set()


def test_an_entry_at_the_boundary_or_above_it_may_always_come_up() -> None:
    state = State()
    trimmed(state, looked=3)
    state.invariants.index_put(keys.index(TP, 3), 5)
    assert state.found() == set()


# What jobs store

JOB, OTHER_JOB = "a" * 32, "b" * 32
BODY = b"run of two"
BLOB = keys.wal_blob("blob")


class TieredState(State):
    """A log of two runs, [0, 2) and [2, 4), in one blob, and objects that can be looked at."""

    def __init__(self) -> None:
        super().__init__()
        self.objects: dict[str, bytes] = {BLOB: 2 * BODY}
        self.invariants = Invariants(self.objects.get)
        self.control(1, "OPEN", 4)
        for end in (1, 3):
            run = IndexEntry(end, 2, BLOB, len(BODY), byte_offset=(end - 1) // 2 * len(BODY))
            self.put(keys.index(TP, end), encode(run))

    def segment(self, base: int, end: int, job: str = JOB, body: bytes | None = None) -> SegmentInfo:
        """It holds what the runs are, unless told otherwise."""
        key = keys.segment(TP, job, f"{base:032x}")
        body = (end - base) // 2 * BODY if body is None else body
        self.objects[key] = b"H" + body + b"IF"
        times = {"max_timestamp": 1, "min_timestamp": 1, "created_at_ms": 1, "appended_at_ms": 1}
        place = {"key": key, "base": base, "end": end, "size": len(body) + 3, "body_at": 1}
        index = {"index_at": len(body) + 1, "index_length": 1, "index_crc": 0, "batches": 1}
        return msgspec.convert({**place, **index, **times, "compaction_id": job}, SegmentInfo)

    def manifest(self, *segments: SegmentInfo, job: str = JOB) -> Link:
        """The link that names it; its epoch is told by the job."""
        base, end = segments[0].base, segments[-1].end
        manifest = Manifest(
            cluster_id="c", topic="t", topic_id=TP.topic_id, partition=0, base=base, end=end, segments=segments
        )
        key = keys.manifest(TP, job)
        self.objects[key] = encode_manifest(manifest)
        return Link("tiered", 2 if job == JOB else 3, base, end, {"manifest": key})

    def begin(self, revision: int, job: str, *links: Link, start: int = 0) -> None:
        chain = Chain(links or (diskless(1, 0),), 9, start, tiering=job, eras=self.eras(links), revision=revision)
        self.put(keys.chain(TP), msgspec.json.encode(chain))

    def finish(self, revision: int, *links: Link, start: int = 0, eras: bool = True) -> None:
        chain = Chain(links, 9, start, eras=self.eras(links) if eras else (), revision=revision)
        self.put(keys.chain(TP), msgspec.json.encode(chain))

    def eras(self, links: tuple[Link, ...]) -> tuple[tuple[int, int], ...]:
        return ((0, 1),) if links and links[0].kind == "tiered" else ()

    def unindex(self, end: int) -> None:
        key = keys.index(TP, end)
        self.invariants.changed(key, self.values.pop(key), None)

    def pend(self) -> None:
        """[4, 6) is appended, and in no index yet; then the link is sealed."""
        key = keys.wal_blob("last")
        self.objects[key] = BODY
        pending = Pending("last", (IndexEntry(5, 2, key, len(BODY), append_id="last"),), {})
        for state in ("OPEN", "FENCED"):
            record = {"epoch": 1, "state": state, "next": 6, "pending": msgspec.to_builtins(pending)}
            self.put(keys.control(TP), encode(msgspec.convert(record, Control)))

    def delete(self, key: str) -> None:
        del self.objects[key]
        self.invariants.object_deleted(key)


def tiered(state: TieredState) -> None:
    """[0, 2) is tiered, then [2, 4), and the two segments are merged."""
    state.begin(1, JOB)
    first = state.segment(0, 2)
    link = state.manifest(first)
    state.finish(2, link, diskless(1, 2))
    state.unindex(1)
    state.begin(3, OTHER_JOB, link, diskless(1, 2))
    state.finish(4, state.manifest(state.segment(0, 4, OTHER_JOB), job=OTHER_JOB), diskless(1, 4))
    state.unindex(3)
    for key in (BLOB, first.key, keys.manifest(TP, JOB)):
        state.delete(key)


def test_tiering_merging_and_vacuum_are_sound() -> None:
    state = TieredState()
    tiered(state)
    assert state.found() == set()


def test_what_was_replaced_stays_for_its_time() -> None:
    """The times of both commits are not told here, and so are the first of all times."""
    for now_ms, expected in ((999, {"S10"}), (1000, set())):
        state = TieredState()
        state.invariants.keep_replaced(1000, lambda now_ms=now_ms: now_ms)  # type: ignore[misc]
        tiered(state)
        assert state.found() == expected
        assert len(state.invariants.violations) == 2 * len(expected), "the blob and the first segment"


def test_what_is_pending_below_the_boundary_is_nobodys() -> None:
    state = TieredState()
    state.pend()
    last = keys.wal_blob("last")
    (partition,) = state.invariants.partitions.values()
    assert last in partition.references(readable=False)
    state.finish(1, diskless(1, 0), start=6)
    assert last not in partition.references(readable=False)
    state.delete(last)
    state.put(keys.control(TP), state.values[keys.control(TP)])
    assert state.found() == set()


def a_job_commits_that_is_not_named(state: TieredState) -> None:
    state.begin(1, OTHER_JOB)
    state.finish(2, state.manifest(state.segment(0, 2)), diskless(1, 2))


def an_abandoned_job_commits(state: TieredState) -> None:
    state.begin(1, JOB)
    state.finish(2, diskless(1, 0))
    state.finish(3, state.manifest(state.segment(0, 2)), diskless(1, 2))


def a_segment_comes_back(state: TieredState) -> None:
    state.begin(1, JOB)
    state.finish(2, state.manifest(state.segment(0, 2, "c" * 32)), diskless(1, 2))


def a_boundary_goes_back(state: TieredState) -> None:
    state.begin(1, JOB)
    link = state.manifest(state.segment(0, 4))
    state.finish(2, link, diskless(1, 4))
    state.begin(3, OTHER_JOB, link, diskless(1, 4))
    state.finish(4, state.manifest(state.segment(0, 2, OTHER_JOB), job=OTHER_JOB), diskless(1, 2))


def a_boundary_passes_next(state: TieredState) -> None:
    state.begin(1, JOB)
    state.finish(2, state.manifest(state.segment(0, 6)), diskless(1, 6))


def a_manifest_is_missing(state: TieredState) -> None:
    state.begin(1, JOB)
    link = state.manifest(state.segment(0, 2))
    del state.objects[keys.manifest(TP, JOB)]
    state.finish(2, link, diskless(1, 2))


def a_manifest_ends_elsewhere(state: TieredState) -> None:
    state.begin(1, JOB)
    link = state.manifest(state.segment(0, 2))
    state.finish(2, msgspec.structs.replace(link, end=4), diskless(1, 4))


def a_segment_is_missing(state: TieredState) -> None:
    state.begin(1, JOB)
    info = state.segment(0, 2)
    link = state.manifest(info)
    del state.objects[info.key]
    state.finish(2, link, diskless(1, 2))


def a_segment_holds_other_bytes(state: TieredState) -> None:
    state.begin(1, JOB)
    state.finish(2, state.manifest(state.segment(0, 2, body=b"other bytes")), diskless(1, 2))


def a_run_is_partly_tiered(state: TieredState) -> None:
    state.begin(1, JOB)
    state.finish(2, state.manifest(state.segment(0, 3)), diskless(1, 3))


def a_segment_is_deleted_too_early(state: TieredState) -> None:
    state.begin(1, JOB)
    info = state.segment(0, 2)
    state.finish(2, state.manifest(info), diskless(1, 2))
    state.delete(info.key)


def a_blob_is_deleted_too_early(state: TieredState) -> None:
    state.delete(BLOB)


def an_entry_names_a_blob_that_is_gone(state: TieredState) -> None:
    state.control(1, "OPEN", 5)
    state.put(keys.index(TP, 4), encode(IndexEntry(4, 1, keys.wal_blob("gone"))))


def what_is_pending_names_a_blob_that_is_gone(state: TieredState) -> None:
    gone = IndexEntry(4, 1, keys.wal_blob("gone"), append_id="a")
    state.control(1, "OPEN", 5, Pending("a", (gone,), {}))


def a_blob_of_what_is_pending_is_deleted(state: TieredState) -> None:
    state.pend()
    state.delete(keys.wal_blob("last"))


def an_entry_is_deleted_before_the_chain_moves(state: TieredState) -> None:
    state.begin(1, JOB)
    state.unindex(1)


def leader_epochs_change(state: TieredState) -> None:
    state.control(1, "FENCED", 4)
    state.begin(1, JOB, diskless(1, 0, 4), diskless(4, 4))
    state.finish(2, state.manifest(state.segment(0, 4)), diskless(4, 4), eras=False)


def a_base_moves_without_a_job(state: TieredState) -> None:
    state.finish(1, diskless(1, 0))
    state.finish(2, diskless(1, 2), start=2)


@pytest.mark.parametrize(
    ("change", "rule"),
    [
        (a_job_commits_that_is_not_named, "S9"),
        (an_abandoned_job_commits, "S9"),
        (a_segment_comes_back, "S9"),
        (a_boundary_goes_back, "S6"),
        (a_boundary_passes_next, "S6"),
        (a_manifest_is_missing, "S4"),
        (a_manifest_ends_elsewhere, "S4"),
        (a_segment_is_missing, "S4"),
        (a_segment_holds_other_bytes, "S4"),
        (a_run_is_partly_tiered, "S4"),
        (a_segment_is_deleted_too_early, "S4"),
        (a_blob_is_deleted_too_early, "S5"),
        (an_entry_names_a_blob_that_is_gone, "S5"),
        (what_is_pending_names_a_blob_that_is_gone, "S5"),
        (a_blob_of_what_is_pending_is_deleted, "S5"),
        (an_entry_is_deleted_before_the_chain_moves, "S8"),
        (leader_epochs_change, "S1"),
        (a_base_moves_without_a_job, "S1"),
    ],
)
def test_a_job_that_stores_what_must_never_be_is_found_out(change: Callable[[TieredState], None], rule: str) -> None:
    state = TieredState()
    change(state)
    assert rule in state.found()
