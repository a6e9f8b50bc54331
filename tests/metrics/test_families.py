"""Families of metrics, as Prometheus' own parser reads them."""

from __future__ import annotations

from prometheus_client.parser import text_string_to_metric_families

from catena.counting import Histogram
from catena.metrics.families import Families, exposition

ALL = Families("x_")


def samples(text: bytes) -> dict[tuple[str, ...], float]:
    families = text_string_to_metric_families(text.decode())
    return {(sample.name, *sample.labels.values()): sample.value for each in families for sample in each.samples}


def test_counters_and_gauges() -> None:
    told = samples(
        exposition(
            [
                ALL.counter("a", "A.", 1),
                ALL.counters("b", "B.", "kind", {"one": 2, 'od"d\n': 3}),
                ALL.gauge("c", "C.", True),
                ALL.gauges("d", "D.", "kind", {}),
                ALL.counters_by("e", "E.", ["k", "l"], [(["1", "2"], 12)]),
            ]
        )
    )
    assert told == {
        ("x_a_total",): 1,
        ("x_b_total", "one"): 2,
        ("x_b_total", 'od"d\n'): 3,
        ("x_c",): 1,
        ("x_e_total", "1", "2"): 12,
    }


def test_buckets_of_histograms_add_up() -> None:
    values = Histogram((0.5, 10))
    for value in (0.25, 5, 5, 50):
        values.observe(value)
    each = ALL.each("i_", "kind", {"k": values})
    told = samples(exposition([ALL.histogram("h", "H.", values), each.histogram("j", "J.", lambda value: value)]))
    assert told["x_h_bucket", "0.5"] == 1
    assert told["x_h_bucket", "10.0"] == 3
    assert told["x_h_bucket", "+Inf"] == 4
    assert (told["x_h_count",], told["x_h_sum",]) == (4, 60.25)
    assert told["x_i_j_count", "k"] == 4


def test_what_there_is_of_each() -> None:
    each = ALL.each("of_", "who", {"a": 1, "b": 2})
    told = samples(
        exposition(
            [
                each.counter("c", "C.", lambda number: number),
                each.gauge("g", "G.", lambda number: -number),
                each.counters("cs", "Cs.", "what", lambda number: {"x": number, "y": 0}),
                each.summary("s", "S.", lambda number: (number, number / 2)),
            ]
        )
    )
    assert told == {
        ("x_of_c_total", "a"): 1,
        ("x_of_c_total", "b"): 2,
        ("x_of_g", "a"): -1,
        ("x_of_g", "b"): -2,
        ("x_of_cs_total", "x", "a"): 1,
        ("x_of_cs_total", "y", "a"): 0,
        ("x_of_cs_total", "x", "b"): 2,
        ("x_of_cs_total", "y", "b"): 0,
        ("x_of_s_count", "a"): 1,
        ("x_of_s_sum", "a"): 0.5,
        ("x_of_s_count", "b"): 2,
        ("x_of_s_sum", "b"): 1,
    }
