"""What an object store costs, by the list prices of S3 Standard in us-east-1: an estimate, not a bill.

Bytes that move between S3 and machines of the same region cost nothing, and so they are not here.
"""

from __future__ import annotations

from collections.abc import Mapping

GB = 1 << 30
"""As it is billed."""

USD_PER_REQUEST = {
    "put": 5e-6,
    "list": 5e-6,
    "get": 4e-7,
    "range_get": 4e-7,
    "head": 4e-7,
    "delete": 0.0,
}
USD_PER_GB_MONTH = 0.023
"""Of the first 50 TB."""


def requests_cost_usd(requests: Mapping[str, int]) -> float:
    """Of requests by their kind, as `catena.objects.counted` names and counts them."""
    return sum(USD_PER_REQUEST[kind] * count for kind, count in requests.items())


def storage_cost_usd(size: int) -> float:
    """Of so many bytes, a month."""
    return size / GB * USD_PER_GB_MONTH
