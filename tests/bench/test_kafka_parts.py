"""The parts of the broker's benchmarks that decide something by themselves."""

from __future__ import annotations

from pathlib import Path

import pytest

from bench.apache_kafka import KAFKA, properties_of
from bench.kafka_clients import RECORD_BYTES, Flow, write_records
from bench.kafka_connections import BATCH_RECORDS, Load
from bench.kafka_open_loop import WARM_UP_S, latencies, schedule
from bench.kafka_peer import COMPARED, compare
from bench.kafka_wire import FETCH, METADATA, answers_metadata, parse_response, request_frame
from bench.maven import fetch_jars
from bench.serving import Missing
from catena.wire.messages.fetch import FetchPartition, FetchRequest, FetchTopic
from catena.wire.messages.metadata import MetadataResponse, MetadataResponseBroker
from catena.wire.requests import SIZE_BYTES, parse_request, response_frame


def test_a_flow_is_told_by_second_and_by_gb() -> None:
    moved = Flow(size=2_000_000_000, seconds=4.0, cpu_s=3.0)

    assert (moved.mb_per_s, moved.cpu_per_gb) == (500.0, 1.5)


def test_lines_are_records_of_one_kib(tmp_path: Path) -> None:
    assert write_records(tmp_path / "lines", 3_000_000) == 2929

    lines = (tmp_path / "lines").read_bytes().split(b"\n")
    assert lines.pop() == b""
    assert {len(line) for line in lines} == {RECORD_BYTES}
    assert len(lines) == 2929


@pytest.mark.parametrize("records", [0, BATCH_RECORDS, 100_000, 1_000_003])
def test_connections_share_partitions_and_batches_out(records: int) -> None:
    load = Load("", "", connections=20, partitions=100, records=records)

    owned = sorted(partition for connection in range(20) for partition in load.partitions_of(connection))
    assert owned == list(range(100))
    assert sum(map(load.batches_of, owned)) * BATCH_RECORDS == load.sent
    assert records - BATCH_RECORDS < load.sent <= records


def test_records_are_due_at_fixed_times_and_count_after_the_warm_up() -> None:
    due = list(schedule(rate=1_000, seconds=0.5, start=7))

    assert [time for time, _ in due[:3]] == [7, 1_000_007, 2_000_007]
    assert sum(counts for _, counts in due) == 500
    assert [counts for _, counts in due].index(True) == WARM_UP_S * 1_000


def test_latencies_are_in_milliseconds() -> None:
    found = latencies([number * 1_000_000 for number in range(1000)])

    assert found == (1000, 500.0, 990.0, 999.0)


def test_a_request_is_what_the_broker_reads() -> None:
    body = FetchRequest(max_wait_ms=500, topics=[FetchTopic(topic="t", partitions=[FetchPartition(partition=3)])])
    frame = request_frame(FETCH, 12, body)

    assert int.from_bytes(frame[:SIZE_BYTES], "big") == len(frame) - SIZE_BYTES
    request = parse_request(memoryview(frame)[SIZE_BYTES:])
    assert (request.api.name, request.version, request.client_id, request.body) == ("Fetch", 12, "bench", body)


@pytest.mark.parametrize("version", [8, 9])
def test_a_response_is_what_the_broker_writes(version: int) -> None:
    response = MetadataResponse(brokers=[MetadataResponseBroker(node_id=1, host="h", port=2)])
    frame = b"".join(response_frame(METADATA, version, 0, response))

    assert parse_response(METADATA, version, memoryview(frame)[SIZE_BYTES:]) == response


def test_nobody_answers_where_nobody_listens() -> None:
    assert not answers_metadata("127.0.0.1:1")


def test_medians_are_compared_and_held_against_the_aim() -> None:
    ours = [[2.0] * len(COMPARED), [4.0] * len(COMPARED), [100.0] * len(COMPARED)]
    theirs = [[2.0] * len(COMPARED)] * 3

    figures = {figure.name: figure for figure in compare(ours, theirs)}

    assert figures["produce: Catena / Kafka"].value == 2.0
    assert figures["produce: Catena / Kafka"].met is True
    assert figures["CPU per GB in: Catena / Kafka"].met is False
    assert figures["memory: Catena / Kafka"].met is None
    assert figures["memory: Catena"].value == 4.0


def test_kafka_keeps_its_data_where_it_is_told(tmp_path: Path) -> None:
    lines = properties_of(tmp_path / "data", 1, 2).splitlines()

    assert f"log.dirs={tmp_path / 'data'}" in lines
    assert "listeners=PLAINTEXT://127.0.0.1:1,CONTROLLER://127.0.0.1:2" in lines


def test_a_folder_without_kafka_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("BENCH_KAFKA_JARS", str(tmp_path))

    with pytest.raises(Missing, match=str(tmp_path)):
        fetch_jars(KAFKA, "BENCH_KAFKA_JARS")
