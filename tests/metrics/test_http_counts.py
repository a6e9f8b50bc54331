"""What was asked over HTTP."""

from __future__ import annotations

from catena.metrics.http_counts import HttpCounts


def test_answers_by_path_method_and_status() -> None:
    counts = HttpCounts()
    counts.observe("/produce", "POST", 200, 0.5, 100, 10)
    counts.observe("/produce", "POST", 200, 0.5, 100, 10)
    counts.observe("/produce", "POST", 503, 0.5, 100, 10)
    counts.observe("other", "BREW", 404, 0.0, 0, 5)
    produce = counts.paths["/produce"]
    assert produce.answers == {"POST 200": 2, "POST 503": 1}
    assert (produce.bytes_in, produce.bytes_out, produce.seconds.sum) == (300, 30, 1.5)
    assert counts.paths["other"].answers == {"other 404": 1}, "a client can't make up labels"
