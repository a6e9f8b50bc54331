"""`catena cost`, from a node that lives and from what one said."""

from __future__ import annotations

import http.client
import re
from pathlib import Path

import msgspec
import pytest
from confluent_kafka import Producer

from catena import jobs
from catena.pipeline.settings import PipelineSettings, TierSettings
from catena.runtime import Disk
from tests.cli.conftest import Catena
from tests.cli.test_serve import ANY_PORT, serving
from tests.jobs.topics import inline, make_topics
from tests.metrics.test_traffic import node, pipeline


@pytest.fixture
def sample(tmp_path: Path) -> Path:
    path = tmp_path / "metrics.json"
    path.write_bytes(node(1_000, 10 << 30, 20 << 30, 4_000, {"wal": 1 << 30, "segments": 9 << 30, "meta": 0}))
    return path


def test_a_node_that_lives(tmp_path: Path, catena: Catena) -> None:
    with serving(tmp_path, "--json", *ANY_PORT, "--data", "log") as served:
        said = served.started()
        producer = Producer({"bootstrap.servers": said["listeners"]["main"]})
        producer.produce("t", b"x" * 1_000)
        assert producer.flush(30) == 0
        ran = catena("cost", "--json")
        assert (ran.code, ran.err) == (0, "")
        assert ran.json["traffic"]["produced_bytes_per_s"] > 0
        assert ran.json["catena"]["total_usd"] > 0
        assert (ran.json["silent"], ran.json["asked"]) == ([], [f"http://{said['http']}"])
        assert ran.json["traffic"]["log_bytes"] > 1_000
        shown = catena("cost")
        assert shown.code == 0
        assert "seconds say little about a month" in shown.out
        connection = http.client.HTTPConnection(said["http"], timeout=10)
        connection.request("GET", "/metrics")
        (tmp_path / "said.json").write_bytes(connection.getresponse().read())
        connection.close()
        served.process.kill()
        served.process.wait(30)
    gone = catena("cost")
    assert gone.code == 3
    assert "does not answer" in gone.err
    assert "store" not in gone.err, "it is a node that is gone"
    kept = catena("cost", "--metrics", tmp_path / "said.json", "--json")
    assert kept.json["traffic"]["log_bytes"] == ran.json["traffic"]["log_bytes"]


def test_a_node_that_nobody_used(tmp_path: Path, catena: Catena) -> None:
    with serving(tmp_path, "--json", *ANY_PORT, "--data", "log") as served:
        served.started()
        shown = catena("cost")
        assert shown.code == 0
        assert "nothing was written or read" in shown.out
        assert "most of it" not in shown.out, "there is nothing to advise"
        told = catena("cost", "--json").json
        assert len(told["cautions"]) == 2
        assert told["traffic"]["requests_per_s"]["get"] == 0, "what it took to start is no rate"


async def test_a_service_of_the_pipeline_is_found(tmp_path: Path, catena: Catena) -> None:
    settings = await make_topics(tmp_path / "log")
    eager = PipelineSettings(tier=TierSettings(min_age_ms=0, min_bytes=0))
    settings = msgspec.structs.replace(settings, pipeline=eager)
    disk = Disk(1)
    try:
        async with jobs.open_service(settings, inline(settings)) as running:
            await running.service.run_once()
            ran = await disk.run(catena, "cost", "--json")
        assert (ran.code, ran.json["asked"]) == (0, [f"http://{running.http}"])
        assert ran.json["traffic"]["requests_per_s"]["put"] > 0, "of segments and manifests"
        assert "no node" in (await disk.run(catena, "cost")).err
    finally:
        disk.close()


def test_both_sides_and_what_is_assumed(catena: Catena, sample: Path, tmp_path: Path) -> None:
    (tmp_path / "pipeline.json").write_bytes(pipeline(1_000, 99, 50))
    shown = catena("cost", "--metrics", sample, "--metrics", tmp_path / "pipeline.json")
    assert shown.code == 0
    for word in ("CATENA, 30 DAYS", "KAFKA, 30 DAYS", "PUT and LIST requests", "copies across zones", "what is stored"):
        assert word in shown.out
    assert "of what Kafka would cost" in shown.out
    assert re.search(r"most of it, \d+%: clients across zones;", shown.out), "it says what dominates"
    told = catena("cost", "--metrics", sample, "--metrics", sample, "--json").json
    assert told["asked"] == [str(sample)], "who is named twice counts once"
    assert told["traffic"]["requests_per_s"]["put"] == 4.0
    puts = next(item for item in told["catena"]["items"] if item["name"] == "PUT and LIST requests")
    assert puts["usd"] == pytest.approx(4 * 30 * 86_400 * 5e-6)
    assert told["kafka"]["total_usd"] > told["catena"]["total_usd"]


def test_assumptions_are_changed_by_options(catena: Catena, sample: Path) -> None:
    usual = catena("cost", "--metrics", sample, "--json").json
    changed = catena(
        *("cost", "--metrics", sample, "--json", "--days", "60", "--put-usd", "0.01", "--get-usd", "0"),
        *("--storage-usd", "0", "--cross-zone-usd", "0", "--disk-usd", "1", "--disk-fill", "1"),
        *("--replication", "1", "--retention-days", "1", "--cross-zone", "1", "--own-cross-zone", "0"),
        *("--consumers-cross-zone", "0"),
    ).json
    assert changed["catena"]["total_usd"] == pytest.approx(4 * 60 * 86_400 * 1e-5)
    assert changed["kafka"]["total_usd"] == pytest.approx(10 / 1_000 * 86_400 * 1 * 2)
    assert changed["assumptions"] != usual["assumptions"]
    assert msgspec.json.encode(changed["traffic"]) == msgspec.json.encode(usual["traffic"])


def test_what_is_wrong_is_named(catena: Catena, tmp_path: Path) -> None:
    nothing = catena("cost")
    assert nothing.code == 2
    assert "there is no log in the folder" in nothing.err
    (tmp_path / "x.json").write_text("what?")
    odd = catena("cost", "--metrics", tmp_path / "x.json")
    assert odd.code == 2
    assert "x.json is not what GET /metrics" in odd.err
    assert catena("cost", "--metrics", tmp_path / "y.json").code == 2
    twice = catena("cost", "--metrics", tmp_path / "x.json", "--over", "1")
    assert twice.code == 2
    assert "option --over: a file says the same" in twice.err
    catena("topic", "create", "t")
    idle = catena("cost")
    assert idle.code == 2
    assert "no node runs" in idle.err
