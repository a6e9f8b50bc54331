"""Dashboards and alert rules, held against a real Prometheus that scrapes a node and a pipeline service."""

from __future__ import annotations

import asyncio
import json
import re
import subprocess
from collections.abc import Iterator
from contextlib import AsyncExitStack
from pathlib import Path
from typing import Any, NamedTuple

import pytest
from confluent_kafka import OFFSET_BEGINNING, Consumer, Producer, TopicPartition

from catena import jobs
from catena.config import Settings, load
from catena.errors import ConfigError
from catena.loadtest.observe import find_prometheus
from catena.runtime import Disk
from catena.serve import serve
from catena.testing.prometheus_server import PrometheusMissing, PrometheusServer
from tests.conftest import cannot_have
from tests.jobs.topics import inline

DEPLOY = Path(__file__).parent.parent / "deploy"
BOARDS = sorted((DEPLOY / "grafana").glob("*.json"))
ALERTS = DEPLOY / "prometheus" / "alerts.yml"
COMPARISON = re.compile(r"\s*(?:==|!=|>=|<=|>|<)\s*(?:bool\s+)?[0-9.]+\s*$")
ROUNDS = 30
"""Of using the node and asking Prometheus, until all has been seen."""
EXPRESSION = re.compile(r"^ +expr: (>-\n(?:          .*\n)+|.*\n)", re.MULTILINE)


class Query(NamedTuple):
    where: str
    expression: str


def queries_of(board: dict[str, Any]) -> Iterator[Query]:
    for panel in board["panels"]:
        for target in panel.get("targets", ()):
            expression = target["expr"].replace("$instance", ".*").replace("$__rate_interval", "1m")
            yield Query(f"{board['title']} / {panel['title']} / {target['refId']}", expression)


def rules() -> list[str]:
    """Their expressions. There is no YAML in the standard library, and two ways to write one are enough."""
    return [" ".join(match.removeprefix(">-\n").split()) for match in EXPRESSION.findall(ALERTS.read_text())]


def without_comparison(expression: str) -> str:
    bare = COMPARISON.sub("", expression)
    assert bare != expression, f"it would always be firing: {expression}"
    return bare


def all_queries() -> Iterator[Query]:
    for path in BOARDS:
        yield from queries_of(json.loads(path.read_text()))
    for rule in rules():
        yield Query(rule, without_comparison(rule))


@pytest.mark.parametrize("path", BOARDS, ids=lambda path: path.stem)
def test_a_board_is_one_that_grafana_can_show(path: Path) -> None:
    board = json.loads(path.read_text())
    assert board["uid"]
    ids = [panel["id"] for panel in board["panels"]]
    assert len(ids) == len(set(ids))
    taken: dict[tuple[int, int], str] = {}
    for panel in board["panels"]:
        place = panel["gridPos"]
        assert place["x"] + place["w"] <= 24, panel["title"]
        for x in range(place["x"], place["x"] + place["w"]):
            for y in range(place["y"], place["y"] + place["h"]):
                assert (x, y) not in taken, f"{panel['title']} lies over {taken[x, y]}"
                taken[x, y] = panel["title"]
        assert panel["type"] == "row" or panel["targets"], panel["title"]


def test_there_are_boards_and_rules() -> None:
    assert [path.stem for path in BOARDS] == ["cluster", "storage"]
    assert len(rules()) == ALERTS.read_text().count("- alert:") >= 15


def promtool(*arguments: str | Path) -> None:
    try:
        program = Path(find_prometheus()).with_name("promtool")
    except ConfigError as error:
        cannot_have("prometheus", str(error))
    if not program.exists():
        cannot_have("prometheus", "there is no promtool beside it")
    ran = subprocess.run([program, *arguments], capture_output=True, text=True, check=False)
    assert ran.returncode == 0, ran.stdout + ran.stderr


def test_promtool_has_nothing_to_say() -> None:
    promtool("check", "rules", ALERTS)
    promtool("check", "config", DEPLOY / "prometheus" / "prometheus.yml")


NODE = '{instance="n",job="catena"}'
OTHER_NODE = '{instance="m",job="catena"}'
FAILURES = '{instance="n",job="catena",operation="put",error="StoreUnavailable"}'
RETENTION = '{instance="n",name="node-retention"}'
TIER = '{instance="n",name="tier"}'
RUN = '{instance="p",name="audit"}'
STEADY, RISING = "1x40", "0+60x40"
TROUBLE = {
    "CatenaNodeDown": {f"up{NODE}": "0x40"},
    "CatenaNodeNotReady": {f"catena_node_ready{NODE}": "0x40"},
    "CatenaReadOnly": {'catena_node_state{instance="n",state="read-only"}': STEADY},
    "CatenaNodesDisagree": {f"catena_cluster_nodes{NODE}": "2x40", f"catena_cluster_nodes{OTHER_NODE}": "3x40"},
    "CatenaFilesRunOut": {f"process_open_fds{NODE}": "81x40", f"process_max_fds{NODE}": "100x40"},
    "CatenaServerErrors": {
        'catena_kafka_request_errors_total{instance="n",api="Produce",error="NOT_ENOUGH_REPLICAS"}': RISING
    },
    "CatenaBackPressure": {f"catena_writer_back_pressure_total{NODE}": RISING},
    "CatenaUploadsSlow": {
        'catena_writer_upload_seconds_bucket{instance="n",le="2.0"}': "0+50x40",
        'catena_writer_upload_seconds_bucket{instance="n",le="5.0"}': RISING,
        'catena_writer_upload_seconds_bucket{instance="n",le="+Inf"}': RISING,
    },
    "CatenaCommitsSlow": {
        'catena_commit_seconds_bucket{instance="n",le="1.0"}': "0+50x40",
        'catena_commit_seconds_bucket{instance="n",le="2.0"}': RISING,
        'catena_commit_seconds_bucket{instance="n",le="+Inf"}': RISING,
    },
    "CatenaGroupBehind": {'catena_group_lag_records{instance="n",group="g"}': "1000001x40"},
    "CatenaMetaStoreFails": {f"catena_meta_store_errors_total{FAILURES}": RISING},
    "CatenaObjectStoreFails": {f"catena_object_store_errors_total{FAILURES}": RISING},
    "CatenaStorageGrows": {f"catena_stored_cost_usd_per_month{NODE}": "1001x40"},
    "CatenaJobOverdue": {
        f"catena_job_last_success_age_seconds{TIER}": "0+60x40",
        f"catena_job_every_seconds{TIER}": "60x40",
    },
    "CatenaJobFails": {
        f"catena_pipeline_job_last_run_timestamp_seconds{RUN}": "1700000000x40",
        f"catena_pipeline_job_last_good_run_timestamp_seconds{RUN}": "0x40",
    },
    "CatenaRetentionOverdue": {
        f"catena_job_last_success_age_seconds{RETENTION}": "0+60x40",
        f"catena_job_every_seconds{RETENTION}": "300x40",
    },
    "CatenaPipelineBehind": {'catena_pipeline_lag_seconds_max{instance="p"}': "3601x40"},
    "CatenaPartitionsFail": {'catena_pipeline_failing_partitions{instance="p"}': STEADY},
    "CatenaDamage": {'catena_pipeline_audit_damage{instance="p"}': STEADY},
}
"""By alert: series, a value each minute, that make just this one fire within 40 minutes."""
QUIET = {
    f"up{NODE}": STEADY,
    f"catena_node_ready{NODE}": STEADY,
    f"catena_cluster_nodes{NODE}": STEADY,
    # What is the client's own doing, what is an ordinary race, and many groups that are a little behind.
    'catena_kafka_request_errors_total{instance="n",api="Produce",error="CORRUPT_MESSAGE"}': RISING,
    'catena_meta_store_errors_total{instance="n",operation="put",error="Conflict"}': RISING,
    'catena_group_lag_records{instance="n",group="(other)"}': "5000000x40",
    # By hand only, seldom, and due just now.
    f"catena_job_last_success_age_seconds{TIER}": RISING,
    f"catena_job_every_seconds{TIER}": "0x40",
    f"catena_job_last_success_age_seconds{RETENTION}": RISING,
    f"catena_job_every_seconds{RETENTION}": "7200x40",
    f"catena_pipeline_job_last_run_timestamp_seconds{RUN}": RISING,
    f"catena_pipeline_job_last_good_run_timestamp_seconds{RUN}": RISING,
    'catena_pipeline_audit_damage{instance="p"}': "0x40",
}


def case(series: dict[str, str], firing: list[str]) -> dict[str, Any]:
    return {
        "interval": "1m",
        "input_series": [{"series": name, "values": values} for name, values in series.items()],
        "promql_expr_test": [
            {
                "expr": 'count by (alertname) (ALERTS{alertstate="firing"})',
                "eval_time": "40m",
                "exp_samples": [{"labels": f'{{alertname="{name}"}}', "value": 1} for name in firing],
            }
        ],
    }


def test_every_alert_fires_by_its_own_trouble_and_no_other(tmp_path: Path) -> None:
    assert list(TROUBLE) == re.findall(r"- alert: (\w+)", ALERTS.read_text())
    tests = [case(series, [name]) for name, series in TROUBLE.items()]
    file = tmp_path / "alerts.json"
    file.write_text(
        json.dumps({"rule_files": [str(ALERTS)], "evaluation_interval": "1m", "tests": [*tests, case(QUIET, [])]})
    )
    promtool("test", "rules", file)


def settings(folder: Path) -> Settings:
    return load(
        data=str(folder),
        node={"rack": "a"},
        kafka={"listeners": {"main": {"port": 0}}, "retention": {"every_ms": 1_000}},
        metrics={"look_every_ms": 1_000},
        pipeline={
            "tier": {"min_age_ms": 0, "min_bytes": 0},
            "service": {
                "every_ms": 1_000,
                "compact_every_ms": 1_000,
                "vacuum_every_ms": 1_000,
                "audit_every_ms": 1_000,
            },
        },
    )


def use(servers: str) -> None:
    """A bit of everything, an error included."""
    producer = Producer({"bootstrap.servers": servers, "linger.ms": 0})
    for number in range(20):
        producer.produce("t", f"{number}".encode(), key=f"{number % 3}".encode())
        assert producer.flush(30) == 0
    consumer = Consumer(
        {"bootstrap.servers": servers, "group.id": "g", "enable.auto.commit": False, "client.rack": "a"}
    )
    consumer.list_topics("not a name", timeout=10)
    consumer.assign([TopicPartition("t", 0, OFFSET_BEGINNING)])
    seen = 0
    while seen < 20:
        seen += sum(message.error() is None for message in consumer.consume(20, 10))
    consumer.commit(offsets=[TopicPartition("t", 0, 10)], asynchronous=False)
    consumer.close()


def config(node: str, pipeline: str) -> dict[str, Any]:
    return {
        "global": {"scrape_interval": "500ms", "scrape_timeout": "500ms", "evaluation_interval": "500ms"},
        "rule_files": [str(ALERTS)],
        "scrape_configs": [
            {"job_name": name, "metrics_path": "/metrics/prometheus", "static_configs": [{"targets": [target]}]}
            for name, target in (("catena", node), ("catena-pipeline", pipeline))
        ],
    }


def names_in(expression: str) -> set[str]:
    """A query that falls back to 0 would not miss a metric that is not there."""
    return {re.sub(r"_(bucket|sum|count)$", "", name) for name in re.findall(r"(?:catena|process)_\w+", expression)}


async def families(address: str) -> set[str]:
    host, _, port = address.rpartition(":")
    reader, writer = await asyncio.open_connection(host, int(port))
    writer.write(b"GET /metrics/prometheus HTTP/1.1\r\nhost: test\r\nconnection: close\r\n\r\n")
    text = (await reader.read()).decode()
    writer.close()
    return set(re.findall(r"^# TYPE (\w+)", text, re.MULTILINE))


async def test_every_query_has_an_answer(tmp_path: Path) -> None:
    disk, mine = Disk(1), settings(tmp_path / "data")
    async with AsyncExitStack() as opened:
        opened.callback(disk.close)
        node = await opened.enter_async_context(serve(mine))
        await disk.run(use, str(node.address()))
        running = await opened.enter_async_context(jobs.open_service(mine, inline(mine)))
        opened.callback(running.end)
        service = asyncio.ensure_future(running.service.run())
        try:
            prometheus = PrometheusServer(tmp_path / "prometheus", config(str(node.http), running.http))
            await disk.run(prometheus.start)
        except PrometheusMissing as error:
            cannot_have("prometheus", str(error))
        opened.callback(prometheus.stop)
        lacking = list(all_queries())
        for _ in range(ROUNDS):
            await disk.run(use, str(node.address()))
            lacking = [query for query in lacking if not await disk.run(prometheus.query, query.expression)]
            if not lacking:
                break
        assert not lacking, "\n".join(map(str, lacking))
        told = await families(str(node.http)) | await families(running.http)
        assert {name for query in all_queries() for name in names_in(query.expression)} <= told
        assert [rule["name"] for rule in await disk.run(prometheus.rules) if rule["health"] != "ok"] == []
        assert not service.done()
