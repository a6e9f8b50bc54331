"""What operators do, with confluent-kafka's admin client: topics, configs, groups, offsets, the cluster."""

from __future__ import annotations

from contextlib import closing
from typing import Any

import pytest
from confluent_kafka import (
    Consumer,
    ConsumerGroupState,
    ConsumerGroupTopicPartitions,
    ConsumerGroupType,
    KafkaError,
    KafkaException,
    TopicCollection,
    TopicPartition,
)
from confluent_kafka.admin import AdminClient
from confluent_kafka.admin._config import AlterConfigOpType, ConfigEntry, ConfigResource
from confluent_kafka.admin._listoffsets import OffsetSpec
from confluent_kafka.admin._resource import ResourceType
from confluent_kafka.cimpl import NewPartitions, NewTopic

from tests.clients.clients import CLIENTS, Rec
from tests.clients.conftest import create_topic, fresh, settings
from tests.clients.members import LibrdkafkaMember, wait_until_shared, wait_while_polling
from tests.clients.nodes import Cluster
from tests.clients.waiting import until

TIMEOUT_S = 30
START_MS = 1_700_000_000_000


def refused(fault: pytest.ExceptionInfo[KafkaException]) -> int:
    code: int = fault.value.args[0].code()
    return code


def write(cluster: Cluster, topic: str, count: int, partition: int = 0) -> None:
    """The time of record n is n seconds after the start, but the first comes last."""
    times = [*range(1, count), 0]
    CLIENTS[0].write(
        cluster.bootstrap,
        topic,
        [Rec(partition, None, b"x", timestamp=START_MS + 1000 * time) for time in times],
        "none",
    )


def test_topics_are_made_described_listed_and_deleted(cluster: Cluster, admin: AdminClient) -> None:
    topic = create_topic(admin, 3, retention_ms="86400000")
    assert len(admin.list_topics(timeout=TIMEOUT_S).topics[topic].partitions) == 3
    described = admin.describe_topics(TopicCollection([topic]))[topic].result(TIMEOUT_S)
    assert (described.name, described.is_internal, len(described.partitions)) == (topic, False, 3)
    for partition in described.partitions:
        assert partition.leader.id in [node.node_id for node in cluster.nodes]
        assert [replica.id for replica in partition.isr] == [partition.leader.id]
    admin.delete_topics([topic])[topic].result(TIMEOUT_S)
    until(lambda: topic not in admin.list_topics(timeout=TIMEOUT_S).topics, "it is not listed any more")


def test_topics_that_can_not_be(admin: AdminClient) -> None:
    topic = create_topic(admin)
    bad = {
        topic: (NewTopic(topic, 1, 1), KafkaError.TOPIC_ALREADY_EXISTS),
        "a/b": (NewTopic("a/b", 1, 1), KafkaError.TOPIC_EXCEPTION),
        "none": (NewTopic("none", 0, 1), KafkaError.INVALID_PARTITIONS),
        "configs": (NewTopic("configs", 1, 1, config={"retention.ms": "soon"}), KafkaError.INVALID_CONFIG),
        "unknown": (NewTopic("unknown", 1, 1, config={"no.such": "1"}), KafkaError.INVALID_CONFIG),
    }
    results = admin.create_topics([new for new, _ in bad.values()])
    for name, (_, code) in bad.items():
        with pytest.raises(KafkaException) as fault:
            results[name].result(TIMEOUT_S)
        assert refused(fault) == code
    with pytest.raises(KafkaException) as fault:
        admin.delete_topics(["never-made"])["never-made"].result(TIMEOUT_S)
    assert refused(fault) == KafkaError.UNKNOWN_TOPIC_OR_PART


def test_validate_only_makes_nothing(admin: AdminClient) -> None:
    name = fresh("topic")
    admin.create_topics([NewTopic(name, 1, 1)], validate_only=True)[name].result(TIMEOUT_S)
    assert name not in admin.list_topics(timeout=TIMEOUT_S).topics


def test_partitions_are_added(cluster: Cluster, admin: AdminClient) -> None:
    topic = create_topic(admin, 2)
    admin.create_partitions([NewPartitions(topic, 5)])[topic].result(TIMEOUT_S)

    def is_written() -> bool:
        """Each node hears of new partitions by itself, and a producer may ask one that has not yet."""
        try:
            write(cluster, topic, 3, partition=4)
        except AssertionError as error:
            if "_UNKNOWN_PARTITION" not in str(error):
                raise
            return False
        return True

    until(is_written, "the producer knows the new partitions")
    with pytest.raises(KafkaException) as fault:
        admin.create_partitions([NewPartitions(topic, 3)])[topic].result(TIMEOUT_S)
    assert refused(fault) == KafkaError.INVALID_PARTITIONS


def test_configs_are_described_and_altered(admin: AdminClient) -> None:
    topic = create_topic(admin, retention_ms="1000000")
    asked = ConfigResource(ResourceType.TOPIC, topic)

    def described() -> dict[str, ConfigEntry]:
        found: dict[str, ConfigEntry] = admin.describe_configs([asked])[asked].result(TIMEOUT_S)
        return found

    before = described()
    assert (before["retention.ms"].value, before["retention.ms"].is_default) == ("1000000", False)
    assert (before["cleanup.policy"].value, before["cleanup.policy"].is_default) == ("delete", True)
    change = ConfigResource(
        ResourceType.TOPIC,
        topic,
        incremental_configs=[
            ConfigEntry("max.message.bytes", "5000", incremental_operation=AlterConfigOpType.SET),
            ConfigEntry("cleanup.policy", "compact", incremental_operation=AlterConfigOpType.APPEND),
            ConfigEntry("retention.ms", None, incremental_operation=AlterConfigOpType.DELETE),
        ],
    )
    admin.incremental_alter_configs([change])[change].result(TIMEOUT_S)
    after = described()
    assert after["max.message.bytes"].value == "5000"
    assert after["cleanup.policy"].value == "delete,compact"
    assert after["retention.ms"].is_default
    impossible = ConfigResource(
        ResourceType.TOPIC,
        topic,
        incremental_configs=[ConfigEntry("retention.ms", "soon", incremental_operation=AlterConfigOpType.SET)],
    )
    with pytest.raises(KafkaException) as fault:
        admin.incremental_alter_configs([impossible])[impossible].result(TIMEOUT_S)
    assert refused(fault) == KafkaError.INVALID_CONFIG
    assert "soon" in str(fault.value)


def test_the_config_of_a_broker_is_described(admin: AdminClient) -> None:
    asked = ConfigResource(ResourceType.BROKER, "0")
    assert admin.describe_configs([asked])[asked].result(TIMEOUT_S)


def test_the_cluster_is_described(cluster: Cluster, admin: AdminClient) -> None:
    described = admin.describe_cluster().result(TIMEOUT_S)
    nodes = [(node.node_id, node.address) for node in cluster.nodes]
    assert sorted((node.id, f"{node.host}:{node.port}") for node in described.nodes) == nodes
    assert described.controller.id in [node_id for node_id, _ in nodes]
    assert described.cluster_id == admin.list_topics(timeout=TIMEOUT_S).cluster_id


def test_offsets_are_listed(cluster: Cluster, admin: AdminClient) -> None:
    topic = create_topic(admin)
    write(cluster, topic, 10)

    def listed(spec: Any) -> tuple[int, int]:
        place = TopicPartition(topic, 0)
        found = admin.list_offsets({place: spec})[place].result(TIMEOUT_S)
        return found.offset, found.timestamp

    spec: Any = OffsetSpec
    assert listed(spec.earliest())[0] == 0
    assert listed(spec.latest())[0] == 10
    assert listed(spec.max_timestamp()) == (8, START_MS + 9000)
    assert listed(spec.for_timestamp(START_MS + 4500)) == (4, START_MS + 5000)
    assert listed(spec.for_timestamp(START_MS + 9001))[0] == -1


def test_records_are_deleted(cluster: Cluster, admin: AdminClient) -> None:
    topic = create_topic(admin)
    write(cluster, topic, 10)
    place = TopicPartition(topic, 0, 4)
    assert admin.delete_records([place])[place].result(TIMEOUT_S).low_watermark == 4
    with closing(Consumer(settings(cluster.bootstrap, group_id=fresh("group")))) as consumer:
        assert consumer.get_watermark_offsets(TopicPartition(topic, 0), TIMEOUT_S) == (4, 10)
    read = CLIENTS[0].read(cluster.bootstrap, topic, [0], 6)
    assert [rec.offset for rec in read] == list(range(4, 10))
    beyond = TopicPartition(topic, 0, 11)
    with pytest.raises(KafkaException) as fault:
        admin.delete_records([beyond])[beyond].result(TIMEOUT_S)
    assert refused(fault) == KafkaError.OFFSET_OUT_OF_RANGE


@pytest.mark.parametrize("protocol", ["classic", "consumer"])
def test_groups_are_listed_described_and_deleted(
    cluster: Cluster, admin: AdminClient, topic: str, protocol: str
) -> None:
    group = fresh("group")
    kind = ConsumerGroupType.CLASSIC if protocol == "classic" else ConsumerGroupType.CONSUMER

    def listed(state: ConsumerGroupState) -> bool:
        found = admin.list_consumer_groups(states={state}, types={kind}).result(TIMEOUT_S)
        assert not found.errors
        return group in [one.group_id for one in found.valid]

    with closing(LibrdkafkaMember(cluster.bootstrap, group, topic, group_protocol=protocol)) as member:
        wait_until_shared([member], [4])
        wait_while_polling([member], lambda: listed(ConsumerGroupState.STABLE), "it is listed as stable")
        described = admin.describe_consumer_groups([group])[group].result(TIMEOUT_S)
        assert (described.group_id, described.state, described.type) == (group, ConsumerGroupState.STABLE, kind)
        assert described.coordinator.id in [node.node_id for node in cluster.nodes]
        [only] = described.members
        assert sorted(place.partition for place in only.assignment.topic_partitions) == [0, 1, 2, 3]
        with pytest.raises(KafkaException) as fault:
            admin.delete_consumer_groups([group])[group].result(TIMEOUT_S)
        assert refused(fault) == KafkaError.NON_EMPTY_GROUP
    until(lambda: listed(ConsumerGroupState.EMPTY), "it is listed as empty")
    admin.delete_consumer_groups([group])[group].result(TIMEOUT_S)
    assert not listed(ConsumerGroupState.EMPTY)
    with pytest.raises(KafkaException) as fault:
        admin.delete_consumer_groups([group])[group].result(TIMEOUT_S)
    assert refused(fault) == KafkaError.GROUP_ID_NOT_FOUND


def test_offsets_of_a_group_are_set_and_listed(cluster: Cluster, admin: AdminClient, topic: str) -> None:
    group = fresh("group")
    places = [TopicPartition(topic, 0, 5, metadata="by hand"), TopicPartition(topic, 2, 7)]
    change = [ConsumerGroupTopicPartitions(group, places)]
    admin.alter_consumer_group_offsets(change)[group].result(TIMEOUT_S)
    everything = [ConsumerGroupTopicPartitions(group)]
    found = admin.list_consumer_group_offsets(everything)[group].result(TIMEOUT_S)
    offsets = [(place.partition, place.offset, place.metadata or "") for place in found.topic_partitions]
    assert sorted(offsets) == [(0, 5, "by hand"), (2, 7, "")]
    with closing(LibrdkafkaMember(cluster.bootstrap, group, topic)) as member:
        wait_until_shared([member], [4])
        refusals = admin.alter_consumer_group_offsets(change)[group].result(TIMEOUT_S).topic_partitions
        assert [place.error.code() for place in refusals] == [KafkaError.UNKNOWN_MEMBER_ID] * 2
