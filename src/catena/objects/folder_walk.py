"""The files below a folder, lazily, in byte order of their keys.

A walk that sorts names and descends is not in key order: it visits `a/b` with `a`, before `a-b`, though `-` sorts below
`/`. So a subfolder takes its place as `a/`, the way all of its keys begin. The order is then right for whole keys: a
file's name has no `/` in it, hence it differs from `a/` at the character that decides, or before.
"""

from __future__ import annotations

import heapq
import itertools
import os
import stat
from collections.abc import Iterator
from typing import NamedTuple

# The interpreter can't switch threads within one `sort`, so a big folder is sorted in runs which are then merged.
SORT_RUN = 2_000


class File(NamedTuple):
    key: str
    status: os.stat_result


def walk(root: str, prefix: str, after: str, hidden: str) -> Iterator[File]:
    """Files whose key starts with `prefix` and is greater than `after`; the folder `hidden` in the root is left out."""
    base = prefix[: prefix.rfind("/") + 1]
    # The folders being walked, from the outermost in; each holds names only, so a walk may be dropped anywhere.
    pending = [_entries(root, base)]
    while pending:
        key = next(pending[-1], None)
        if key is None:
            pending.pop()
        elif key.endswith("/"):
            if _may_hold(key, prefix, after) and key != f"{hidden}/":
                pending.append(_entries(root, key))
        elif key.startswith(prefix) and key > after and (status := _status(os.path.join(root, key))) is not None:
            yield File(key, status)


def _may_hold(folder: str, prefix: str, after: str) -> bool:
    """Whether a key that begins with `folder` can be one that is asked for."""
    return (folder.startswith(prefix) or prefix.startswith(folder)) and (folder > after or after.startswith(folder))


def _entries(root: str, folder: str) -> Iterator[str]:
    """Keys of the files, and keys with a `/` at the end of the folders, that are in `folder`, sorted."""
    try:
        with os.scandir(os.path.join(root, folder)) as entries:
            keys = (f"{folder}{e.name}/" if e.is_dir(follow_symlinks=False) else folder + e.name for e in entries)
            runs = []
            while run := sorted(itertools.islice(keys, SORT_RUN)):
                runs.append(run)
    except (FileNotFoundError, NotADirectoryError):
        return iter(())
    # A name that is replaced while the folder is read may be read twice.
    return (key for key, _ in itertools.groupby(heapq.merge(*runs)))


def _status(path: str) -> os.stat_result | None:
    """None for what was deleted since its name was read, and for what is no plain file."""
    try:
        status = os.stat(path, follow_symlinks=False)
    except (FileNotFoundError, NotADirectoryError):
        return None
    return status if stat.S_ISREG(status.st_mode) else None
