"""What the summary says, for people and for programs."""

from __future__ import annotations

from catena.cli.produce_summary import Failure, Summary


def test_adjacent_offsets_are_one_range() -> None:
    summary = Summary()
    summary.ack(1, range(10), 100)
    summary.ack(1, range(10, 20), 100)
    summary.ack(0, range(5, 6), 1)
    summary.ack(1, range(25, 30), 50)
    assert list(summary.as_text()) == [
        "26 records acked",
        "  partition 0: 1 record, offsets 5 to 5",
        "  partition 1: 25 records, offsets 0 to 19, 25 to 29",
    ]
    assert summary.as_fields()["partitions"][1] == {
        "partition": 1,
        "records": 25,
        "offsets": [{"first": 0, "last": 19}, {"first": 25, "last": 29}],
    }
    assert not summary.failed


def test_many_ranges_are_shortened_for_people() -> None:
    summary = Summary()
    for start in range(0, 60, 10):
        summary.ack(0, range(start, start + 2), 0)
    assert list(summary.as_text())[1] == (
        "  partition 0: 12 records, offsets 0 to 1, 10 to 11, 20 to 21, 30 to 31, and 2 more ranges up to 51"
    )


def test_neighbours_that_failed_together_are_joined() -> None:
    summary = Summary()
    summary.read_up_to = ("file", 40)
    for first in (11, 1, 21):
        summary.fail(Failure("file", first, first + 9, 10, first % 3, False, "no space"))
    summary.fail(Failure("file", 31, 40, 4, 2, True, "no answer"))
    assert list(summary.as_text()) == [
        "0 records acked",
        "  lines 1 to 30 of file failed: no space",
        "  lines 31 to 40 of file (4 records of partition 2) may or may not be in the log: no answer",
        "  stopped at the failure: nothing after line 40 of file was sent",
    ]
    assert [failure["last_line"] for failure in summary.as_fields()["failed"]] == [30, 40]


def test_interrupted_before_anything_was_read() -> None:
    summary = Summary()
    summary.interrupted = True
    assert list(summary.as_text()) == ["0 records acked", "  interrupted: nothing after line 0 of the input was sent"]
    assert summary.as_fields()["read_up_to"] is None
