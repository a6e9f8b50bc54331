"""The walk finds what a filter over all keys finds, in the order of a sort over all keys."""

from __future__ import annotations

import os
import tempfile
from pathlib import Path

from hypothesis import given, settings
from hypothesis import strategies as st

from catena.objects.folder_walk import SORT_RUN, walk

PARTS = st.text("a0-._=", min_size=1, max_size=2).filter(lambda part: part not in (".", ".."))
KEYS = st.lists(PARTS, min_size=1, max_size=4).map("/".join)


def keys_below(root: Path, prefix: str = "", after: str = "") -> list[str]:
    return [key for key, _ in walk(os.fspath(root), prefix, after, "hidden~")]


def make(root: Path, keys: set[str]) -> set[str]:
    """Make the files that can be made beside the others."""
    made = set()
    for key in sorted(keys):
        path = root / key
        if not any(parent in made for parent in map(str, Path(key).parents)):
            path.parent.mkdir(parents=True, exist_ok=True)
            path.touch()
            made.add(key)
    return made


@settings(max_examples=60, deadline=None)
@given(
    keys=st.sets(KEYS, max_size=25),
    queries=st.lists(st.tuples(KEYS | st.just("") | KEYS.map(lambda key: key + "/"), KEYS | st.just("")), max_size=8),
)
def test_the_walk_is_a_sorted_filter(keys: set[str], queries: list[tuple[str, str]]) -> None:
    with tempfile.TemporaryDirectory() as folder:
        made = make(Path(folder), keys)
        for prefix, after in [("", ""), *queries]:
            expected = sorted(key for key in made if key.startswith(prefix) and key > after)
            assert keys_below(Path(folder), prefix, after) == expected


def test_a_folder_of_several_runs_is_in_order(tmp_path: Path) -> None:
    names = {f"{number * 7919 % 20_011}" for number in range(2 * SORT_RUN + 10)}
    for name in names:
        os.mknod(tmp_path / name)
    assert keys_below(tmp_path) == sorted(names)


def test_the_hidden_folder_is_left_out(tmp_path: Path) -> None:
    make(tmp_path, {"hidden~/a", "b/hidden/c"})
    assert keys_below(tmp_path) == ["b/hidden/c"]


def test_what_goes_while_it_is_walked_is_left_out(tmp_path: Path) -> None:
    make(tmp_path, {"a", "b", "c/d", "e"})
    found = walk(os.fspath(tmp_path), "", "", "hidden~")
    assert next(found).key == "a"
    (tmp_path / "b").unlink()
    (tmp_path / "c" / "d").unlink()
    (tmp_path / "c").rmdir()
    assert [key for key, _ in found] == ["e"]
