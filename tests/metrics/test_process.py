"""What Linux says of this very process."""

from __future__ import annotations

import os
from pathlib import Path

from catena.metrics.process import look


def test_this_process() -> None:
    before = look()
    assert before.cpu_seconds > 0
    assert before.resident_bytes > 1 << 20
    assert before.threads >= 1
    assert 0 < before.open_fds <= before.max_fds
    opened = [os.open(os.devnull, os.O_RDONLY) for _ in range(3)]
    try:
        assert look().open_fds == before.open_fds + 3
    finally:
        for each in opened:
            os.close(each)


def test_a_program_whose_name_is_odd(tmp_path: Path) -> None:
    (tmp_path / "fd").mkdir()
    (tmp_path / "statm").write_text("10 2 3")
    numbers = " ".join(map(str, range(3, 53)))
    (tmp_path / "stat").write_text(f"1 (a) S) {numbers}")
    found = look(tmp_path)
    assert found.threads == 20
    assert found.open_fds == 0


def test_without_proc(tmp_path: Path) -> None:
    found = look(tmp_path / "nothing")
    assert (found.resident_bytes, found.open_fds, found.threads) == (0, 0, 0)
    assert found.cpu_seconds > 0
