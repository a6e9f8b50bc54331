"""Many records at a time: chunks, bounds, and that values that are cut out of one string are the right ones."""

from __future__ import annotations

import pytest

from catena.formats.compression import Compression
from catena.formats.records import build_batch
from catena.loglets.base import Batch
from catena.rest import walked
from catena.rest.decoding import Asked
from catena.rest.walked import decode_walked
from catena.types import TopicId, TopicPartition

TP = TopicPartition("t", TopicId("0" * 32), 0)
ALL = Asked(0, 1 << 30, True, False)


def log(*texts: str, per_batch: int = 7, compression: Compression = Compression.NONE) -> list[Batch]:
    batches = []
    for at in range(0, len(texts), per_batch):
        some = texts[at : at + per_batch]
        data = build_batch([(None, text.encode(), (), 1) for text in some], compression=compression)
        batches.append(Batch(at, len(some), memoryview(data)))
    return batches


@pytest.mark.parametrize("compression", list(Compression))
@pytest.mark.parametrize("letter", ["x", "ü", "\x80", "\U0001f600"])
def test_many_batches_in_many_chunks(monkeypatch: pytest.MonkeyPatch, compression: Compression, letter: str) -> None:
    monkeypatch.setattr(walked, "CHUNK_ROWS", 20)
    texts = [letter * (number % 13) + str(number) for number in range(200)]
    found = decode_walked(log(*texts, compression=compression), TP, ALL)
    assert found.records == texts
    assert (found.first, found.next, found.offsets) == (0, 200, None)
    assert found.size == sum(len(text.encode()) for text in texts)


def test_an_answer_has_so_many_records_at_the_most(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(walked, "MAX_RECORDS", 50)
    found = decode_walked(log(*[""] * 100), TP, ALL)
    assert (len(found.records), found.next) == (50, 50)


def test_batches_that_are_not_wanted_are_not_looked_at(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(walked, "CHUNK_ROWS", 7)
    batches = log(*["text"] * 70)
    batches[3] = Batch(21, 7, memoryview(b"no batch"))
    assert len(decode_walked(batches, TP, ALL._replace(max_bytes=30)).records) == 7
