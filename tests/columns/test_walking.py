from __future__ import annotations

import subprocess
import sys

import numpy as np
import pytest

from catena.columns import walk_numpy
from catena.columns.fields import Fields, Spans
from catena.columns.varints import Bytes
from catena.columns.walking import Walk, Walking, load_compiled
from tests.columns.walks import body_of, found_by, spans_of

BODY = body_of([(b"k", b"v", (), 0)] * 3)


def test_little_is_walked_without_the_compiled_one() -> None:
    steps: list[str] = []

    def load() -> Walk:
        def compiled(data: Bytes, spans: Spans) -> Fields:
            steps.append("walked")
            return walk_numpy.walk(data, spans)

        steps.append("loaded")
        return compiled

    walking = Walking(load, compiled_after=5)
    seen = []
    for _ in range(4):
        assert len(found_by(walking, [BODY], [3], [2])) == 3
        seen.append(list(steps))
    assert seen == [[], [], ["loaded", "walked"], ["loaded", "walked", "walked"]]


def test_both_walks_agree() -> None:
    spans = spans_of([BODY, BODY], [3, 3], [2, 2])
    data = np.frombuffer(BODY * 2, np.uint8)
    found, expected = load_compiled()(data, spans), walk_numpy.walk(data, spans)
    for mine, theirs in zip([*found[:8], *found.headers], [*expected[:8], *expected.headers], strict=True):
        assert mine.tolist() == theirs.tolist()


WITHOUT_NUMBA = """
import sys
sys.modules["numba"] = None
from catena.columns import walk_numpy
from catena.columns.walking import load_compiled
assert load_compiled() is walk_numpy.walk
"""
NOT_LOADED = """
import sys
import catena.columns.decode, catena.columns.encode
assert "numba" not in sys.modules
"""


@pytest.mark.parametrize("code", [WITHOUT_NUMBA, NOT_LOADED], ids=["without numba", "before it is needed"])
def test_numba_is_not_needed(code: str) -> None:
    subprocess.run([sys.executable, "-c", code], check=True)
