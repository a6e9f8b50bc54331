from __future__ import annotations

from catena.columns.walk_numpy import walk
from tests.columns.walks import WalkContract


class TestWalkNumpy(WalkContract):
    walk = staticmethod(walk)
