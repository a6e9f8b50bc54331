"""The end of the demo can fail."""

from __future__ import annotations

import pytest

from catena.demo_tables import WrongAnswer, _check


def test_a_wrong_answer_is_said() -> None:
    _check("rows", 5, 5)
    with pytest.raises(WrongAnswer, match="rows: 5 were expected, 4 were found"):
        _check("rows", 5, 4)
