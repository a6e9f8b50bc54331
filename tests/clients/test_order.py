"""Requests that one connection sends without waiting for answers take their places in the order in which they came."""

from __future__ import annotations

import pytest
from confluent_kafka.admin import AdminClient

from catena.formats.records import build_batch
from catena.wire.codes import Code
from catena.wire.messages.produce import PartitionProduceData, ProduceRequest, ProduceResponse, TopicProduceData
from tests.clients.conftest import create_topic
from tests.clients.nodes import Cluster
from tests.clients.raw import BY_REQUEST, Raw

VERSION = 12
ROUNDS = 50
BATCH = build_batch([(None, b"x", (), 1_700_000_000_000)])


def write_to(topic: str, partitions: tuple[int, ...]) -> ProduceRequest:
    data = [PartitionProduceData(index=partition, records=[BATCH]) for partition in partitions]
    return ProduceRequest(acks=1, timeout_ms=10_000, topic_data=[TopicProduceData(name=topic, partition_data=data)])


@pytest.mark.parametrize(
    "requests",
    [((0,),) * 4, ((0, 1), (0,)), ((0,), (0, 1)), ((0, 1, 2, 3), (3,), (2, 3), (0,)), ((1, 0), (0, 1), (0,))],
    ids=["alike", "two-then-one", "one-then-two", "many", "crosswise"],
)
def test_requests_of_one_connection_keep_their_order(
    cluster: Cluster, admin: AdminClient, requests: tuple[tuple[int, ...], ...]
) -> None:
    topic = create_topic(admin, 4)
    ends = dict.fromkeys(range(4), 0)
    with Raw(cluster.nodes[0].address) as raw:
        for _ in range(ROUNDS):
            first = raw.correlation_id + 1
            raw.send_together([write_to(topic, partitions) for partitions in requests], VERSION)
            for number, partitions in enumerate(requests):
                answer = raw.receive(BY_REQUEST[ProduceRequest], ProduceResponse, VERSION, first + number)
                said = [(p.index, p.error_code, p.base_offset) for p in answer.responses[0].partition_responses]
                assert said == [(partition, Code.NONE, ends[partition]) for partition in partitions]
                for partition in partitions:
                    ends[partition] += 1
