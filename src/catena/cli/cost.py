"""`catena cost`: what this traffic costs a month, here and on Kafka, and by which assumptions."""

from __future__ import annotations

import asyncio
import sys
from collections.abc import Sequence
from typing import TYPE_CHECKING, Annotated, Any, NamedTuple, TypeAlias

import typer

from catena.cli.options import Config, Data, Debug, Json, common
from catena.cli.output import print_columns, print_json
from catena.cli.running import reporting, require_log

if TYPE_CHECKING:
    from catena.config import Settings
    from catena.metrics.asking import Silent
    from catena.metrics.estimate import Assumptions, Estimate, Item
    from catena.metrics.traffic import Traffic

PLACES_SHOWN = 6


def _assumed(name: str, text: str, at_least: float = 0, at_most: float | None = None) -> Any:
    return typer.Option(name, min=at_least, max=at_most, help=text, rich_help_panel="What is assumed")


Metrics: TypeAlias = Annotated[
    list[str] | None,
    typer.Option(
        "--metrics",
        metavar="URL|FILE",
        help="A node or a pipeline service, or what it said; again for more. All that run if nothing is said.",
    ),
]
Over: TypeAlias = Annotated[float, typer.Option("--over", min=0, max=3600, help="Look twice, so many seconds apart.")]
Days: TypeAlias = Annotated[float, _assumed("--days", "For how long it goes on.", 0.01, 3660)]
Retention: TypeAlias = Annotated[
    float | None, _assumed("--retention-days", "As much is stored as is written in so many.")
]
PutUsd: TypeAlias = Annotated[float | None, _assumed("--put-usd", "Of 1,000 PUTs or LISTs.")]
GetUsd: TypeAlias = Annotated[float | None, _assumed("--get-usd", "Of 1,000 GETs.")]
StorageUsd: TypeAlias = Annotated[float | None, _assumed("--storage-usd", "Of a GB in the bucket for a month.")]
CrossZoneUsd: TypeAlias = Annotated[float | None, _assumed("--cross-zone-usd", "Of a GB between zones, both sides.")]
DiskUsd: TypeAlias = Annotated[float | None, _assumed("--disk-usd", "Of a GB of disk for a month.")]
DiskFill: TypeAlias = Annotated[float | None, _assumed("--disk-fill", "How full disks are.", 0.01, 1)]
Replication: TypeAlias = Annotated[int | None, _assumed("--replication", "Copies that Kafka keeps.", 1, 9)]
CrossZone: TypeAlias = Annotated[
    float | None, _assumed("--cross-zone", "Part of what clients of Kafka move that crosses zones.", 0, 1)
]
ConsumersCrossZone: TypeAlias = Annotated[
    float | None,
    _assumed("--consumers-cross-zone", "The same of Kafka's consumers alone; 0: they fetch from followers.", 0, 1),
]
OwnCrossZone: TypeAlias = Annotated[
    float | None, _assumed("--own-cross-zone", "The same of clients of Catena; 0: they ask nodes of their zone.", 0, 1)
]


def cost(
    context: typer.Context,
    metrics: Metrics = None,
    over: Over = 0.0,
    days: Days = 30.0,
    retention_days: Retention = None,
    put_usd: PutUsd = None,
    get_usd: GetUsd = None,
    storage_usd: StorageUsd = None,
    cross_zone_usd: CrossZoneUsd = None,
    disk_usd: DiskUsd = None,
    disk_fill: DiskFill = None,
    replication: Replication = None,
    cross_zone: CrossZone = None,
    consumers_cross_zone: ConsumersCrossZone = None,
    own_cross_zone: OwnCrossZone = None,
    as_json: Json = False,
    data: Data = None,
    config: Config = None,
    debug: Debug = False,
) -> None:
    """What the traffic so far would cost a month on S3, and the same on Kafka in three zones.

    Asks all nodes and pipeline services that run for what they have counted since they were started; with --over, what
    they count meanwhile. Jobs that ran by hand and readers that ask the bucket themselves are not in it. Prices are the
    list prices of AWS in us-east-1: an estimate, not a bill. Machines are needed for both, and not counted.
    """
    options = common(context, data, config, debug, as_json)
    given: dict[str, Any] = {
        "days": days,
        "retention_days": retention_days,
        "put_usd_per_1000": put_usd,
        "get_usd_per_1000": get_usd,
        "storage_usd_per_gb_month": storage_usd,
        "cross_zone_usd_per_gb": cross_zone_usd,
        "disk_usd_per_gb_month": disk_usd,
        "disk_fill": disk_fill,
        "replication": replication,
        "clients_cross_zones": cross_zone,
        "consumers_cross_zones": consumers_cross_zone,
        "own_clients_cross_zones": own_cross_zone,
    }
    with reporting(options):
        from catena.metrics.estimate import Assumptions, estimate

        assumed = Assumptions(**{name: value for name, value in given.items() if value is not None})
        measured = asyncio.run(_measure(metrics or [], over, None if metrics else options.load_settings()))
        found = estimate(measured.traffic, assumed)
        for each in measured.silent:
            print(f"catena: {each.why}; what it counts is missing here", file=sys.stderr)
        if as_json:
            print_json(_fields(measured, assumed, found))
        else:
            _show(measured, assumed, found)


class _Measured(NamedTuple):
    traffic: Traffic
    asked: list[str]
    """Who has answered."""
    silent: list[Silent]


async def _measure(places: Sequence[str], over: float, settings: Settings | None) -> _Measured:
    """`settings`: where to look for who runs if no places are named."""
    from catena.errors import ConfigError, RetryLater
    from catena.metrics.asking import ask_all, find_all, is_address
    from catena.metrics.traffic import all_traffic, traffic_of
    from catena.runtime import SystemClock, SystemEntropy

    clock = SystemClock()
    if settings is not None:
        require_log(settings)
        places = await find_all(settings, clock, SystemEntropy())
        if not places:
            raise ConfigError("no node runs: start one with `catena serve`, or name one by --metrics URL")
    places = list(dict.fromkeys(place.rstrip("/") for place in places))
    if over and not all(is_address(place) for place in places):
        raise ConfigError("option --over: a file says the same however long one waits: name nodes by --metrics URL")
    before = {sample.where: sample.text for sample in ask_all(places)[0]} if over else {}
    if over:
        await clock.sleep(over)
    samples, silent = ask_all(places)
    if not samples:
        raise RetryLater("; ".join(each.why for each in silent))
    each = [traffic_of(sample.text, sample.where, before.get(sample.where)) for sample in samples]
    return _Measured(all_traffic(each), [sample.where for sample in samples], silent)


def _fields(measured: _Measured, assumed: Assumptions, found: Estimate) -> dict[str, Any]:
    from catena.metrics.estimate import cautions, dominant

    def side(items: Sequence[Item], total: float) -> dict[str, Any]:
        largest = dominant(items)
        return {"total_usd": total, "items": items, "dominant": None if largest is None else largest.name}

    return {
        "traffic": measured.traffic,
        "assumptions": assumed,
        "catena": side(found.catena, found.catena_usd),
        "kafka": side(found.kafka, found.kafka_usd),
        "cautions": cautions(measured.traffic, assumed),
        "asked": measured.asked,
        "silent": [each._asdict() for each in measured.silent],
    }


def _show(measured: _Measured, assumed: Assumptions, found: Estimate) -> None:
    from catena.metrics.estimate import advice, cautions, dominant

    traffic, asked = measured.traffic, measured.asked
    print("asked:", ", ".join(asked) if len(asked) <= PLACES_SHOWN else f"{len(asked)} nodes and services")
    print(_what_was_seen(traffic), end="\n\n")
    titles = [f"CATENA, {found.days:g} DAYS", "USD", "OF"]
    print_columns(titles, _rows(found.catena, found.catena_usd))
    print()
    print_columns([f"KAFKA, {found.days:g} DAYS", "USD", "OF"], _rows(found.kafka, found.kafka_usd))
    print()
    largest = dominant(found.catena)
    if largest is not None and traffic.is_any:
        part = largest.usd / found.catena_usd
        print(f"most of it, {part:.0%}: {largest.name}; {advice(largest)}")
    if found.kafka_usd > 0:
        ratio = found.catena_usd / found.kafka_usd
        print(f"all of it: {f'{ratio:.0%} of' if ratio < 2 else f'{ratio:,.0f} times'} what Kafka would cost")
    print("\nassumed, and changed by options (`catena cost --help`):\n")
    print_columns(["WHAT", "VALUE"], _assumptions(assumed))
    for each in cautions(traffic, assumed):
        print(f"\n{each}")


def _what_was_seen(traffic: Traffic) -> str:
    from catena.metrics.estimate import shown_size

    asked = ", ".join(f"{rate:,.2f} {kind}" for kind, rate in traffic.requests_per_s.items() if rate > 0)
    return (
        f"in {traffic.seconds:,.0f} s: {shown_size(traffic.produced_bytes_per_s)}/s written, "
        f"{shown_size(traffic.fetched_bytes_per_s)}/s read; requests a second: {asked or 'none'}"
    )


def _rows(items: Sequence[Item], total: float) -> list[list[str]]:
    return [[item.name, f"{item.usd:>10,.2f}", item.why] for item in items] + [["all", f"{total:>10,.2f}", ""]]


def _assumptions(assumed: Assumptions) -> list[list[str]]:
    stored = "what is stored now" if assumed.retention_days is None else f"what {assumed.retention_days:g} days write"
    return [
        ["1,000 PUTs or LISTs", f"${assumed.put_usd_per_1000:g}"],
        ["1,000 GETs", f"${assumed.get_usd_per_1000:g}"],
        ["a GB in the bucket, a month", f"${assumed.storage_usd_per_gb_month:g}"],
        ["a GB between zones, both sides", f"${assumed.cross_zone_usd_per_gb:g}"],
        ["a GB of disk, a month", f"${assumed.disk_usd_per_gb_month:g}"],
        ["how full disks are", f"{assumed.disk_fill:.0%}"],
        ["copies that Kafka keeps", str(assumed.replication)],
        ["across zones, of what clients of Kafka move", f"{assumed.clients_cross_zones:.0%}"],
        ["across zones, of what consumers of Kafka fetch", f"{assumed.consumers_cross:.0%}"],
        ["across zones, of what clients of Catena move", f"{assumed.own_clients_cross_zones:.0%}"],
        ["stored", stored],
    ]
