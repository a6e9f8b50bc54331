"""What HTTP wrote Kafka's clients read, and the other way round, in every compression and on whichever node."""

from __future__ import annotations

import base64
import json
import urllib.request
from typing import Any

import pytest
from confluent_kafka.admin import AdminClient

from tests.clients.clients import CLIENTS, COMPRESSIONS, Client, Rec
from tests.clients.conftest import create_topic
from tests.clients.nodes import Cluster
from tests.clients.test_records import NAMES, topic_written_by, written

READ = [
    *((CLIENTS[0], name) for name in ("producer", *COMPRESSIONS[1:])),
    *((client, "lz4") for client in CLIENTS[1:]),
]
"""One client reads what topics of every compression hold, the others one of them."""


def ask(node: str, path: str, body: Any) -> Any:
    request = urllib.request.Request(f"http://{node}{path}", json.dumps(body).encode(), method="POST")
    with urllib.request.urlopen(request, timeout=60) as answer:
        return json.load(answer)


def consume(node: str, topic: str, partition: int, offset: int = 0, **more: Any) -> Any:
    part = {"topic": topic, "partition": partition, "fetch_offset": offset}
    (result,) = ask(node, "/consume", {"topic_partitions": [part], **more})["results"]
    return result


def data(value: Any) -> bytes | None:
    if isinstance(value, dict):
        return base64.b64decode(value["base64"])
    return None if value is None else value.encode()


@pytest.mark.parametrize("writer", CLIENTS, ids=NAMES)
def test_what_clients_wrote_http_reads(cluster: Cluster, writer: Client) -> None:
    topic = topic_written_by(writer, cluster)
    for partition, compression in enumerate(COMPRESSIONS):
        if compression not in writer.compressions:
            continue
        expected = written(writer, partition)
        for node in cluster.nodes:
            result = consume(node.http, topic, partition, details=True)
            assert result["next_offset"] == result["high_watermark"] == len(expected)
            found = [
                Rec(
                    partition,
                    data(record["key"]),
                    data(record["value"]),
                    tuple((header["name"], data(header["value"])) for header in record["headers"]),
                    record["timestamp"] if writer.can_stamp else -1,
                )
                for record in result["records"]
            ]
            assert found == expected
            plain = consume(node.http, topic, partition, 3)
            assert [data(value) for value in plain["records"]] == [rec.value for rec in expected[3:]]


@pytest.mark.parametrize(("reader", "compression"), READ, ids=[f"{reader.name}-{name}" for reader, name in READ])
def test_what_http_wrote_clients_read(cluster: Cluster, admin: AdminClient, reader: Client, compression: str) -> None:
    topic = create_topic(admin, 1, compression_type=compression)
    given: list[Any] = [f"text {number} é" for number in range(100)]
    given += [{"base64": "w6kA"}, {"value": "v", "key": "k", "headers": [{"name": "h", "value": "x"}], "timestamp": 7}]
    results = [
        ask(node.http, "/produce", {"topic_partitions": [{"topic": topic, "partition": 0, "records": given}]})
        for node in cluster.nodes
    ]
    assert [result["results"][0]["start_offset"] for result in results] == [102 * n for n in range(len(results))]
    read = reader.read(cluster.bootstrap, topic, [0], 102 * len(results))
    assert [rec.value for rec in read][:102] == [*(text.encode() for text in given[:100]), "é\0".encode(), b"v"]
    last = read[-1]
    assert (last.key, last.headers, last.timestamp) == (b"k", (("h", b"x"),), 7)


def test_who_waits_at_one_node_hears_of_what_another_took(cluster: Cluster, topic: str) -> None:
    first, last = cluster.nodes[0], cluster.nodes[-1]
    ask(first.http, "/produce", {"topic_partitions": [{"topic": topic, "partition": 0, "records": ["before"]}]})
    assert consume(last.http, topic, 0, 0, max_wait_ms=30_000)["records"] == ["before"]
    ask(first.http, "/produce", {"topic_partitions": [{"topic": topic, "partition": 0, "records": ["news"]}]})
    assert consume(last.http, topic, 0, 1, max_wait_ms=30_000)["records"] == ["news"]
