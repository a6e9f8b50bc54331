"""What traffic costs: here, and with Kafka on three zones. Pure; assumptions in, items out.

Machines are needed by both, and so are not counted: those of nodes or brokers, of the meta store or controllers.

Kafka keeps `replication` copies on disks that are not full, and copies cross zones. So do producers and consumers,
which find the leader of a partition in another zone two times out of three. Here bytes go to the bucket once, which
costs nothing but requests; clients are sent to any node, so theirs cross zones just as often. Where clients ask nodes
of their own zone only, that is 0.
"""

from __future__ import annotations

from collections.abc import Sequence

import msgspec

from catena.metrics.cost import GB, USD_PER_GB_MONTH, USD_PER_REQUEST
from catena.metrics.traffic import Traffic

SHORT_S = 300.0
"""A shorter time says little about a month."""
DAY_S = 86_400
MONTH_DAYS = 30


class Assumptions(msgspec.Struct, frozen=True):
    days: float = MONTH_DAYS
    """For how long traffic like this goes on."""
    retention_days: float | None = None
    """How much is stored: what was written in so many days. None: what is stored now."""
    put_usd_per_1000: float = USD_PER_REQUEST["put"] * 1000
    """And of lists."""
    get_usd_per_1000: float = USD_PER_REQUEST["get"] * 1000
    storage_usd_per_gb_month: float = USD_PER_GB_MONTH
    cross_zone_usd_per_gb: float = 0.02
    """One cent for each of the two sides."""
    clients_cross_zones: float = 2 / 3
    """Which part of what Kafka's clients send and receive does."""
    consumers_cross_zones: float | None = None
    """The same of its consumers alone; 0: they fetch from followers in their zone. None: as all clients."""
    own_clients_cross_zones: float = 2 / 3
    """The same of clients of Catena."""
    replication: int = 3
    disk_usd_per_gb_month: float = 0.08
    disk_fill: float = 0.5
    """How full disks are: Kafka has to be given room before it needs it."""

    @property
    def consumers_cross(self) -> float:
        part = self.consumers_cross_zones
        return self.clients_cross_zones if part is None else part


class Item(msgspec.Struct, frozen=True):
    name: str
    usd: float
    why: str


class Estimate(msgspec.Struct, frozen=True):
    days: float
    catena: tuple[Item, ...]
    kafka: tuple[Item, ...]

    @property
    def catena_usd(self) -> float:
        return sum(item.usd for item in self.catena)

    @property
    def kafka_usd(self) -> float:
        return sum(item.usd for item in self.kafka)


def estimate(traffic: Traffic, assumed: Assumptions) -> Estimate:
    return Estimate(assumed.days, _catena(traffic, assumed), _kafka(traffic, assumed))


def cautions(traffic: Traffic, assumed: Assumptions) -> list[str]:
    """Why it may be far from the truth."""
    found = []
    if not traffic.is_any:
        found.append("nothing was written or read: the requests are those of a cluster that only looks after itself")
    if traffic.seconds < SHORT_S:
        found.append(f"{traffic.seconds:.0f} seconds say little about a month; --over N measures for so many")
    if traffic.stored_bytes is None and assumed.retention_days is None:
        found.append(
            "nobody said how much is stored: it counts as nothing; --retention-days N says how much it will be"
        )
    return found


def dominant(items: Sequence[Item]) -> Item | None:
    """The largest one, if it is half of all; None: none is."""
    largest = max(items, key=lambda item: item.usd, default=None)
    total = sum(item.usd for item in items)
    return largest if largest is not None and total > 0 and largest.usd >= total / 2 else None


def advice(item: Item) -> str:
    """What would make it smaller."""
    return _ADVICE.get(item.name, "")


PUTS, GETS, STORED, CLIENTS = "PUT and LIST requests", "GET requests", "stored in the bucket", "clients across zones"

_ADVICE = {
    PUTS: "larger or later blobs cost less: diskless.writer.batch_max_bytes and batch_max_delay_ms; a meta store in "
    "the bucket (`objects:`) asks for most of them itself, PostgreSQL asks for none",
    GETS: "reads that find the tail cache cost nothing; `catena pipeline tier` makes what is old cheap to read",
    STORED: "retention.ms and retention.bytes of topics, compression, and `catena pipeline vacuum` make it less",
    CLIENTS: "clients that ask nodes of their own zone pay nothing for it",
}


def _catena(traffic: Traffic, assumed: Assumptions) -> tuple[Item, ...]:
    seconds = assumed.days * DAY_S
    asked = traffic.requests_per_s
    written = sum(asked.get(kind, 0.0) for kind in ("put", "list")) * seconds
    read = sum(asked.get(kind, 0.0) for kind in ("get", "range_get", "head")) * seconds
    stored = traffic.stored_bytes or 0
    if assumed.retention_days is not None:
        stored = round(traffic.produced_bytes_per_s * assumed.retention_days * DAY_S)
    moved = (traffic.produced_bytes_per_s + traffic.fetched_bytes_per_s) * seconds
    return (
        Item(PUTS, written * assumed.put_usd_per_1000 / 1000, f"{written:,.0f}"),
        Item(GETS, read * assumed.get_usd_per_1000 / 1000, f"{read:,.0f}"),
        Item(STORED, _stored_usd(stored, assumed.storage_usd_per_gb_month, assumed), shown_size(stored)),
        Item(CLIENTS, *_crossing(moved, assumed.own_clients_cross_zones, assumed)),
    )


def _kafka(traffic: Traffic, assumed: Assumptions) -> tuple[Item, ...]:
    seconds = assumed.days * DAY_S
    produced, fetched = traffic.produced_bytes_per_s * seconds, traffic.fetched_bytes_per_s * seconds
    kept = traffic.log_bytes or 0
    if assumed.retention_days is not None:
        kept = round(traffic.produced_bytes_per_s * assumed.retention_days * DAY_S)
    disks = kept * assumed.replication / assumed.disk_fill
    return (
        Item("disks", _stored_usd(disks, assumed.disk_usd_per_gb_month, assumed), shown_size(disks)),
        Item("copies across zones", *_crossing(produced, assumed.replication - 1, assumed)),
        Item("producers across zones", *_crossing(produced, assumed.clients_cross_zones, assumed)),
        Item("consumers across zones", *_crossing(fetched, assumed.consumers_cross, assumed)),
    )


def _crossing(size: float, part: float, assumed: Assumptions) -> tuple[float, str]:
    crossed = size * part
    return crossed / GB * assumed.cross_zone_usd_per_gb, shown_size(crossed)


def _stored_usd(size: float, usd_per_gb_month: float, assumed: Assumptions) -> float:
    return size / GB * usd_per_gb_month * assumed.days / MONTH_DAYS


def shown_size(size: float) -> str:
    for unit in ("bytes", "KB", "MB", "GB"):
        if size < 1024:
            return f"{size:,.1f} {unit}" if unit != "bytes" else f"{size:,.0f} {unit}"
        size /= 1024
    return f"{size:,.1f} TB"
