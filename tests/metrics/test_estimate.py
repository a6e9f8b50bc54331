"""Costs, by hand."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from catena.metrics.cost import GB
from catena.metrics.estimate import (
    CLIENTS,
    GETS,
    PUTS,
    STORED,
    Assumptions,
    Item,
    advice,
    cautions,
    dominant,
    estimate,
)
from catena.metrics.traffic import Traffic

MB = 1 << 20
BUSY = Traffic(
    seconds=3600,
    produced_bytes_per_s=10 * MB,
    fetched_bytes_per_s=30 * MB,
    requests_per_s={"put": 4.0, "list": 0.5, "get": 1.0, "range_get": 8.0, "head": 1.0, "delete": 100.0},
    stored_bytes=2000 * GB,
    log_bytes=1000 * GB,
)
MONTH_S = 30 * 86_400
PRODUCED_GB = 10 * MB * MONTH_S / GB


def usd(items: tuple[Item, ...]) -> dict[str, float]:
    return {item.name: item.usd for item in items}


def test_a_month_on_s3() -> None:
    found = usd(estimate(BUSY, Assumptions(own_clients_cross_zones=0)).catena)
    assert found[PUTS] == pytest.approx(4.5 * MONTH_S * 5e-6)
    assert found[GETS] == pytest.approx(10 * MONTH_S * 4e-7)
    assert found[STORED] == pytest.approx(2000 * 0.023)
    assert found[CLIENTS] == 0


def test_a_month_on_kafka() -> None:
    found = usd(estimate(BUSY, Assumptions()).kafka)
    assert found["disks"] == pytest.approx(1000 * 3 / 0.5 * 0.08)
    assert found["copies across zones"] == pytest.approx(PRODUCED_GB * 2 * 0.02)
    assert found["producers across zones"] == pytest.approx(PRODUCED_GB * 2 / 3 * 0.02)
    assert found["consumers across zones"] == pytest.approx(3 * PRODUCED_GB * 2 / 3 * 0.02)


def test_clients_of_both_cross_zones_unless_told_otherwise() -> None:
    found = estimate(BUSY, Assumptions())
    kafka = usd(found.kafka)
    assert usd(found.catena)[CLIENTS] == pytest.approx(
        kafka["producers across zones"] + kafka["consumers across zones"]
    )


def test_consumers_of_kafka_may_fetch_from_followers_of_their_zone() -> None:
    usual, found = (usd(estimate(BUSY, Assumptions(consumers_cross_zones=part)).kafka) for part in (None, 0.0))
    assert found.pop("consumers across zones") == 0 < usual.pop("consumers across zones")
    assert found == usual


def test_it_says_why_it_may_be_far_from_the_truth() -> None:
    assert cautions(BUSY, Assumptions()) == []
    quiet = msgspec.structs.replace(BUSY, produced_bytes_per_s=0.0, fetched_bytes_per_s=0.0)
    assert [each.partition(":")[0] for each in cautions(quiet, Assumptions())] == ["nothing was written or read"]
    short = msgspec.structs.replace(BUSY, seconds=5.4)
    assert cautions(short, Assumptions())[0].startswith("5 seconds say little about a month")
    unknown = msgspec.structs.replace(BUSY, stored_bytes=None)
    assert cautions(unknown, Assumptions())[0].startswith("nobody said how much is stored")
    assert cautions(unknown, Assumptions(retention_days=7)) == []


def test_every_assumption_matters() -> None:
    usual = estimate(BUSY, Assumptions())
    changes: dict[str, Any] = {
        "days": 7.0,
        "retention_days": 3.0,
        "put_usd_per_1000": 1.0,
        "get_usd_per_1000": 1.0,
        "storage_usd_per_gb_month": 1.0,
        "cross_zone_usd_per_gb": 1.0,
        "clients_cross_zones": 0.5,
        "consumers_cross_zones": 0.0,
        "own_clients_cross_zones": 0.5,
        "replication": 2,
        "disk_usd_per_gb_month": 1.0,
        "disk_fill": 0.9,
    }
    for name, value in changes.items():
        found = estimate(BUSY, Assumptions(**{name: value}))
        assert (found.catena_usd, found.kafka_usd) != (usual.catena_usd, usual.kafka_usd), name
    assert len(msgspec.structs.fields(Assumptions)) == 12


def test_what_will_be_stored() -> None:
    found = estimate(BUSY, Assumptions(retention_days=30))
    assert usd(found.catena)[STORED] == pytest.approx(PRODUCED_GB * 0.023)
    assert usd(found.kafka)["disks"] == pytest.approx(PRODUCED_GB * 6 * 0.08)


def test_nothing_costs_nothing() -> None:
    found = estimate(Traffic(), Assumptions())
    assert (found.catena_usd, found.kafka_usd) == (0, 0)
    assert dominant(found.catena) is None


def test_what_dominates_is_named_and_can_be_helped() -> None:
    found = estimate(msgspec.structs.replace(BUSY, stored_bytes=10**18), Assumptions())
    largest = dominant(found.catena)
    assert largest is not None
    assert largest.name == STORED
    assert all(advice(item) for item in found.catena)
    assert dominant([Item("a", 1, ""), Item("b", 1.5, ""), Item("c", 1, "")]) is None
