"""How much memory a process keeps that it does not use."""

from __future__ import annotations

import ctypes

M_ARENA_MAX = -8
"""Of mallopt(3)."""
HEAPS = 2


def share_heaps() -> None:
    """glibc gives each thread a heap of its own, and buffers leave holes in all of them: 100 MB in a node with 20
    consumers, and as much in a worker that compacts. To be called before there are threads."""
    mallopt = getattr(ctypes.CDLL(None), "mallopt", None)
    if mallopt is not None:  # another C library may not have it
        mallopt(M_ARENA_MAX, HEAPS)
