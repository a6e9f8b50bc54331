"""What a reader of a compacted log may see: the checker takes what is legal, and finds what is not."""

from __future__ import annotations

import pytest

from sim.compact_table import Acked, Row, Seen, Table

A1, A2, B1 = Row(b"a", False, "a1"), Row(b"a", False, "a2"), Row(b"b", False, "b1")
A_MARK = Row(b"a", True, "mark")
KEPT_S = 100.0


def table(*rows: Row, unsure: tuple[Row, ...] = ()) -> Table:
    """Each is acked at its offset, at the second after it was written."""
    made = Table(KEPT_S)
    made.acked = {offset: Acked(row, offset, offset + 1.0) for offset, row in enumerate(rows)}
    made.unsure = dict.fromkeys(unsure, 0.0)
    return made


def faults(made: Table, *seen: tuple[int, Row], tail: int = 10, began: float = 50, ended: float = 51) -> list[str]:
    return list(made.faults([Seen(*each) for each in seen], tail, tail, began, ended))


@pytest.mark.parametrize("seen", [[(0, A1), (1, B1), (2, A2)], [(1, B1), (2, A2)]])
def test_what_was_written_or_what_a_compaction_leaves_of_it(seen: list[tuple[int, Row]]) -> None:
    assert faults(table(A1, B1, A2), *seen) == []


def test_the_last_record_of_a_key_has_to_be_there() -> None:
    (fault,) = faults(table(A1, B1, A2), (0, A1), (1, B1))
    assert fault == "the last record of b'a', at 2, is not there: 0"


def test_what_was_acked_later_or_lies_above_the_tail_need_not_be() -> None:
    assert faults(table(A1, B1, A2), (0, A1), (1, B1), began=2.5) == []
    assert faults(table(A1, B1, A2), (0, A1), (1, B1), tail=2) == []


def test_offsets_grow() -> None:
    assert "offsets don't grow: [1, 0]" in faults(table(A1, B1), (1, B1), (0, A1))
    assert "offsets don't grow: [0, 0, 1]" in faults(table(A1, B1), (0, A1), (0, A1), (1, B1))


def test_nothing_is_there_that_was_not_written() -> None:
    assert len(faults(table(A1, B1), (0, A2), (1, B1))) == 1
    assert len(faults(table(A1), (0, A1), (1, B1))) == 1
    assert faults(table(A1, unsure=(B1,)), (0, A1), (1, B1)) == []


def test_a_later_record_of_the_key_is_as_good() -> None:
    assert faults(table(A1, unsure=(A2,)), (5, A2)) == []


def test_what_comes_where_the_reader_has_stopped_may_have_taken_the_place_of_what_it_wanted() -> None:
    """A compaction up to there, while it was reading."""
    made = table(A1, B1, A2)
    assert list(made.faults([Seen(1, B1)], 2, 2, 50, 51)) == []
    assert len(list(made.faults([Seen(1, B1)], 2, 3, 50, 51))) == 1
    made.unsure = {A2: 0.0}
    assert list(made.faults([Seen(1, B1)], 2, 3, 50, 51)) == []


class TestMarks:
    def test_one_is_there_for_its_time(self) -> None:
        assert faults(table(A1, A_MARK), (0, A1), (1, A_MARK)) == []
        assert faults(table(A1, A_MARK)) == ["the mark of the deleted b'a', at 1, went too early"]

    def test_later_it_may_be_gone_with_all_before_it(self) -> None:
        assert faults(table(A1, A_MARK), began=200, ended=201) == []

    def test_then_nothing_older_is_there(self) -> None:
        (fault,) = faults(table(A1, A_MARK), (0, A1), began=200, ended=201)
        assert fault == "b'a' was deleted at 1, and is there again at 0"

    def test_unless_the_reader_took_longer_than_that(self) -> None:
        assert faults(table(A1, A_MARK), (0, A1), began=200, ended=301) == []

    def test_one_of_which_nobody_knows_may_have_come_and_gone(self) -> None:
        made = table(A1, unsure=(A_MARK,))
        assert len(faults(made, began=61, ended=62)) == 1
        assert faults(made, began=200, ended=201) == []


def test_a_batch_that_nobody_can_decode_is_where_it_was_acked() -> None:
    made = table()
    made.opaque = {4: (b"nonsense", 10.0)}
    assert list(made.opaque_faults({4: b"nonsense"}, 5, 10.0)) == []
    assert len(list(made.opaque_faults({}, 5, 10.0))) == len(list(made.opaque_faults({4: b"other"}, 5, 10.0))) == 1
    assert list(made.opaque_faults({}, 4, 10.0)) == list(made.opaque_faults({}, 5, 9.0)) == []


def test_what_is_known_is_not_unsure_any_more() -> None:
    made = table(unsure=(A1, A2))
    made.forget([A1])
    assert set(made.unsure) == {A2}
