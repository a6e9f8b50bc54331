"""What requests to an object store cost, by the list prices of S3 Standard in us-east-1: an estimate, not a bill."""

from __future__ import annotations

from collections.abc import Mapping

USD_PER_REQUEST = {
    "put": 5e-6,
    "list": 5e-6,
    "get": 4e-7,
    "range_get": 4e-7,
    "head": 4e-7,
    "delete": 0.0,
}


def requests_cost_usd(requests: Mapping[str, int]) -> float:
    """Of requests by their kind, as `catena.objects.counted` names and counts them."""
    return sum(USD_PER_REQUEST[kind] * count for kind, count in requests.items())
