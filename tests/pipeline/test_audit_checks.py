from __future__ import annotations

from typing import Any, ClassVar

import pytest

from catena.formats.manifest import Manifest
from catena.formats.segment import SegmentInfo
from catena.loglets.diskless.records import Control, IndexEntry, Pending
from catena.meta import keys
from catena.pipeline.audit_checks import View, check, covering, pending_entries, tail_of
from catena.pipeline.records import CompactionRecord
from catena.types import Offset, TopicId, TopicPartition
from catena.virtual_log.chain import Chain, Intent, Link

TP = TopicPartition("orders", TopicId("a" * 32), 3)


def entry(start: Offset, last: Offset, key: str | None = None, **fields: Any) -> IndexEntry:
    return IndexEntry(last, last - start + 1, key or f"llog/wal-shared/{start}-{last}", 100, 50, **fields)


def chain(*links: tuple[str, int, Offset, Offset | None], **fields: Any) -> Chain:
    made = tuple(Link(kind, epoch, base, end) for kind, epoch, base, end in links)
    return Chain(made, **{"next_epoch": 10, **fields})


OPEN = chain(("diskless", 1, 0, None))


def view(of: Chain = OPEN, next_offset: Offset = 10, *entries: IndexEntry, **fields: Any) -> View:
    control = Control(of.last.epoch, "OPEN" if of.last.end is None else "FENCED", next_offset)
    return View(TP, "cluster", of, True, **{"control": control, "entries": entries, **fields})


def found(of: View) -> list[tuple[str, str, tuple[Offset, Offset]]]:
    """Kind, what follows `partitions/3/` in the key, and offsets."""
    assert all(each.what and (each.topic, each.partition) == ("orders", 3) for each in check(of))
    return [(each.kind, each.key.removeprefix(keys.partition(TP)), each.offsets) for each in check(of)]


def index(offset: Offset) -> str:
    return keys.index(TP, offset).removeprefix(keys.partition(TP))


CHAIN, CONTROL = "meta/chain", "meta/control"


class TestIndex:
    def test_all_is_well(self) -> None:
        assert found(view(OPEN, 10, entry(0, 4), entry(5, 9))) == []
        assert found(view(OPEN, 0)) == []
        assert found(View(TP, "cluster", OPEN, True)) == []

    def test_what_came_after_the_control_record_was_read_is_not_looked_at(self) -> None:
        grown = view(OPEN, 5, entry(0, 4), entry(5, 9))
        assert found(grown) == []
        assert covering(grown) == [entry(0, 4)]

    @pytest.mark.parametrize(
        ("entries", "gap"),
        [
            ([entry(0, 4)], (5, 9)),
            ([entry(5, 9)], (0, 4)),
            ([entry(0, 1), entry(4, 9)], (2, 3)),
            ([], (0, 9)),
        ],
    )
    def test_a_gap(self, entries: list[IndexEntry], gap: tuple[Offset, Offset]) -> None:
        assert found(view(OPEN, 10, *entries)) == [("gap", index(gap[1]), gap)]

    def test_an_overlap(self) -> None:
        assert found(view(OPEN, 10, entry(0, 4), entry(3, 9))) == [("overlap", index(9), (3, 4))]
        assert found(view(OPEN, 10, entry(0, 4), entry(5, 12))) == [("overlap", index(12), (10, 12))]

    def test_an_entry_inside_of_another(self) -> None:
        assert found(view(OPEN, 10, entry(2, 4), entry(0, 9))) == [
            ("gap", index(1), (0, 1)),
            ("overlap", index(9), (0, 4)),
        ]

    def test_a_trim_cuts_a_run_and_tiering_does_not(self) -> None:
        assert found(view(chain(("diskless", 1, 0, None), start=3), 10, entry(2, 4), entry(5, 9))) == []
        tiered = chain(("tiered", 2, 0, 3), ("diskless", 1, 3, None))
        assert found(view(tiered, 10, entry(2, 4), entry(5, 9))) == [("overlap", index(4), (2, 2))]
        assert found(view(tiered, 10, entry(3, 4), entry(5, 9))) == []

    def test_only_diskless_links_are_in_the_index(self) -> None:
        links = chain(("diskless", 1, 0, 4), ("memory", 2, 4, 6), ("diskless", 3, 6, None))
        assert found(view(links, 10, entry(0, 3), entry(6, 9))) == []
        assert found(view(links, 10, entry(0, 2), entry(7, 9))) == [
            ("gap", index(3), (3, 3)),
            ("gap", index(6), (6, 6)),
        ]
        assert found(view(links, 10, entry(0, 5), entry(6, 9))) == [("overlap", index(5), (4, 5))]

    def test_neighbouring_links_are_one_stretch(self) -> None:
        links = chain(("diskless", 1, 0, 5), ("diskless", 2, 5, None))
        assert found(view(links, 10, entry(0, 4), entry(5, 9))) == []

    def test_a_window_does_not_ask_for_what_lies_outside(self) -> None:
        assert found(view(OPEN, 10, entry(4, 6), is_whole=False, since=5)) == []
        assert found(view(OPEN, 10, entry(4, 6), is_whole=True, since=5)) == [("gap", index(9), (7, 9))]
        assert found(view(OPEN, 10, entry(7, 9), is_whole=False, since=5)) == [("gap", index(6), (5, 6))]

    def test_bytes_that_are_stored_once_and_have_two_offsets(self) -> None:
        twice = [entry(0, 4, "blob"), entry(5, 9, "blob")]
        assert found(view(OPEN, 10, *twice)) == [("duplicate_batch", index(9), (5, 9))]
        apart = [entry(0, 4, "blob"), IndexEntry(9, 5, "blob", 100, 150)]
        assert found(view(OPEN, 10, *apart)) == []


class TestPending:
    PENDING = Pending("id", (entry(5, 9),), {})

    def test_it_counts_until_it_is_in_the_index(self) -> None:
        control = Control(1, "OPEN", 10, self.PENDING)
        left = view(OPEN, 10, entry(0, 4), control=control)
        assert [each.end_offset for each in covering(left)] == [4, 9]
        assert found(left) == [("pending_left", CONTROL, (5, 9))]
        written = view(OPEN, 10, entry(0, 4), entry(5, 9), control=control)
        assert found(written) == []
        assert pending_entries(written) == []

    def test_below_the_boundary_it_is_nothing(self) -> None:
        of = chain(("tiered", 2, 0, 10), ("diskless", 1, 10, None))
        assert found(view(of, 10, control=Control(1, "OPEN", 10, self.PENDING))) == []

    def test_it_does_not_end_where_the_log_does(self) -> None:
        control = Control(1, "OPEN", 12, self.PENDING)
        assert found(view(OPEN, 12, entry(0, 4), entry(5, 9), entry(10, 11), control=control)) == [
            ("control_mismatch", CONTROL, (12, 12))
        ]


class TestChain:
    def test_links_that_do_not_meet(self) -> None:
        apart = chain(("diskless", 1, 0, 4), ("diskless", 2, 6, None))
        assert ("links_do_not_meet", CHAIN, (4, 5)) in found(view(apart, 10, entry(0, 3), entry(6, 9)))
        over = chain(("diskless", 1, 0, 6), ("diskless", 2, 4, None))
        assert ("links_do_not_meet", CHAIN, (4, 5)) in found(view(over, 10, entry(0, 9)))
        endless = chain(("diskless", 1, 0, None), ("diskless", 2, 4, None))
        assert "links_do_not_meet" in [kind for kind, _, _ in found(view(endless, 10, entry(0, 9)))]

    @pytest.mark.parametrize(
        "wrong",
        [
            chain(("diskless", 2, 0, 4), ("diskless", 1, 4, None)),
            chain(("diskless", 12, 0, None)),
            chain(("diskless", 1, 0, None), ("tiered", 2, 4, 4)),
            chain(("diskless", 1, 4, None), start=2),
            chain(("diskless", 1, 0, 4), start=6),
        ],
    )
    def test_what_cannot_be(self, wrong: Chain) -> None:
        assert "chain_mismatch" in [kind for kind, _, _ in found(view(wrong, 4))]

    def test_a_deleted_topic_is_not_looked_at(self) -> None:
        assert found(view(chain(("diskless", 12, 0, None), deleted=True), 10)) == []


class TestControl:
    def test_a_later_epoch_than_the_chain_gave(self) -> None:
        of = view(OPEN, 10, control=Control(2, "OPEN", 10))
        assert ("control_mismatch", CONTROL, (0, 10)) in found(of)

    def test_an_earlier_epoch_is_a_link_that_nobody_has_opened(self) -> None:
        links = chain(("diskless", 1, 0, 5), ("diskless", 2, 5, None))
        assert found(view(links, 5, entry(0, 4), control=Control(1, "FENCED", 5))) == []
        assert tail_of(links, Control(1, "FENCED", 5)) == 5

    @pytest.mark.parametrize("control", [Control(1, "OPEN", 5), Control(1, "FENCED", 4), Control(1, "FENCED", 6)])
    def test_a_sealed_link_ends_where_its_fence_is(self, control: Control) -> None:
        links = chain(("diskless", 1, 0, 5), ("memory", 2, 5, None))
        assert "control_mismatch" in [kind for kind, _, _ in found(view(links, 5, entry(0, 4), control=control))]

    def test_a_fence_is_there_for_a_change_that_is_under_way(self) -> None:
        control = Control(1, "FENCED", 5)
        assert found(view(OPEN, 5, entry(0, 4), control=control)) == [("control_mismatch", CONTROL, (5, 5))]
        changing = chain(("diskless", 1, 0, None), intent=Intent("nonce", 2, "memory"))
        assert found(view(changing, 5, entry(0, 4), control=control)) == []

    def test_it_went_back(self) -> None:
        moved = chain(("tiered", 2, 0, 8), ("diskless", 1, 8, None))
        assert found(view(moved, 6)) == [("control_mismatch", CONTROL, (6, 7))]

    def test_it_is_gone(self) -> None:
        sealed = chain(("diskless", 1, 0, 5), ("memory", 2, 5, None))
        assert found(view(sealed, 5, entry(0, 4), control=None)) == [("control_mismatch", CONTROL, (0, 4))]


def info(base: Offset, end: Offset) -> SegmentInfo:
    return SegmentInfo(f"s{base}", base, end, 500, 100, 400, 32, 1, 9, 1, end - base, 0, 0, "job")


class TestManifest:
    FIELDS: ClassVar[dict[str, Any]] = {
        "cluster_id": "cluster",
        "topic": "orders",
        "topic_id": TP.topic_id,
        "partition": 3,
        "base": 0,
        "end": 8,
        "segments": (info(0, 5), info(5, 8)),
    }

    def of(self, manifest: Manifest, **params: Any) -> View:
        link = Link("tiered", 2, 0, 8, {"manifest": "m", "segments": 2, "bytes": 1000, **params})
        return view(Chain((link, Link("diskless", 1, 8)), 10), 8, manifest=manifest)

    def test_all_is_well(self) -> None:
        assert found(self.of(Manifest(**self.FIELDS))) == []

    @pytest.mark.parametrize(
        "wrong",
        [{"cluster_id": "x"}, {"topic": "x"}, {"topic_id": "x"}, {"partition": 4}, {"base": 1}, {"end": 9}],
        ids=str,
    )
    def test_it_is_another_ones(self, wrong: dict[str, Any]) -> None:
        assert found(self.of(Manifest(**self.FIELDS | wrong))) == [("manifest_mismatch", "m", (0, 7))]

    @pytest.mark.parametrize("wrong", [{"segments": 3}, {"bytes": 999}], ids=str)
    def test_the_chain_says_something_else(self, wrong: dict[str, Any]) -> None:
        assert found(self.of(Manifest(**self.FIELDS), **wrong)) == [("manifest_mismatch", "m", (0, 7))]


class TestJobs:
    RECORD = CompactionRecord("job", "UPDATING_CURSOR", 2, 7, 6, "m", 0, 0, 8)

    def test_stale_entries_are_told_by_stretches(self) -> None:
        of = chain(("tiered", 2, 0, 20), ("diskless", 1, 20, None))
        stale = (entry(0, 1), entry(2, 4), entry(7, 9))
        assert found(view(of, 20, stale=stale)) == [
            ("stale_entry", index(1), (0, 4)),
            ("stale_entry", index(9), (7, 9)),
        ]

    def test_a_job_is_left_when_nobody_works_on_it(self) -> None:
        assert found(view(OPEN, 0, compaction=self.RECORD)) == [("compaction_updating", "meta/compaction", (2, 7))]
        assert found(view(OPEN, 0, compaction=self.RECORD, is_claimed=True)) == []

    def test_the_chain_waits_for_a_job_that_has_no_record(self) -> None:
        waiting = chain(("diskless", 1, 0, None), tiering="job")
        assert found(view(waiting, 0)) == [("tiering_left", CHAIN, (0, 0))]
        assert found(view(waiting, 0, is_claimed=True)) == []
        assert [kind for kind, _, _ in found(view(waiting, 0, compaction=self.RECORD))] == ["compaction_updating"]

    def test_none_of_it_is_damage(self) -> None:
        waiting = chain(("tiered", 2, 0, 20), ("diskless", 1, 20, None), tiering="job")
        assert {each.severity for each in check(view(waiting, 20, stale=[entry(0, 1)]))} == {"leftover"}
