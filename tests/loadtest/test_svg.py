from __future__ import annotations

import xml.etree.ElementTree as ET

import pytest
from hypothesis import given
from hypothesis import strategies as st

from catena.loadtest.svg import Chart, Mark, Series, clock_time, draw, round_step, short, time_ticks

POINTS = st.lists(st.tuples(st.floats(0, 1e5), st.none() | st.floats(0, 1e12)), max_size=2_000)


@given(POINTS, st.booleans())
def test_whatever_is_drawn_is_well_formed_and_inside_of_the_picture(
    points: list[tuple[float, float | None]], is_log: bool
) -> None:
    chart = Chart("a <b> & c", "s", [Series("x < y", sorted(points, key=lambda each: each[0]))], is_log=is_log)
    tree = ET.fromstring(draw(chart, (0.0, 1e5)))
    for line in tree.iter("polyline"):
        for x, y in (pair.split(",") for pair in line.attrib["points"].split()):
            assert 0 <= float(x) <= 560
            assert 0 <= float(y) <= 240


def test_a_gap_breaks_the_line() -> None:
    series = Series("x", [(0, 1.0), (1, 2.0), (2, None), (3, 1.0), (4, 1.0)])
    assert draw(Chart("t", "", [series]), (0, 4)).count("<polyline") == 2


def test_what_happened_is_marked_with_its_name() -> None:
    text = draw(Chart("t", "MB/s", [Series("x", [(0, 1.0), (9, 2.0)])], [Mark(5, "kill node-1")]), (0, 10))
    assert "<title>kill node-1</title>" in text


def test_a_peak_survives_when_points_are_too_many() -> None:
    flat = [(float(t), 1.0) for t in range(10_000)]
    flat[4321] = (4321.0, 100.0)
    tree = ET.fromstring(draw(Chart("t", "", [Series("x", flat)]), (0, 10_000)))
    (line,) = tree.iter("polyline")
    heights = [float(pair.split(",")[1]) for pair in line.attrib["points"].split()]
    assert len(heights) <= 600
    assert min(heights) < 20


def test_empty_is_told() -> None:
    assert Chart("t", "", [Series("x", [(0, None)])]).is_empty
    assert not Chart("t", "", [Series("x", [(0, 0.0)])]).is_empty


@pytest.mark.parametrize(("least", "step"), [(0.13, 0.2), (1.0, 1.0), (3.0, 5.0), (7.0, 10.0), (2300, 5000)])
def test_steps_are_round(least: float, step: float) -> None:
    assert round_step(least) == pytest.approx(step)


@pytest.mark.parametrize("end", [1, 20, 600, 3_600, 86_400, 864_000])
def test_ticks_of_time_are_few_and_inside(end: float) -> None:
    ticks = time_ticks(0.0, end)
    assert 1 <= len(ticks) <= 12
    assert all(0 <= tick <= end for tick in ticks)


def test_numbers_are_short() -> None:
    assert [short(value) for value in (0, 0.05, 12, 1_200, 3e6, 2e9)] == ["0", "0.05", "12", "1.2k", "3M", "2G"]
    assert [clock_time(value) for value in (0, 61, 3_601)] == ["0:00", "1:01", "1:00:01"]
