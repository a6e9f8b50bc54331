from __future__ import annotations

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from catena.formats.record_batch import CONTROL
from catena.formats.records import build_batch
from catena.loglets.producers import MAX_SEQUENCE
from catena.pipeline import producer_trail
from catena.pipeline.producer_trail import FORGOTTEN_AFTER_MS, Break, Track, Trail

NOW = 10**12


def batch(producer: int, sequence: int, count: int = 1, epoch: int = 0, time: int = NOW) -> bytes:
    return build_batch(
        [(None, b"v", (), time)] * count, producer_id=producer, producer_epoch=epoch, base_sequence=sequence
    )


def breaks_of(*batches: bytes, low: int = 0, high: int = NOW * 2) -> list[tuple[str, int, int]]:
    return [(each.kind, each.first, each.last) for each in Trail().add(b"".join(batches), 0, low, high)]


def test_producers_go_on_where_they_stopped() -> None:
    assert breaks_of(batch(1, 0, 3), batch(2, 9), batch(1, 3), batch(2, 10, 2), batch(1, 4), batch(2, 12)) == []


def test_a_number_comes_again() -> None:
    assert breaks_of(batch(1, 0, 3), batch(1, 0, 3), batch(1, 3)) == [("duplicate_batch", 3, 5)]
    assert breaks_of(batch(1, 5), batch(1, 4), batch(1, 6)) == [("duplicate_batch", 1, 1)]


def test_a_number_is_missing() -> None:
    assert breaks_of(batch(1, 0), batch(1, 2, 4), batch(1, 6)) == [("sequence_break", 1, 4)]


def test_numbers_wrap() -> None:
    assert breaks_of(batch(1, MAX_SEQUENCE), batch(1, 0)) == []
    assert breaks_of(batch(1, MAX_SEQUENCE - 1, 3), batch(1, 1)) == []
    assert breaks_of(batch(1, MAX_SEQUENCE), batch(1, 0), batch(1, MAX_SEQUENCE)) == [("duplicate_batch", 2, 2)]


def test_epochs() -> None:
    assert breaks_of(batch(1, 5), batch(1, 0, epoch=1), batch(1, 1, epoch=1)) == []
    assert breaks_of(batch(1, 5), batch(1, 6, epoch=1)) == [("sequence_break", 1, 1)]
    assert breaks_of(batch(1, 5, epoch=1), batch(1, 6)) == [("sequence_break", 1, 1)]


def test_who_was_silent_for_a_day_is_forgotten() -> None:
    assert breaks_of(batch(1, 5), batch(1, 0, time=NOW + FORGOTTEN_AFTER_MS)) == []
    assert breaks_of(batch(1, 5), batch(1, 0, time=NOW + FORGOTTEN_AFTER_MS - 1)) == [("duplicate_batch", 1, 1)]


def test_the_times_of_uploads_count_more_than_those_of_records() -> None:
    batches = batch(1, 5), batch(1, 0, time=NOW + FORGOTTEN_AFTER_MS)
    assert breaks_of(*batches, low=NOW, high=NOW) == [("duplicate_batch", 1, 1)]


def test_who_has_no_sequence_is_not_looked_at() -> None:
    plain = build_batch([(None, b"v", (), 0)])
    marker = bytearray(batch(1, 0))
    marker[22] |= CONTROL
    assert breaks_of(plain, batch(1, 4), plain, bytes(marker), batch(1, -1), batch(1, 5)) == []


def test_behind_a_break_nobody_is_known() -> None:
    trail = Trail()
    assert trail.add(batch(1, 0), 0, 0, NOW) == []
    trail.break_off()
    assert trail.add(batch(1, 7), 5, 0, NOW) == []
    joined = Trail()
    joined.add(batch(1, 3), 0, 0, NOW)
    assert joined.follow(trail.track()) == [
        Break("duplicate_batch", 0, 0, "producer 1 has sequence 0 of epoch 0, and 4 of epoch 0 is the next")
    ]
    after = Trail()
    after.add(batch(1, 8), 9, 0, NOW)
    assert joined.follow(after.track()) == [], "7 was the last before it"


def test_the_number_of_producers_is_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(producer_trail, "MAX_PRODUCERS", 3)
    trail = Trail()
    trail.add(b"".join(batch(producer, 0) for producer in range(5)), 0, 0, NOW)
    assert [each.producer_id for each in trail.track().head] == [2, 3, 4]


histories = st.lists(
    st.tuples(st.integers(1, 3), st.integers(0, 4), st.integers(1, 3), st.integers(0, 2)), min_size=1, max_size=12
)


@given(histories, st.data())
def test_a_log_in_pieces_is_judged_as_a_whole_one(
    history: list[tuple[int, int, int, int]], data: st.DataObject
) -> None:
    batches = [batch(producer, sequence, count, epoch) for producer, sequence, count, epoch in history]
    offsets = [sum(count for _, _, count, _ in history[:place]) for place in range(len(history))]
    whole = Trail()
    expected = whole.add(b"".join(batches), 0, 0, NOW)
    cut = data.draw(st.integers(0, len(batches)))
    pieces = Trail()
    found: list[Break] = []
    for places in (range(cut), range(cut, len(batches))):
        piece = Trail()
        if places:
            found += piece.add(b"".join(batches[place] for place in places), offsets[places[0]], 0, NOW)
        sent = msgspec.json.decode(msgspec.json.encode(piece.track()), type=Track)
        found += pieces.follow(sent)
    # A piece does not know what came before: behind a break it may judge otherwise, but it never misses the first one.
    assert bool(found) == bool(expected)
    if not expected:
        assert ends_of(pieces.track()) == ends_of(whole.track())


def ends_of(track: Track) -> list[tuple[int, int, int]]:
    return [(each.producer_id, each.last_epoch, each.next_sequence) for each in track.head]
