"""The same with the admin clients of kafka-python and aiokafka, which ask in versions of their own."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from typing import Any

import pytest
from aiokafka import TopicPartition as AioPartition  # type: ignore[import-untyped]
from aiokafka.admin import AIOKafkaAdminClient, RecordsToDelete  # type: ignore[import-untyped]
from aiokafka.admin import NewPartitions as AioPartitions
from aiokafka.admin import NewTopic as AioTopic
from aiokafka.admin.config_resource import ConfigResource as AioResource  # type: ignore[import-untyped]
from aiokafka.admin.config_resource import ConfigResourceType as AioResourceType

from tests.clients.clients import CLIENTS, Rec
from tests.clients.conftest import fresh
from tests.clients.kafka_python import (
    ConfigResource,
    ConfigResourceType,
    KafkaAdminClient,
    OffsetAndMetadata,
    OffsetSpec,
    TopicPartition,
    kafka,
)
from tests.clients.nodes import Cluster
from tests.clients.waiting import PATIENCE_S, until

START_MS = 1_700_000_000_000


def write(cluster: Cluster, topic: str, count: int) -> None:
    records = [Rec(0, None, b"x", timestamp=START_MS + number) for number in range(count)]
    CLIENTS[0].write(cluster.bootstrap, topic, records, "none")


@pytest.fixture
def python_admin(cluster: Cluster) -> Iterator[Any]:
    client = KafkaAdminClient(bootstrap_servers=cluster.bootstrap.split(","))
    yield client
    client.close()


class TestKafkaPython:
    def test_topics(self, cluster: Cluster, python_admin: Any) -> None:
        topic = fresh("topic")
        python_admin.create_topics({topic: {"num_partitions": 2, "configs": {"retention.ms": "1000"}}})
        until(lambda: topic in python_admin.list_topics(), "it is listed")
        with pytest.raises(kafka.errors.TopicAlreadyExistsError):
            python_admin.create_topics({topic: {"num_partitions": 2}})
        python_admin.create_partitions({topic: 3})
        until(lambda: len(python_admin.describe_topics([topic])[0]["partitions"]) == 3, "3 partitions")
        parts = python_admin.describe_topic_partitions([topic])
        assert topic in str(parts)
        python_admin.delete_topics([topic])
        until(lambda: topic not in python_admin.list_topics(), "it is not listed any more")

    def test_configs(self, python_admin: Any, topic: str) -> None:
        def described() -> Any:
            asked = [ConfigResource(ConfigResourceType.TOPIC, topic)]
            return python_admin.describe_configs(asked, config_filter="all")["topic"][topic]

        assert described()["max.message.bytes"]["value"] == "1048588"
        for incremental, value in ((True, "5000"), (False, "6000")):
            change = ConfigResource(ConfigResourceType.TOPIC, topic, {"max.message.bytes": value})
            python_admin.alter_configs([change], incremental=incremental)
            assert described()["max.message.bytes"]["value"] == value
        python_admin.reset_configs([ConfigResource(ConfigResourceType.TOPIC, topic, ["max.message.bytes"])])
        assert described()["max.message.bytes"]["value"] == "1048588"

    def test_offsets_and_records(self, cluster: Cluster, python_admin: Any, topic: str) -> None:
        write(cluster, topic, 10)
        place = TopicPartition(topic, 0)

        def listed(spec: Any) -> int:
            offset: int = python_admin.list_partition_offsets({place: spec})[place].offset
            return offset

        assert listed(OffsetSpec.EARLIEST) == 0
        assert listed(OffsetSpec.LATEST) == 10
        assert listed(OffsetSpec.MAX_TIMESTAMP) == 9
        assert listed(START_MS + 4) == 4
        python_admin.delete_records({place: 4})
        assert listed(OffsetSpec.EARLIEST) == 4

    def test_groups(self, python_admin: Any, topic: str) -> None:
        group, place = fresh("group"), TopicPartition(topic, 0)
        changed = python_admin.alter_group_offsets(group, {place: OffsetAndMetadata(3, "by hand", -1)})
        assert changed == {place: kafka.errors.NoError}
        found = python_admin.list_group_offsets(group)[group][place]
        assert (found.offset, found.metadata) == (3, "by hand")
        assert group in [one["group_id"] for one in python_admin.list_groups()]
        assert python_admin.describe_groups([group])[group]["group_state"] == "Empty"
        assert python_admin.delete_group_offsets(group, [place]) == {place: kafka.errors.NoError}
        assert python_admin.list_group_offsets(group)[group] == {}
        python_admin.delete_groups([group])
        assert group not in [one["group_id"] for one in python_admin.list_groups()]

    def test_the_cluster(self, cluster: Cluster, python_admin: Any, topic: str) -> None:
        described = python_admin.describe_cluster()
        assert sorted(broker["broker_id"] for broker in described["brokers"]) == [n.node_id for n in cluster.nodes]
        write(cluster, topic, 10)
        assert topic in str(python_admin.describe_log_dirs({topic: [0]}))
        CLIENTS[1].write(cluster.bootstrap, topic, [Rec(1, None, b"by an idempotent producer")], "none")
        [state] = python_admin.describe_producers([TopicPartition(topic, 1)]).values()
        assert len(state.active_producers) == 1


async def test_aiokafka(cluster: Cluster) -> None:
    topic, group = fresh("topic"), fresh("group")
    async with _aiokafka(cluster) as admin:
        created = await admin.create_topics([AioTopic(topic, 2, 1)])
        assert created.topic_errors[0][1] == 0
        await _listed(admin, topic, True)
        assert (await admin.create_partitions({topic: AioPartitions(3)})).topic_errors[0][1] == 0
        async with asyncio.timeout(PATIENCE_S):
            while len((await admin.describe_topics([topic]))[0]["partitions"]) != 3:
                pass
        resource = AioResource(AioResourceType.TOPIC, topic, {"max.message.bytes": "5000"})
        assert (await admin.alter_configs([resource]))[0].resources[0][0] == 0
        [configs] = await admin.describe_configs([AioResource(AioResourceType.TOPIC, topic)])
        assert ("max.message.bytes", "5000") in [entry[:2] for entry in configs.resources[0][4]]
        write(cluster, topic, 10)
        place = AioPartition(topic, 0)
        assert await admin.delete_records({place: RecordsToDelete(4)}) == {place: 4}
        assert await admin.find_coordinator(group) in [node.node_id for node in cluster.nodes]
        CLIENTS[0].read(cluster.bootstrap, topic, [0], 6)
        assert len((await admin.describe_cluster())["brokers"]) == len(cluster.nodes)
        assert (await admin.delete_topics([topic])).topic_error_codes[0][1] == 0
        await _listed(admin, topic, False)


async def _listed(admin: Any, topic: str, there: bool) -> None:
    """A node hears of what others create and delete a moment later."""
    async with asyncio.timeout(PATIENCE_S):
        while (topic in await admin.list_topics()) != there:
            pass


def _aiokafka(cluster: Cluster) -> Any:
    class Started:
        async def __aenter__(self) -> Any:
            self.client = AIOKafkaAdminClient(bootstrap_servers=cluster.bootstrap)
            await self.client.start()
            return self.client

        async def __aexit__(self, *_: object) -> None:
            await self.client.close()

    return Started()
