"""How far tiering is behind, from what was seen of partitions; with real passes it is in test_passes.py."""

from __future__ import annotations

from catena.loglets.diskless.records import IndexEntry
from catena.pipeline.lag import Backlog, Lag, Lags, backlog_of
from catena.types import TopicId, TopicPartition

NOW_MS = 1_000_000


def tp(partition: int) -> TopicPartition:
    return TopicPartition("t", TopicId("1" * 32), partition)


def test_a_backlog_is_as_old_as_its_oldest_run() -> None:
    entries = [
        IndexEntry(9, 10, "a", byte_length=100, created_at_ms=700),
        IndexEntry(12, 3, "b", byte_length=50, created_at_ms=600),
        IndexEntry(13, 1, "c", byte_length=1, created_at_ms=0),
    ]
    assert backlog_of(entries) == Backlog(151, 14, 600)
    assert backlog_of(entries[2:]) == Backlog(1, 1, 0), "of older data it is not known"
    assert backlog_of([]) == Backlog()


def test_all_of_them_and_the_worst() -> None:
    lags = Lags()
    assert lags.lag(NOW_MS, 1000) == Lag()
    lags.waits(tp(0), Backlog(100, 2, NOW_MS - 5000))
    lags.waits(tp(1), Backlog(30, 7, NOW_MS - 9000))
    lags.waits(tp(2), Backlog(1, 1, 0))
    assert lags.lag(NOW_MS, 1000) == Lag(3, 131, 100, 10, 7, 8.0)
    assert lags.lag(NOW_MS + 60_000, 1000).seconds_max == 68.0, "it gets older while nobody looks"
    assert lags.lag(NOW_MS - 100_000, 1000).seconds_max == 0, "clocks differ"
    lags.waits(tp(1), Backlog())
    assert lags.lag(NOW_MS, 1000) == Lag(2, 101, 100, 3, 2, 4.0)


def test_jobs_of_others_are_counted_by_their_state() -> None:
    lags = Lags()
    lags.found(tp(0), "DELETING_OLD")
    lags.found(tp(1), "UPDATING_CURSOR")
    lags.found(tp(2), "DELETING_OLD")
    assert lags.pending == {"DELETING_OLD": 2, "UPDATING_CURSOR": 1}
    lags.found(tp(1), None)
    lags.found(tp(3), None)
    assert lags.pending == {"DELETING_OLD": 2}


def test_partitions_that_are_gone_are_forgotten() -> None:
    lags = Lags()
    for number in range(3):
        lags.found(tp(number), "DELETING_OLD")
        lags.waits(tp(number), Backlog(1, 1, 1))
    lags.keep({tp(1)})
    assert lags.pending == {"DELETING_OLD": 1}
    assert lags.lag(NOW_MS, 0).partitions == 1
