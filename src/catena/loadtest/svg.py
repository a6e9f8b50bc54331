"""Line charts as SVG text, for a page that needs nothing from anywhere. Colours come from the page's own style."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from html import escape
from typing import NamedTuple

WIDTH, HEIGHT = 560, 240
LEFT, RIGHT, TOP, BOTTOM = 52, 12, 10, 24
LETTER = 5.5
"""About how wide one is."""
COLOURS = 8
"""Classes c0 to c7 of the page."""
MAX_POINTS = 600
"""Of a line; more can't be seen."""
FEW_DECADES = 2
LEAST = 1e-9
"""What is smaller is drawn as nothing."""
DAY, HOUR = 86_400, 3_600


class Series(NamedTuple):
    name: str
    points: Sequence[tuple[float, float | None]]
    """Seconds and values, by time; None is a gap."""


class Mark(NamedTuple):
    """Something that happened."""

    t: float
    label: str


class Chart(NamedTuple):
    title: str
    unit: str
    series: Sequence[Series]
    marks: Sequence[Mark] = ()
    is_log: bool = False
    note: str = ""

    @property
    def is_empty(self) -> bool:
        return not any(value is not None for each in self.series for _, value in each.points)


def draw(chart: Chart, span: tuple[float, float]) -> str:
    """A figure of the page: title, legend and picture. `span`: from when to when."""
    values = [value for each in chart.series for _, value in each.points if value is not None]
    scale = _log_scale(values) if chart.is_log else _linear_scale(values)
    x_of = _x_scale(span)
    parts = [f'<svg viewBox="0 0 {WIDTH} {HEIGHT}" role="img" aria-label="{escape(chart.title)}">']
    for tick in scale.ticks:
        y = scale.y(tick)
        parts.append(f'<line class="grid" x1="{LEFT}" x2="{WIDTH - RIGHT}" y1="{y:.1f}" y2="{y:.1f}"/>')
        parts.append(f'<text class="y" x="{LEFT - 6}" y="{y + 3.5:.1f}">{short(tick)}</text>')
    for tick in time_ticks(*span):
        parts.append(f'<text class="x" x="{x_of(tick):.1f}" y="{HEIGHT - 8}">{clock_time(tick)}</text>')
    parts += _marks(chart.marks, x_of)
    for number, each in enumerate(chart.series):
        colour = f"c{number % COLOURS}"
        for line in _lines(each.points, scale, x_of):
            parts.append(f'<polyline class="{colour}" points="{line}"/>')
    parts.append("</svg>")
    legend = "".join(
        f'<span class="c{number % COLOURS}">{escape(each.name)}</span>' for number, each in enumerate(chart.series)
    )
    unit = f" <small>{escape(chart.unit)}{', log scale' if chart.is_log else ''}</small>"
    note = f"<p>{escape(chart.note)}</p>" if chart.note else ""
    caption = f"<figcaption>{escape(chart.title)}{unit}<div>{legend}</div></figcaption>"
    return f"<figure>{caption}{''.join(parts)}{note}</figure>"


def _marks(marks: Sequence[Mark], x_of: _XScale) -> Iterator[str]:
    """A line for each, and its name where there is room for it."""
    free_from = 0.0
    for mark in marks:
        x = x_of(mark.t)
        line = f'<line x1="{x:.1f}" x2="{x:.1f}" y1="{TOP}" y2="{HEIGHT - BOTTOM}"/>'
        named = ""
        if x >= free_from and x + len(mark.label) * LETTER <= WIDTH:
            named = f'<text x="{x + 3:.1f}" y="{TOP + 8}">{escape(mark.label)}</text>'
            free_from = x + (len(mark.label) + 2) * LETTER
        yield f'<g class="mark"><title>{escape(mark.label)}</title>{line}{named}</g>'


class _Scale(NamedTuple):
    low: float
    high: float
    ticks: list[float]
    is_log: bool = False

    def y(self, value: float) -> float:
        if self.is_log:
            low, high, value = math.log10(self.low), math.log10(self.high), math.log10(max(value, self.low))
        else:
            low, high = self.low, self.high
        share = (value - low) / (high - low)
        return HEIGHT - BOTTOM - min(max(share, 0.0), 1.0) * (HEIGHT - BOTTOM - TOP)


def _linear_scale(values: Sequence[float]) -> _Scale:
    """From 0, or from below it, to a round number above all."""
    top, bottom = max([*values, 0.0]), min([*values, 0.0])
    step = round_step(max(top - bottom, LEAST) / 4)
    low, high = math.floor(bottom / step) * step, max(math.ceil(top / step), 1) * step
    return _Scale(low, high, [low + step * number for number in range(round((high - low) / step) + 1)])


def _log_scale(values: Sequence[float]) -> _Scale:
    positive = [value for value in values if value > LEAST] or [1.0]
    low = 10.0 ** math.floor(math.log10(min(positive)))
    high = 10.0 ** math.ceil(math.log10(max(positive)))
    high = high if high > low else low * 10
    decades = round(math.log10(high / low))
    steps = (1, 2, 5) if decades <= FEW_DECADES else (1,)
    ticks = [low * 10**number * step for number in range(decades) for step in steps] + [high]
    return _Scale(low, high, ticks, is_log=True)


def _x_scale(span: tuple[float, float]) -> _XScale:
    return _XScale(span[0], max(span[1], span[0] + 1e-6))


class _XScale(NamedTuple):
    start: float
    end: float

    def __call__(self, t: float) -> float:
        share = (t - self.start) / (self.end - self.start)
        return LEFT + min(max(share, 0.0), 1.0) * (WIDTH - LEFT - RIGHT)


def _lines(points: Sequence[tuple[float, float | None]], scale: _Scale, x_of: _XScale) -> list[str]:
    """Points of unbroken lines; of too many, each that is drawn stands for a few, by the highest of them."""
    stride = max(1, math.ceil(len(points) / MAX_POINTS))
    lines: list[list[str]] = [[]]
    for begin in range(0, len(points), stride):
        some = [(t, value) for t, value in points[begin : begin + stride] if value is not None]
        if not some:
            lines.append([])
            continue
        t, value = max(some, key=lambda point: point[1])
        lines[-1].append(f"{x_of(t):.1f},{scale.y(value):.1f}")
    # A point by itself is drawn as a short dash.
    return [" ".join(line if len(line) > 1 else [line[0], line[0]]) for line in lines if line]


def round_step(least: float) -> float:
    """1, 2 or 5 times a power of ten."""
    power = 10.0 ** math.floor(math.log10(least))
    return next(step * power for step in (1.0, 2.0, 5.0, 10.0) if step * power >= least * (1 - 1e-9))


def time_ticks(start: float, end: float) -> list[float]:
    wanted = max((end - start) / 6, 1e-3)
    steps = (1, 2, 5, 10, 15, 30, 60, 120, 300, 600, 900, 1_800, HOUR, 2 * HOUR, 6 * HOUR, 12 * HOUR, DAY)
    step = next((step for step in steps if step >= wanted), DAY)
    first = math.ceil(start / step) * step
    return [first + number * step for number in range(int((end - first) // step) + 1)]


def clock_time(seconds: float) -> str:
    minutes, rest = divmod(round(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours}:{minutes:02}:{rest:02}" if hours else f"{minutes}:{rest:02}"


def short(value: float) -> str:
    """1.2k, 3M, 0.05."""
    for factor, unit in ((1e9, "G"), (1e6, "M"), (1e3, "k")):
        if abs(value) >= factor:
            return f"{value / factor:.3g}{unit}"
    return f"{value:.3g}"
