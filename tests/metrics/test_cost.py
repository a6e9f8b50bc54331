"""Prices of requests."""

from __future__ import annotations

import pytest

from catena.metrics.cost import USD_PER_REQUEST, requests_cost_usd
from catena.objects.counted import KINDS


def test_every_kind_has_its_price() -> None:
    assert USD_PER_REQUEST.keys() == set(KINDS)
    assert requests_cost_usd({"put": 1000, "range_get": 10_000, "delete": 5}) == pytest.approx(0.005 + 0.004)
    assert requests_cost_usd({}) == 0
