from __future__ import annotations

from pathlib import Path

import pytest

from catena.errors import Corrupt
from catena.loadtest.ledger import ACKED, DROPPED, DUE, FAILED, UNKNOWN, Ledger


def test_what_became_of_each_is_found_again(tmp_path: Path) -> None:
    ledger = Ledger()
    assert ledger.add(3) == 0
    assert ledger.add() == 3
    ledger.add(3)
    ledger.acked(1, 2**40)
    ledger.ended(2, UNKNOWN)
    ledger.ended(3, FAILED, 2)
    ledger.ended(5, DROPPED)
    ledger.save(tmp_path / "ledger")
    found = Ledger.load(tmp_path / "ledger")
    assert list(found.states) == [DUE, ACKED, UNKNOWN, FAILED, FAILED, DROPPED, DUE]
    assert found.offsets[1] == 2**40
    assert found.offsets[0] == -1


def test_an_empty_one(tmp_path: Path) -> None:
    Ledger().save(tmp_path / "ledger")
    assert len(Ledger.load(tmp_path / "ledger")) == 0


@pytest.mark.parametrize("cut", [0, 7, 20, 40])
def test_one_that_was_cut_off_is_refused(tmp_path: Path, cut: int) -> None:
    ledger = Ledger()
    ledger.add(10)
    ledger.save(tmp_path / "ledger")
    content = (tmp_path / "ledger").read_bytes()
    (tmp_path / "ledger").write_bytes(content[:cut])
    with pytest.raises(Corrupt, match="ledger"):
        Ledger.load(tmp_path / "ledger")
