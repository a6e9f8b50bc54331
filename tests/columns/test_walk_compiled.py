from __future__ import annotations

import pytest

from tests.columns.walks import WalkContract

walk_compiled = pytest.importorskip("catena.columns.walk_compiled", reason="numba is not installed")


class TestWalkCompiled(WalkContract):
    walk = staticmethod(walk_compiled.walk)
