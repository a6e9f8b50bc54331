"""Entries of a Delta table's log."""

from __future__ import annotations

import msgspec
import pytest

from catena.tables.committer import Change, Span
from catena.tables.delta_actions import change_entry, nonce_of
from catena.testing.contracts.tables import make_file
from catena.types import TopicId


def test_entries() -> None:
    new, old = make_file("2026-11-15"), make_file("2026-11-14")
    topic_id = TopicId("a" * 32)
    entry = change_entry(Change([new], [], {1: 5, 0: 7}, letters=9), topic_id, "nonce", 77)
    info, *others = [msgspec.json.decode(line) for line in entry.split(b"\n")]
    assert info["commitInfo"]["operation"] == "WRITE"
    assert nonce_of(entry) == "nonce"
    assert [each["txn"]["appId"] for each in others[:3]] == [
        f"catena/{topic_id}/0",
        f"catena/{topic_id}/1",
        "catena/dead-letters",
    ]
    added = others[3]["add"]
    assert (added["path"], added["partitionValues"], added["dataChange"]) == (new.path, {"day": "2026-11-15"}, True)
    stats = msgspec.json.decode(added["stats"])
    assert stats["minValues"]["_catena"]["timestamp"] == "2023-11-14T22:13:20.000001Z"
    _, removed, swapped = map(msgspec.json.decode, change_entry(Change([new], [old]), topic_id, "n", 7).split(b"\n"))
    assert (removed["remove"]["dataChange"], swapped["add"]["dataChange"]) == (False, False)
    _, dropped = map(msgspec.json.decode, change_entry(Change([], [old]), topic_id, "n", 7).split(b"\n"))
    assert dropped["remove"]["dataChange"] is True


def test_times_that_no_text_stands_for_have_no_bounds() -> None:
    file = msgspec.structs.replace(make_file(), span=Span((0, 0), (0, 1), (0, 2**62)))
    entry = change_entry(Change([file], progress={0: 1}), TopicId("a" * 32), "n", 7)
    stats = msgspec.json.decode(msgspec.json.decode(entry.split(b"\n")[-1])["add"]["stats"])
    assert stats["maxValues"] == {"_catena": {"partition": 0, "offset": 1}}


@pytest.mark.parametrize("entry", [b"", b"{}", b"[]", b'{"commitInfo": {"txnId": 5}}', b'{"add": {}}'])
def test_entries_of_others(entry: bytes) -> None:
    assert nonce_of(entry) is None
