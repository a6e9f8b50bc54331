"""Few by name, however many there are."""

from __future__ import annotations

from catena.metrics.groups import GroupFigures
from catena.metrics.others import OTHERS, first_and_others


def shown(lags: dict[str, int], number: int) -> dict[str, GroupFigures]:
    groups = {name: GroupFigures(1, lag, lag) for name, lag in lags.items()}
    return first_and_others(groups, number, lambda group: -group.lag, GroupFigures(groups=0))


def test_the_rest_is_one() -> None:
    lags = {f"g{n}": n for n in range(1, 6)}
    found = shown(lags, 2)
    assert list(found) == ["g5", "g4", OTHERS]
    assert found[OTHERS] == GroupFigures(3, 6, 3, groups=3)
    assert shown(lags, 5).keys() == lags.keys()
    assert shown(lags, 0).keys() == {OTHERS}
    assert shown({}, 0) == {}


def test_what_has_the_name_of_the_rest_is_told_of_with_it() -> None:
    assert shown({OTHERS: 100, "g": 1}, 2) == {"g": GroupFigures(1, 1, 1), OTHERS: GroupFigures(1, 100, 100)}
    assert shown({OTHERS: 100, "g": 1, "h": 2}, 1)[OTHERS] == GroupFigures(2, 101, 100, groups=2)
