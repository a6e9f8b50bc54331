"""The benchmark of hot tails: every record is produced, acked and delivered once, and counted."""

from __future__ import annotations

from pathlib import Path

from bench.hot_tail import figures_of, on_nodes


def test_all_records_are_delivered_and_the_folder_spares_the_stores(tmp_path: Path) -> None:
    count = 50
    shared = on_nodes(tmp_path / "shared", True, 0.25, 200)
    assert len(shared.produced) == len(shared.delivered) == len(shared.whole) == count
    assert min(shared.produced) > 0
    assert min(shared.whole) > 0
    alone = on_nodes(tmp_path / "alone", False, 0.25, 200)
    assert shared.objects_read < alone.objects_read
    assert [figure.met is not None for figure in figures_of("x", shared, True)].count(True) == 2
