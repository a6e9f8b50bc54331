"""The checker by itself: each of these histories is wrong in one way, and must be found out."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from sim.checker import check
from sim.history import (
    Append,
    Call,
    Delete,
    FindTime,
    History,
    LogId,
    Outcome,
    Read,
    Reconfigure,
    Seal,
    Seen,
    Stamp,
    Start,
    Tail,
    Trim,
)

LOG = LogId("t", "1" * 32, 0)
OTHER = LogId("t", "2" * 32, 0)


class Story:
    """Writes a history call by call; each is over before the next begins, unless it says otherwise."""

    def __init__(self) -> None:
        self.history = History()
        self.batches = 0

    def begin(self, call: Call) -> None:
        self.history.invoke(call, "")

    def end(self, call: Call, outcome: Outcome = Outcome.OK) -> None:
        if outcome is Outcome.OK:
            self.history.ok(call, "")
        elif outcome is Outcome.FAILED:
            self.history.failed(call, "")
        else:
            self.history.unknown(call, "")

    def call(self, call: Call, outcome: Outcome = Outcome.OK) -> None:
        self.begin(call)
        self.end(call, outcome)

    def new_append(
        self, offset: int = -1, count: int = 1, stamp: Stamp | None = None, at_ms: int = 0, log: LogId = LOG
    ) -> Append:
        self.batches += 1
        return Append(log, "w", 0, batch=self.batches, count=count, stamp=stamp, timestamp_ms=at_ms, offset=offset)

    def append(self, offset: int, count: int = 1, stamp: Stamp | None = None, at_ms: int = 0) -> Append:
        append = self.new_append(offset, count, stamp, at_ms)
        self.call(append)
        return append

    def read(self, offset: int, *seen: Seen, final: bool = False, log: LogId = LOG) -> Read:
        read = Read(log, "r", 0, offset=offset, seen=seen, final=final)
        self.call(read)
        return read

    def found(self) -> set[str]:
        return {violation.rule for violation in check(self.history)}


def stands(append: Append, offset: int | None = None) -> Seen:
    return Seen(append.offset if offset is None else offset, append.count, append.batch)


def sound(story: Story) -> None:
    first, second = story.append(0, count=2), story.append(2)
    unknown = story.new_append()
    story.call(unknown, Outcome.UNKNOWN)
    failed = story.new_append()
    story.call(failed, Outcome.FAILED)
    story.call(Tail(LOG, "r", 0, tail=4))
    story.read(1, stands(first), stands(second), Seen(3, 1, unknown.batch))
    story.call(Trim(LOG, "t", 0, offset=2))
    story.call(Start(LOG, "r", 0, start=2))
    story.call(Read(LOG, "r", 0, offset=0, out_of_range=(2, 4)))
    story.call(Read(LOG, "r", 0, offset=4))
    story.call(Seal(LOG, "f", 0, tail=4))
    story.call(Reconfigure(LOG, "f", 0, kind="memory"))
    last = story.append(4)
    story.read(2, stands(second), Seen(3, 1, unknown.batch), stands(last), final=True)


def test_a_sound_history_is_clean() -> None:
    story = Story()
    sound(story)
    assert story.found() == set()


def test_calls_on_different_nodes_may_overtake_each_other() -> None:
    story = Story()
    calls = [story.new_append(offset) for offset in (2, 1, 0)]
    for number, call in enumerate(calls):
        story.begin(call)
        call.pipeline = number
    for call in calls:
        story.end(call)
    assert story.found() == set()


def acked_and_gone(story: Story) -> None:
    first = story.append(0)
    story.append(1)
    story.read(0, stands(first), final=True)


def acked_and_another_stands_there(story: Story) -> None:
    story.append(0)
    other = story.new_append()
    story.call(other, Outcome.UNKNOWN)
    story.read(0, stands(other, 0))


def acked_and_swallowed_by_a_longer_batch(story: Story) -> None:
    longer = story.new_append(count=3)
    story.call(longer, Outcome.UNKNOWN)
    story.append(1)
    story.read(0, Seen(0, 3, longer.batch))


def two_acks_at_one_offset(story: Story) -> None:
    story.append(0, count=2)
    story.append(1)


def two_readers_see_different_batches(story: Story) -> None:
    one, two = story.new_append(), story.new_append()
    story.call(one, Outcome.UNKNOWN)
    story.call(two, Outcome.UNKNOWN)
    story.read(0, stands(one, 0))
    story.read(0, stands(two, 0))


def batches_overlap(story: Story) -> None:
    one, two = story.new_append(count=2), story.new_append(count=2)
    story.call(one, Outcome.UNKNOWN)
    story.call(two, Outcome.UNKNOWN)
    story.read(0, stands(one, 0))
    story.read(1, stands(two, 1))


def a_batch_stands_twice(story: Story) -> None:
    append = story.append(0)
    story.read(0, stands(append), stands(append, 1))


def an_unknown_one_stands_twice(story: Story) -> None:
    append = story.new_append()
    story.call(append, Outcome.UNKNOWN)
    story.read(0, stands(append, 0), stands(append, 1))


def a_failed_one_stands(story: Story) -> None:
    append = story.new_append()
    story.call(append, Outcome.FAILED)
    story.read(0, stands(append, 0))


def bytes_that_nobody_wrote(story: Story) -> None:
    story.append(0)
    story.read(0, Seen(0, 1, -1))


def a_batch_of_another_log(story: Story) -> None:
    append = story.append(0)
    story.read(0, stands(append), log=OTHER)


def a_batch_lost_a_record(story: Story) -> None:
    append = story.append(0, count=2)
    story.read(0, Seen(0, 1, append.batch))


def a_gap_in_a_read(story: Story) -> None:
    first, second = story.append(0), story.append(2)
    story.read(0, stands(first), stands(second))


def a_gap_in_the_log(story: Story) -> None:
    first, second = story.append(0), story.append(2)
    story.read(0, stands(first), final=True)
    story.read(2, stands(second), final=True)


def another_offset_than_asked_for(story: Story) -> None:
    story.append(0)
    second = story.append(1)
    story.read(0, stands(second))


def a_later_append_stands_first(story: Story) -> None:
    story.append(1)
    story.append(0)


def an_append_lands_below_what_was_read(story: Story) -> None:
    early = story.new_append()
    story.call(early, Outcome.UNKNOWN)
    story.read(1, Seen(1, 1, early.batch))
    story.append(0)


def an_append_lands_below_a_tail(story: Story) -> None:
    story.call(Tail(LOG, "r", 0, tail=1))
    story.append(0)


def calls_out_of_order(story: Story) -> None:
    first, second = story.new_append(1), story.new_append(0)
    story.begin(first)
    story.begin(second)
    first.pipeline = second.pipeline = 1
    story.end(first)
    story.end(second)


def calls_out_of_order_and_one_of_them_unknown(story: Story) -> None:
    first, second = story.new_append(), story.new_append(0)
    story.begin(first)
    story.begin(second)
    first.pipeline = second.pipeline = 1
    story.end(second)
    story.read(0, stands(second), stands(first, 1))


def a_producer_out_of_order(story: Story) -> None:
    first, second = story.new_append(1, stamp=Stamp(7, 0, 0)), story.new_append(0, stamp=Stamp(7, 0, 1))
    story.begin(first)
    story.begin(second)
    story.end(first)
    story.end(second)


def a_tail_below_an_ack(story: Story) -> None:
    story.append(0)
    story.call(Tail(LOG, "r", 0, tail=0))


def a_tail_below_an_earlier_tail(story: Story) -> None:
    append = story.new_append(0)
    story.begin(append)
    story.call(Tail(LOG, "r", 0, tail=1))
    story.call(Tail(LOG, "q", 0, tail=0))
    story.end(append)


def a_tail_that_counts_what_comes_later(story: Story) -> None:
    tail = Tail(LOG, "r", 0, tail=1)
    story.call(tail)
    append = story.new_append()
    story.call(append, Outcome.UNKNOWN)
    story.read(0, stands(append, 0))


def out_of_range_tells_an_old_tail(story: Story) -> None:
    story.append(0, count=3)
    story.call(Read(LOG, "r", 0, offset=5, out_of_range=(0, 2)))


def out_of_range_inside_the_log(story: Story) -> None:
    story.append(0, count=3)
    story.call(Read(LOG, "r", 0, offset=1, out_of_range=(0, 3)))


def out_of_range_at_a_start_that_nobody_trimmed_to(story: Story) -> None:
    story.append(0, count=3)
    story.call(Read(LOG, "r", 0, offset=1, out_of_range=(2, 3)))


def nothing_where_something_was_read(story: Story) -> None:
    append = story.append(0)
    story.read(0, stands(append))
    story.read(0)


def a_reader_meets_a_hole(story: Story) -> None:
    story.append(0)
    story.call(Read(LOG, "r", 0, offset=0, error="ObjectMissing: gone"), Outcome.UNKNOWN)


def a_trim_breaks(story: Story) -> None:
    story.call(Trim(LOG, "t", 0, offset=0, error="AssertionError: links don't meet"), Outcome.UNKNOWN)


def a_sealed_log_takes_an_append(story: Story) -> None:
    story.call(Seal(LOG, "f", 0, tail=0))
    story.append(0)


def a_reopen_that_was_over_before_the_seal(story: Story) -> None:
    story.call(Reconfigure(LOG, "c", 0, kind="memory"))
    story.call(Seal(LOG, "f", 0, tail=0))
    story.append(0)


def a_start_before_a_trim(story: Story) -> None:
    story.append(0, count=3)
    story.call(Trim(LOG, "t", 0, offset=2))
    story.call(Start(LOG, "r", 0, start=1))


def a_start_that_nobody_trimmed_to(story: Story) -> None:
    story.append(0, count=3)
    story.call(Start(LOG, "r", 0, start=1))


def a_time_that_was_overlooked(story: Story) -> None:
    first, second = story.append(0, at_ms=10), story.append(1, at_ms=20)
    story.call(FindTime(LOG, "r", 0, timestamp_ms=5, offset=1))
    story.read(0, stands(first), stands(second))


def a_time_that_was_not_found(story: Story) -> None:
    story.append(0, at_ms=10)
    story.call(FindTime(LOG, "r", 0, timestamp_ms=5, offset=None))


def a_time_that_is_too_early(story: Story) -> None:
    story.append(0, at_ms=10)
    story.call(FindTime(LOG, "r", 0, timestamp_ms=15, offset=0))


def an_append_to_a_deleted_topic(story: Story) -> None:
    story.append(0)
    story.call(Delete(LOG, "d", 0))
    story.append(1)


@pytest.mark.parametrize(
    ("tell", "rule"),
    [
        (acked_and_gone, "acked record lost"),
        (acked_and_another_stands_there, "acked record lost"),
        (acked_and_swallowed_by_a_longer_batch, "acked record lost"),
        (two_acks_at_one_offset, "S1 two acks at one offset"),
        (two_readers_see_different_batches, "S1 readers disagree"),
        (batches_overlap, "S7 overlap"),
        (a_batch_stands_twice, "duplicated"),
        (an_unknown_one_stands_twice, "duplicated"),
        (a_failed_one_stands, "failed append in the log"),
        (bytes_that_nobody_wrote, "changed or made up"),
        (a_batch_of_another_log, "wrong log"),
        (a_batch_lost_a_record, "changed or made up"),
        (a_gap_in_a_read, "gap in a read"),
        (a_gap_in_the_log, "gap in the log"),
        (another_offset_than_asked_for, "wrong offset read"),
        (a_later_append_stands_first, "reordered"),
        (an_append_lands_below_what_was_read, "reordered"),
        (an_append_lands_below_a_tail, "reordered"),
        (a_producer_out_of_order, "producer reordered"),
        (calls_out_of_order, "call order"),
        (calls_out_of_order_and_one_of_them_unknown, "call order"),
        (a_tail_below_an_ack, "tail not linearizable"),
        (a_tail_below_an_earlier_tail, "tail not linearizable"),
        (a_tail_that_counts_what_comes_later, "tail from the future"),
        (out_of_range_tells_an_old_tail, "tail not linearizable"),
        (out_of_range_inside_the_log, "S8 reader error"),
        (out_of_range_at_a_start_that_nobody_trimmed_to, "S8 reader error"),
        (nothing_where_something_was_read, "reader went back"),
        (a_reader_meets_a_hole, "S8 reader error"),
        (a_trim_breaks, "unexpected error"),
        (a_sealed_log_takes_an_append, "S3 fenced log took an append"),
        (a_reopen_that_was_over_before_the_seal, "S3 fenced log took an append"),
        (a_start_before_a_trim, "start went back"),
        (a_start_that_nobody_trimmed_to, "start went back"),
        (a_time_that_was_overlooked, "time not found"),
        (a_time_that_was_not_found, "time not found"),
        (a_time_that_is_too_early, "time not found"),
        (an_append_to_a_deleted_topic, "deleted topic took an append"),
    ],
)
def test_a_wrong_history_is_found_out(tell: Callable[[Story], None], rule: str) -> None:
    story = Story()
    tell(story)
    assert rule in story.found()


def test_a_rule_finds_nothing_but_its_own_fault() -> None:
    story = Story()
    acked_and_gone(story)
    assert story.found() == {"acked record lost"}


def test_what_overlaps_in_time_may_stand_in_any_order() -> None:
    story = Story()
    one, two = story.new_append(1), story.new_append(0)
    story.begin(one)
    story.begin(two)
    story.end(two)
    story.end(one)
    story.read(0, stands(two), stands(one))
    assert story.found() == set()


def test_a_reopen_under_way_excuses_an_append_after_a_seal() -> None:
    story = Story()
    reopen = Reconfigure(LOG, "c", 0, kind="memory")
    story.begin(reopen)
    story.call(Seal(LOG, "f", 0, tail=0))
    story.append(0)
    assert story.found() == set()


def test_an_unknown_append_may_land_late() -> None:
    story = Story()
    late = story.new_append()
    story.call(late, Outcome.UNKNOWN)
    first = story.append(0)
    story.call(Tail(LOG, "r", 0, tail=1))
    story.read(0, stands(first), Seen(1, 1, late.batch), final=True)
    assert story.found() == set()
