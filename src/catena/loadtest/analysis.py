"""From the lines of a run directory to figures and curves. Reads files, decides nothing.

Counts of a process begin anew when it is started anew, so growth is added up sample by sample: of the same process by
the difference, of another one by what it has. What a killed process counted after its last sample is lost; `complete`
says so.
"""

from __future__ import annotations

import itertools
from collections import deque
from collections.abc import Sequence
from typing import Any, NamedTuple

import msgspec

from catena.loadtest.clients import latency_ms
from catena.loadtest.faults import Happened
from catena.loadtest.hammers.base import Interval
from catena.loadtest.node_counts import NodeCounts, counts_of
from catena.loadtest.proc import Usage
from catena.loadtest.reconcile import Memory
from catena.loadtest.run_folder import CLIENT, EVENTS, HOST, METRICS, PROCESSES, RunFolder
from catena.loadtest.sampler import HostSample, NodeSample, ProcessSample
from catena.loadtest.stack import PIPELINE
from catena.loadtest.svg import Series

MB = 1e6
GAP = 3
"""Intervals without any; then there is a gap in a curve."""


class Counted(NamedTuple):
    t: float
    pid: int
    counts: NodeCounts


class Grown(msgspec.Struct, frozen=True):
    """What nodes, or the pipeline, have counted in a span of time."""

    records: int | None
    requests: dict[str, int]
    cost_usd: float
    complete: bool
    """No process was started anew, and all answered at the end."""

    def plus(self, other: Grown) -> Grown:
        records = None if self.records is None or other.records is None else self.records + other.records
        requests = dict(self.requests)
        for kind, count in other.requests.items():
            requests[kind] = requests.get(kind, 0) + count
        return Grown(records, requests, self.cost_usd + other.cost_usd, self.complete and other.complete)


class Recorded:
    """All lines of a run, read once."""

    def __init__(self, folder: RunFolder) -> None:
        self.intervals = list(folder.lines(CLIENT, Interval))
        self.processes = list(folder.lines(PROCESSES, ProcessSample))
        self.hosts = list(folder.lines(HOST, HostSample))
        self.events = list(folder.lines(EVENTS, Happened))
        self.counted: dict[str, list[Counted]] = {}
        self._silent_at: dict[str, float] = {}
        """When nodes last said nothing."""
        for sample in folder.lines(METRICS, NodeSample):
            counted = self.counted.setdefault(sample.node, [])
            if sample.metrics is not None and (counts := counts_of(sample.metrics)) is not None:
                counted.append(Counted(sample.t, sample.pid, counts))
            else:
                self._silent_at[sample.node] = sample.t

    @property
    def nodes(self) -> list[str]:
        return [name for name in self.counted if name != PIPELINE]

    def grown(self, names: Sequence[str], since: float, until: float) -> Grown:
        """Between the last samples at or before these times; the first one there is, where none is before."""
        total = Grown(0 if names else None, {}, 0.0, True)
        for name in names:
            samples = [sample for sample in self.counted.get(name, []) if sample.t <= until]
            for before, after in _steps(samples, since):
                total = total.plus(_delta(before, after))
            if self._silent_at.get(name, -1.0) > (samples[-1].t if samples else -1.0):
                total = msgspec.structs.replace(total, complete=False)
        return total

    def acked_mb_s(self, since: float, until: float) -> float:
        """An interval that is only in part within this time counts by that part."""
        size = 0.0
        for each in self.intervals:
            inside = min(each.t, until) - max(each.t - each.seconds, since)
            if each.role.endswith("produce") and inside > 0:
                size += each.bytes * inside / each.seconds
        return size / MB / (until - since) if until > since else 0.0

    def busiest_producer(self, since: float, until: float) -> float | None:
        """Cores that it took in this time; None if there are no two samples."""
        samples = [sample for sample in self.processes if since <= sample.t <= until]
        found = []
        for name in {name for sample in samples for name in sample.usage if "-produce-" in name}:
            seen = [(sample.t, sample.usage[name].cpu_s) for sample in samples if name in sample.usage]
            if seen[-1][0] > seen[0][0]:
                found.append((seen[-1][1] - seen[0][1]) / (seen[-1][0] - seen[0][0]))
        return round(max(found), 3) if found else None

    def host_busy(self, since: float, until: float) -> float | None:
        """The share of all its CPUs that was taken; None if there are no two samples."""
        hosts = [sample.host for sample in self.hosts if since <= sample.t <= until]
        busy = hosts[-1].cpu_busy_s - hosts[0].cpu_busy_s if hosts else 0.0
        idle = hosts[-1].cpu_idle_s - hosts[0].cpu_idle_s if hosts else 0.0
        return round(busy / (busy + idle), 3) if busy + idle > 0 else None

    def memory(self, names: Sequence[str]) -> dict[str, Memory]:
        """Of those that were never gone: of one that was started anew the end says nothing about the middle."""
        pids = {name: {each.pid for each in self.counted.get(name, [])} for name in names}
        found = {}
        for name in names:
            sizes = [sample.usage[name].rss_bytes for sample in self.processes if name in sample.usage]
            quarter = len(sizes) // 4
            if quarter and len(sizes) == len(self.processes) and len(pids[name]) <= 1:
                middle, end = sizes[quarter : 2 * quarter], sizes[-quarter:]
                found[name] = Memory(sum(middle) // quarter, sum(end) // quarter, max(sizes))
        return found

    def process_table(self) -> dict[str, dict[str, Any]]:
        table = {}
        names = dict.fromkeys(name for sample in self.processes for name in sample.usage)
        for name in names:
            seen = [(sample.t, sample.usage[name]) for sample in self.processes if name in sample.usage]
            used = sum(max(0.0, after.cpu_s - before.cpu_s) for (_, before), (_, after) in _pairs(seen))
            seconds = seen[-1][0] - seen[0][0]
            table[name] = {
                "cpu_s": round(used, 2),
                "cores": round(used / seconds, 3) if seconds > 0 else None,
                "rss_first_bytes": seen[0][1].rss_bytes,
                "rss_last_bytes": seen[-1][1].rss_bytes,
                "rss_max_bytes": max(usage.rss_bytes for _, usage in seen),
                "fds_max": max(usage.fds for _, usage in seen),
                "threads_max": max(usage.threads for _, usage in seen),
            }
        return table

    def throughput(self) -> list[Series]:
        """MB/s that were acked, read by consumers of each kind, and due."""
        roles = sorted({each.role for each in self.intervals})
        curves = [Series("acked", self._rates("produce", "bytes", 1 / MB))]
        for role in (role for role in roles if role.endswith("consume")):
            curves.append(Series(f"read ({role.partition('-')[0]})", self._rates(role, "bytes", 1 / MB)))
        return curves

    def latency(self, end: str) -> list[Series]:
        points: dict[str, list[tuple[float, float | None]]] = {}
        for t, some in self._by_second(end):
            for name, value in latency_ms(each.latency for each in some).items():
                points.setdefault(name, []).append((t, value))
        return [Series(name, found) for name, found in points.items() if name != "p90"]

    def troubles(self) -> list[Series]:
        curves = [
            Series(name, self._rates("produce", name))
            for name in ("failed", "unknown", "dropped")
            if any(getattr(each, name) for each in self.intervals)
        ]
        backlog: list[tuple[float, float | None]] = [
            (t, float(sum(each.backlog for each in some)) if some else None) for t, some in self._by_second("produce")
        ]
        return [Series("backlog (records)", backlog), *curves]

    def cpu(self) -> list[Series]:
        return self._process_curves(lambda before, after, seconds: (after.cpu_s - before.cpu_s) / seconds)

    def resident(self) -> list[Series]:
        return self._process_curves(lambda _before, after, _seconds: after.rss_bytes / MB)

    def host_cpu(self) -> list[tuple[float, float | None]]:
        """Busy cores."""
        return [
            (after.t, (after.host.cpu_busy_s - before.host.cpu_busy_s) / (after.t - before.t))
            for before, after in itertools.pairwise(self.hosts)
            if after.t > before.t
        ]

    def requests(self) -> list[Series]:
        """To the object store in a second, by kind, of nodes and pipeline together."""
        totals = self._grown_over_time()
        kinds = sorted({kind for _, grown in totals for kind in grown.requests})
        curves = []
        for kind in kinds:
            points: list[tuple[float, float | None]] = [
                (after, (grown.requests.get(kind, 0) - before_grown.requests.get(kind, 0)) / (after - before))
                for (before, before_grown), (after, grown) in itertools.pairwise(totals)
                if after > before
            ]
            if any(value for _, value in points):
                curves.append(Series(kind, points))
        return curves

    def cost(self) -> list[Series]:
        return [Series("requests, so far", [(t, grown.cost_usd) for t, grown in self._grown_over_time()])]

    def _grown_over_time(self) -> list[tuple[float, Grown]]:
        """All together so far, at the times of samples."""
        deltas = [
            (after.t, _delta(before, after))
            for samples in self.counted.values()
            for before, after in itertools.pairwise(samples)
        ]
        waiting = deque(sorted(deltas, key=lambda each: each[0]))
        total, found = Grown(0, {}, 0.0, True), []
        for sample in self.hosts if any(self.counted.values()) else ():
            while waiting and waiting[0][0] <= sample.t:
                total = total.plus(waiting.popleft()[1])
            found.append((sample.t, total))
        return found

    def _rates(self, end: str, field: str, factor: float = 1.0) -> list[tuple[float, float | None]]:
        return [
            (t, sum(getattr(each, field) / each.seconds for each in some) * factor if some else None)
            for t, some in self._by_second(end)
        ]

    def _by_second(self, end: str) -> list[tuple[float, list[Interval]]]:
        """Intervals of several hammers that ended at about the same time; none where nobody hammered for a while."""
        some = [each for each in self.intervals if each.role.endswith(end)]
        widths = sorted(each.seconds for each in some)
        width = max(0.1, widths[len(widths) // 2]) if widths else 1.0
        slots: dict[int, list[Interval]] = {}
        for each in some:
            if each.seconds >= width / 2:  # the last one of a hammer may be a moment only
                slots.setdefault(round(each.t / width), []).append(each)
        found: list[tuple[float, list[Interval]]] = []
        for before, slot in itertools.pairwise([-GAP, *sorted(slots)]):
            if slot - before > GAP and before >= 0:
                found.append(((before + 1) * width, []))
            found.append((slot * width, slots[slot]))
        return found

    def _process_curves(self, value: Any) -> list[Series]:
        names = dict.fromkeys(name for sample in self.processes for name in sample.usage)
        curves = []
        groups: dict[str, list[str]] = {}
        for name in names:
            is_hammer = name.rpartition("-")[0].endswith(("produce", "consume"))
            groups.setdefault("hammers" if is_hammer else name, []).append(name)
        for group, members in groups.items():
            points: list[tuple[float, float | None]] = []
            for before, after in itertools.pairwise(self.processes):
                both = [name for name in members if name in before.usage and name in after.usage]
                seconds = max(after.t - before.t, 1e-3)
                values = [value(before.usage[name], after.usage[name], seconds) for name in both]
                points.append((after.t, max(0.0, sum(values)) if both else None))
            curves.append(Series(group, points))
        return curves


def _steps(samples: Sequence[Counted], since: float) -> list[tuple[Counted, Counted]]:
    """Neighbours from the last sample at or before `since` on."""
    first = max((number for number, sample in enumerate(samples) if sample.t <= since), default=0)
    return list(itertools.pairwise(samples[first:]))


def _delta(before: Counted, after: Counted) -> Grown:
    is_same = before.pid == after.pid
    counts = after.counts.less(before.counts) if is_same else after.counts
    return Grown(counts.records, counts.requests, counts.cost_usd, is_same)


def _pairs(seen: Sequence[tuple[float, Usage]]) -> list[tuple[tuple[float, Usage], tuple[float, Usage]]]:
    return list(itertools.pairwise(seen))
