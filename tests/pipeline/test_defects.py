from __future__ import annotations

from typing import get_args

import msgspec

from catena.pipeline.defects import LEFTOVERS, OF_CONTENT, Damage, Defect, Leftover, defect
from catena.types import TopicId, TopicPartition

TP = TopicPartition("orders", TopicId("a" * 32), 3)


def test_a_kind_says_how_bad_it_is() -> None:
    assert defect("gap", TP, "key", 1, 2, "why") == Defect("gap", "damage", "orders", 3, "key", (1, 2), "why")
    assert defect("pending_left", TP, "key", 1, 2, "why").severity == "leftover"


def test_no_kind_is_both() -> None:
    assert set(get_args(Leftover)) == LEFTOVERS
    assert not LEFTOVERS & set(get_args(Damage))
    assert set(get_args(Damage)) > OF_CONTENT


def test_it_can_be_sent() -> None:
    found = defect("gap", TP, "key", 1, 2, "why")
    assert msgspec.json.decode(msgspec.json.encode(found), type=Defect) == found
