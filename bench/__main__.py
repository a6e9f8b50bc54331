"""`python -m bench [NAME ...] [--json FILE]`: run the benchmarks, print their tables, keep the figures as JSON."""

from __future__ import annotations

import argparse
import json
import platform
import tempfile
from pathlib import Path

from rich.console import Console
from rich.table import Table

from bench import (
    capacity,
    contention,
    decoding,
    hot_tail,
    http_codec,
    http_throughput,
    kafka_cold,
    kafka_idle,
    kafka_latency,
    kafka_peer,
    kafka_stores,
    kafka_throughput,
    many_partitions,
    overhead,
    pipeline_audit,
    pipeline_cold,
    pipeline_compact,
    pipeline_growth,
    pipeline_idle,
    pipeline_tier,
    pipeline_vacuum,
    round_trips,
    source_scan,
    tables,
    throughput,
)
from bench.figures import Figure
from bench.serving import Missing

BENCHMARKS = {
    "throughput": throughput.run,
    "overhead": overhead.run,
    "round-trips": round_trips.run,
    "many-partitions": many_partitions.run,
    "contention": contention.run,
    "kafka-throughput": kafka_throughput.run,
    "kafka-latency": kafka_latency.run,
    "kafka-peer": kafka_peer.run,
    "kafka-stores": kafka_stores.run,
    "kafka-cold": kafka_cold.run,
    "kafka-idle": kafka_idle.run,
    "hot-tail": hot_tail.run,
    "http-throughput": http_throughput.run,
    "capacity": capacity.run,
    "http-codec": http_codec.run,
    "decoding": decoding.run,
    "pipeline-tier": pipeline_tier.run,
    "pipeline-growth": pipeline_growth.run,
    "pipeline-idle": pipeline_idle.run,
    "pipeline-vacuum": pipeline_vacuum.run,
    "pipeline-audit": pipeline_audit.run,
    "pipeline-cold": pipeline_cold.run,
    "pipeline-compact": pipeline_compact.run,
    "source-scan": source_scan.run,
    "tables": tables.run,
}
RESULTS = Path(__file__).parent / "results" / "latest.json"


def main() -> None:
    parser = argparse.ArgumentParser(prog="bench", description=__doc__)
    parser.add_argument("names", nargs="*", choices=[*BENCHMARKS, []], help="which ones; all by default")
    parser.add_argument("--json", type=Path, default=RESULTS, help="where the figures are kept")
    parser.add_argument("--folder", type=Path, help="where data is written; a temporary folder by default")
    arguments = parser.parse_args()
    console = Console()
    results: dict[str, list[dict[str, object]]] = {}
    if arguments.json.exists():
        results = json.loads(arguments.json.read_text())["figures"]
    for name in arguments.names or BENCHMARKS:
        with tempfile.TemporaryDirectory(dir=arguments.folder, prefix="catena-bench-") as folder:
            Path(folder).chmod(0o755)  # PostgreSQL does not run as root, and has to get in
            try:
                figures = BENCHMARKS[name](Path(folder))
            except Missing as missing:
                console.print(f"{name} is left out: {missing}")
                continue
        _show(console, name, figures)
        results[name] = [figure._asdict() for figure in figures]
        _keep(arguments.json, results)
    console.print(f"kept in {arguments.json.name}")


def _show(console: Console, name: str, figures: list[Figure]) -> None:
    table = Table("figure", "value", "aim", "", title=name, title_justify="left")
    for figure in figures:
        verdict = "" if figure.met is None else "[green]met[/]" if figure.met else "[red]missed[/]"
        table.add_row(figure.name, f"{figure.value:,.4g} {figure.unit}", figure.aim, verdict)
    console.print(table)


def _keep(file: Path, results: dict[str, list[dict[str, object]]]) -> None:
    file.parent.mkdir(exist_ok=True)
    machine = {"python": platform.python_version(), "machine": platform.machine()}
    file.write_text(json.dumps({"machine": machine, "figures": results}, indent=1) + "\n")


if __name__ == "__main__":
    main()
