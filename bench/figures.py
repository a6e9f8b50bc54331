"""What a benchmark reports, and how CPU and percentiles are taken."""

from __future__ import annotations

import resource
from collections.abc import Sequence
from typing import NamedTuple


class Figure(NamedTuple):
    name: str
    value: float
    unit: str = ""
    aim: str = ""
    met: bool | None = None


def at_most(name: str, value: float, aim: float, unit: str = "") -> Figure:
    return Figure(name, value, unit, f"at most {aim:g}", value <= aim)


def at_least(name: str, value: float, aim: float, unit: str = "") -> Figure:
    return Figure(name, value, unit, f"at least {aim:g}", value >= aim)


def cpu_seconds() -> float:
    usage = resource.getrusage(resource.RUSAGE_SELF)
    return usage.ru_utime + usage.ru_stime


def percentile(values: Sequence[float], percent: float) -> float:
    ordered = sorted(values)
    return ordered[min(len(ordered) - 1, int(len(ordered) * percent / 100))]
