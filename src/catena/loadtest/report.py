"""report.html: one page that needs nothing else, for people: what was asked, what came of it, and how it went over
time.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from html import escape
from typing import Any

import msgspec

from catena.loadtest.analysis import Recorded
from catena.loadtest.report_style import STYLE
from catena.loadtest.run_folder import CONFIG, ENVIRONMENT, REPORT, RunFolder
from catena.loadtest.svg import Chart, Mark, Series, clock_time, draw

WRONG = ("lost", "duplicated", "moved", "misplaced", "unexpected", "damaged", "reordered", "unread")


def write_report(folder: RunFolder, summary: Mapping[str, Any]) -> None:
    config = folder.read(CONFIG, dict[str, Any])
    environment = folder.read(ENVIRONMENT, dict[str, Any])
    folder.write_bytes(REPORT, page(summary, config, environment, Recorded(folder)).encode())


def page(
    summary: Mapping[str, Any], config: Mapping[str, Any], environment: Mapping[str, Any], recorded: Recorded
) -> str:
    title = f"{summary['scenario']}: load test"
    parts = [
        _head(summary, config, environment),
        _tiles(summary),
        _findings(summary),
        '<section class="charts">'
        + "".join(draw(chart, _span(recorded)) for chart in charts(summary, recorded))
        + "</section>",
        _events(summary),
        _capacity(summary),
        _reconciliation(summary),
        _clients(summary),
        _processes(summary),
        _details("Scenario", config),
        _details("Environment", environment),
    ]
    return (
        '<!doctype html>\n<html lang="en"><head><meta charset="utf-8">'
        '<meta name="viewport" content="width=device-width, initial-scale=1">'
        f"<title>{escape(title)}</title><style>{STYLE}</style></head><body><main>{''.join(parts)}</main></body></html>\n"
    )


def charts(summary: Mapping[str, Any], recorded: Recorded) -> list[Chart]:
    marks = [Mark(event["t"], f"{event['what']} {event['target']}") for event in summary["events"]]
    if summary["capacity"] is not None:
        marks = [Mark(step["t"], f"{step['rate_mb_s']:.2f} MB/s") for step in summary["capacity"]["steps"]]
    host = Series("host, all", recorded.host_cpu())
    found = [
        Chart("Throughput", "MB/s", recorded.throughput(), marks),
        Chart("Produce latency, from when it was due", "ms", recorded.latency("produce"), marks, is_log=True),
        Chart("End-to-end latency", "ms", recorded.latency("consume"), marks, is_log=True),
        Chart("Backlog and failures", "records, records/s", recorded.troubles(), marks),
        Chart("CPU", "cores", [*recorded.cpu(), host], marks),
        Chart("Memory, resident", "MB", recorded.resident(), marks),
        Chart("Object store requests", "per second", recorded.requests(), marks),
        Chart(
            "Cost of requests",
            "USD",
            recorded.cost(),
            marks,
            note="At list prices of S3 Standard in us-east-1: an estimate.",
        ),
    ]
    return [chart for chart in found if not chart.is_empty]


def _span(recorded: Recorded) -> tuple[float, float]:
    times = [each.t for each in recorded.intervals] + [each.t for each in recorded.hosts]
    return 0.0, max([*times, 1.0])


def _head(summary: Mapping[str, Any], config: Mapping[str, Any], environment: Mapping[str, Any]) -> str:
    when = datetime.fromtimestamp(summary["started_at_ms"] / 1000, UTC).strftime("%Y-%m-%d %H:%M UTC")
    stack = config["stack"]
    version = environment.get("packages", {}).get("catena-log", "?")
    words = [
        f"{stack['nodes']} node{'s' if stack['nodes'] > 1 else ''}",
        f"meta store {escape(str(stack['meta'] or 'of the environment'))}",
        f"object store {escape(str(stack['objects'] or 'of the environment'))}",
        *(["pipeline on Spark"] if stack["pipeline"] else []),
        f"{environment.get('cpus_usable', '?')} CPUs",
        f"Catena {escape(str(version))}",
    ]
    verdict = '<b class="good">clean</b>' if summary["clean"] else '<b class="bad">not clean</b>'
    said = f"<p>{escape(config['description'])}</p>" if config.get("description") else ""
    return (
        f"<header><h1>{escape(summary['scenario'])} {verdict}</h1>"
        f'<p class="dim">{when} · {clock_time(summary["seconds"])} · {" · ".join(words)}</p>{said}</header>'
    )


def _tiles(summary: Mapping[str, Any]) -> str:
    produced = summary["clients"]["produced"]["latency_ms"]
    consumed = summary["clients"]["consumed"]["latency_ms"]
    counts, stores, capacity = summary["reconciliation"], summary["stores"], summary["capacity"]
    tiles: list[tuple[str, str, str]] = []
    if capacity is not None:
        found = f"{capacity['mb_s']:.1f} MB/s" if capacity["found"] else "not found"
        limit = f", limited by {capacity['limit']}" if capacity["limit"] else ""
        tiles.append(("capacity", found, f"p99 {ms(capacity.get('p99_ms'))}{limit}"))
    else:
        throughput = summary["throughput"]
        tiles.append(("acked", f"{throughput['acked_mb_s']:.2f} MB/s", f"asked for {throughput['asked_mb_s']:g}"))
        tiles.append(("produce p99", ms(produced["p99"]), f"p50 {ms(produced['p50'])}, p99.9 {ms(produced['p99.9'])}"))
        if consumed["p99"] is not None:
            tiles.append(("end to end p99", ms(consumed["p99"]), f"p50 {ms(consumed['p50'])}"))
    bad = sum(counts[name] for name in ("failed", "unknown", "dropped", "unanswered"))
    tiles.append(("records acked", f"{counts['acked']:,}", f"{bad:,} were not"))
    if stores["requests_per_gb"] is not None and stores["requests"]:
        cost = stores["requests_cost_usd_per_gb"]
        tiles.append(("requests per GB", f"{stores['requests_per_gb']:,.0f}", f"{usd(cost)} for each GB"))
    body = "".join(
        f"<div><span>{escape(name)}</span><strong>{escape(value)}</strong><small>{escape(more)}</small></div>"
        for name, value, more in tiles
    )
    return f'<section class="tiles">{body}</section>'


def _findings(summary: Mapping[str, Any]) -> str:
    if not summary["findings"]:
        return "<p>Clients, nodes and logs tell the same story; there is nothing to add.</p>"
    items = "".join(
        f'<li class="{escape(each["severity"])}"><b>{escape(each["severity"])}</b> {escape(each["message"])}</li>'
        for each in summary["findings"]
    )
    return f'<ul class="findings">{items}</ul>'


def _events(summary: Mapping[str, Any]) -> str:
    rows = [[clock_time(each["t"]), each["what"], each["target"], each.get("why", "")] for each in summary["events"]]
    return _table("What was done to processes", ["at", "what", "to", ""], rows) if rows else ""


def _capacity(summary: Mapping[str, Any]) -> str:
    if summary["capacity"] is None:
        return ""
    rows = [
        [
            f"{step['rate_mb_s']:.2f}",
            f"{step['acked_mb_s']:.2f}",
            ms(step["p50_ms"]),
            ms(step["p99_ms"]),
            ms(step["late_ms"]),
            "-" if step["hammer_cores"] is None else f"{step['hammer_cores']:.2f}",
            "-" if step["host_busy"] is None else f"{step['host_busy']:.0%}",
            step["broke"] or "kept",
        ]
        for step in summary["capacity"]["steps"]
    ]
    head = ["MB/s asked", "acked", "p50", "p99", "hammers late", "busiest hammer", "host", ""]
    return _table("Steps", head, rows, numbers=7)


def _reconciliation(summary: Mapping[str, Any]) -> str:
    counts = summary["reconciliation"]
    nodes = counts["counted_by_nodes"]
    rows: list[list[str]] = [[f"{counts['due']:,}", "were due by the clients' schedule"]]
    rows.append([f"{counts['acked']:,}", "were acked to clients"])
    for name, words in (
        ("failed", "were refused"),
        ("unknown", "have an unknown outcome"),
        ("dropped", "were never sent: a hammer's backlog was full"),
        ("unanswered", "were not answered before their hammer ended"),
    ):
        if counts[name]:
            rows.append([f"{counts[name]:,}", words])
    less = "" if counts["counts_complete"] else " (without what a killed node counted last)"
    rows.append(["?" if nodes is None else f"{nodes:,}", f"were counted by nodes{less}"])
    rows.append(
        ["?" if counts["in_log"] is None else f"{counts['in_log']:,}", "offsets is what the logs have grown by"]
    )
    rows += [[f"{read:,}", f"came to consumers ({role})"] for role, read in counts["read_by_consumers"].items()]
    if (verified := summary["verified"]) is not None:
        rows.append([f"{verified['read']:,}", "were read back, each held against its ack byte by byte"])
        wrong = [name for name in WRONG if verified[name]]
        rows += [[f"{verified[name]:,}", f"of these were {name}"] for name in wrong]
        rows.append(["0", f"of these were {', '.join(name for name in WRONG[:-1] if name not in wrong)}"])
    if (audit := summary["audit"]) is not None:
        rows.append(["clean" if audit["ok"] else "not clean", "is what the audit says of all that is stored"])
    return _table("Records, as each side counts them", ["", ""], rows, numbers=1)


def _clients(summary: Mapping[str, Any]) -> str:
    rows = []
    for name, each in summary["clients"]["by_hammer"].items():
        latency = each["latency_ms"]
        errors = ", ".join(f"{kind} {count:,}" for kind, count in each["errors"].items())
        done = each["acked"] or each["read"]
        rows.append(
            [
                name,
                f"{done:,}",
                f"{each['bytes'] / 1e6:,.1f}",
                ms(latency["p50"]),
                ms(latency["p99"]),
                ms(latency["p99.9"]),
                errors,
            ]
        )
    head = ["hammer", "records", "MB", "p50", "p99", "p99.9", "errors"]
    return _table("Hammers", head, rows, first_number=1, numbers=6)


def _processes(summary: Mapping[str, Any]) -> str:
    rows = [
        [
            name,
            "" if each["cores"] is None else f"{each['cores']:.2f}",
            f"{each['cpu_s']:,.1f}",
            f"{each['rss_first_bytes'] / 1e6:,.0f}",
            f"{each['rss_last_bytes'] / 1e6:,.0f}",
            f"{each['rss_max_bytes'] / 1e6:,.0f}",
            f"{each['fds_max']:,}",
            f"{each['threads_max']:,}",
        ]
        for name, each in summary["processes"].items()
    ]
    head = ["process", "cores", "CPU s", "MB first", "MB last", "MB most", "descriptors", "threads"]
    return _table("Processes", head, rows, first_number=1, numbers=8)


def _table(
    title: str, head: Sequence[str], rows: Sequence[Sequence[str]], first_number: int = 0, numbers: int = 0
) -> str:
    """Columns from `first_number` on, up to `numbers`, are to the right."""

    def cells(tag: str, values: Sequence[str]) -> str:
        return "".join(
            f"<{tag}{' class=n' if first_number <= number < numbers else ''}>{escape(value)}</{tag}>"
            for number, value in enumerate(values)
        )

    top = f"<thead><tr>{cells('th', head)}</tr></thead>" if any(head) else ""
    body = "".join(f"<tr>{cells('td', row)}</tr>" for row in rows)
    return f"<section><h2>{escape(title)}</h2><div class=wide><table>{top}<tbody>{body}</tbody></table></div></section>"


def _details(title: str, value: Mapping[str, Any]) -> str:
    text = msgspec.json.format(msgspec.json.encode(value), indent=2).decode()
    return f"<details><summary>{escape(title)}</summary><pre>{escape(text)}</pre></details>"


def ms(value: float | None) -> str:
    if value is None:
        return "-"
    return f"{value:,.0f} ms" if value >= 10 else f"{value:.1f} ms"


def usd(value: float | None) -> str:
    return "-" if value is None else f"${value:,.2f}" if value >= 1 else f"${value:.4f}"
