"""Families of metrics in Prometheus' words: a name, what it means, and its samples."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Generic, TypeAlias, TypeVar

from prometheus_client import CollectorRegistry, Metric, generate_latest
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, HistogramMetricFamily, SummaryMetricFamily

from catena.counting import Histogram

CONTENT_TYPE = "text/plain; version=0.0.4; charset=utf-8"

T = TypeVar("T")

Samples: TypeAlias = Iterable[tuple[Sequence[str], float]]
"""Values of the labels, and of the sample."""


class Families:
    """All with the same prefix."""

    def __init__(self, prefix: str) -> None:
        self._prefix = prefix

    def counter(self, name: str, text: str, value: float) -> Metric:
        return CounterMetricFamily(self._prefix + name, text, value=value)

    def counters(self, name: str, text: str, label: str, values: Mapping[str, float]) -> Metric:
        return self.counters_by(name, text, [label], (([key], value) for key, value in values.items()))

    def counters_by(self, name: str, text: str, labels: Sequence[str], samples: Samples) -> Metric:
        family = CounterMetricFamily(self._prefix + name, text, labels=labels)
        for values, value in samples:
            family.add_metric(values, value)
        return family

    def gauge(self, name: str, text: str, value: float) -> Metric:
        return GaugeMetricFamily(self._prefix + name, text, value=value)

    def gauges(self, name: str, text: str, label: str, values: Mapping[str, float]) -> Metric:
        return self.gauges_by(name, text, [label], (([key], value) for key, value in values.items()))

    def gauges_by(self, name: str, text: str, labels: Sequence[str], samples: Samples) -> Metric:
        family = GaugeMetricFamily(self._prefix + name, text, labels=labels)
        for values, value in samples:
            family.add_metric(values, value)
        return family

    def histogram(self, name: str, text: str, histogram: Histogram) -> Metric:
        family = HistogramMetricFamily(self._prefix + name, text, labels=[])
        family.add_metric([], _cumulated(histogram), histogram.sum)
        return family

    def each(self, prefix: str, label: str, items: Mapping[str, T]) -> Each[T]:
        """Families that have a sample for each of these, under its name."""
        return Each(self._prefix + prefix, label, items)


class Each(Generic[T]):
    def __init__(self, prefix: str, label: str, items: Mapping[str, T]) -> None:
        self._families = Families(prefix)
        self._prefix = prefix
        self._label = label
        self._items = items

    def counter(self, name: str, text: str, value: Callable[[T], float]) -> Metric:
        return self._families.counters(name, text, self._label, self._of_all(value))

    def counters(self, name: str, text: str, label: str, values: Callable[[T], Mapping[str, float]]) -> Metric:
        """Several of each item, by a label more."""
        samples = (([of, key], value) for of, item in self._items.items() for key, value in values(item).items())
        return self._families.counters_by(name, text, [self._label, label], samples)

    def gauge(self, name: str, text: str, value: Callable[[T], float]) -> Metric:
        return self._families.gauges(name, text, self._label, self._of_all(value))

    def histogram(self, name: str, text: str, value: Callable[[T], Histogram]) -> Metric:
        family = HistogramMetricFamily(self._prefix + name, text, labels=[self._label])
        for of, item in self._items.items():
            histogram = value(item)
            family.add_metric([of], _cumulated(histogram), histogram.sum)
        return family

    def summary(self, name: str, text: str, value: Callable[[T], tuple[int, float]]) -> Metric:
        """`value`: how many there were, and their sum."""
        family = SummaryMetricFamily(self._prefix + name, text, labels=[self._label])
        for of, item in self._items.items():
            count, total = value(item)
            family.add_metric([of], count_value=count, sum_value=total)
        return family

    def _of_all(self, value: Callable[[T], float]) -> dict[str, float]:
        return {of: value(item) for of, item in self._items.items()}


def exposition(families: Iterable[Metric]) -> bytes:
    registry = CollectorRegistry(auto_describe=False)
    registry.register(_Collector(families))
    return generate_latest(registry)


class _Collector:
    def __init__(self, families: Iterable[Metric]) -> None:
        self._families = families

    def collect(self) -> Iterator[Metric]:
        yield from self._families


def _cumulated(histogram: Histogram) -> list[tuple[str, float]]:
    so_far, found = 0, []
    for bound, count in zip([*map(str, map(float, histogram.bounds)), "+Inf"], histogram.buckets, strict=True):
        so_far += count
        found.append((bound, float(so_far)))
    return found
