"""Three nodes are one cluster: what is acked on one is there on the others at once, and all say the same."""

from __future__ import annotations

import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from functools import partial
from itertools import permutations

import pytest
from confluent_kafka.admin import AdminClient

from catena.formats.record_batch import split_batches
from catena.formats.records import build_batch, iter_records
from catena.wire.codes import Code
from catena.wire.messages.fetch import PartitionData
from catena.wire.messages.offset_for_leader_epoch import (
    OffsetForLeaderEpochRequest,
    OffsetForLeaderEpochResponse,
    OffsetForLeaderPartition,
    OffsetForLeaderTopic,
)
from tests.clients.conftest import create_topic, settings
from tests.clients.nodes import Cluster
from tests.clients.raw import Raw, fetch, list_offset, metadata, produce, produce_request
from tests.clients.waiting import until

PAIRS = list(permutations(range(3), 2))
LONG_POLL_MS = 20_000


def batch(*values: bytes) -> bytes:
    return build_batch([(None, value, (), 1_700_000_000_000) for value in values])


def values(found: PartitionData) -> list[bytes | None]:
    assert found.error_code == Code.NONE
    data = b"".join(bytes(part) for part in found.records or ())
    return [record.value for _, one in split_batches(data) for record in iter_records(one)]


@pytest.fixture
def admin(three_nodes: Cluster) -> AdminClient:
    return AdminClient(settings(three_nodes.bootstrap))


@pytest.fixture
def raws(three_nodes: Cluster) -> Iterator[list[Raw]]:
    """A connection to each node."""
    with ExitStack() as opened:
        yield [opened.enter_context(Raw(node.address)) for node in three_nodes.nodes]


def test_what_is_acked_on_one_is_read_on_another_at_once(admin: AdminClient, raws: list[Raw]) -> None:
    topic = create_topic(admin)
    expected: list[bytes | None] = []
    for turn, (here, there) in enumerate(PAIRS * 5):
        value = b"%d: %d to %d" % (turn, here, there)
        assert produce(raws[here], topic, batch(value)).base_offset == turn
        assert values(fetch(raws[there], topic, turn)) == [value]
        assert list_offset(raws[there], topic).offset == turn + 1
        expected.append(value)
    for raw in raws:
        assert values(fetch(raw, topic, 0)) == expected


@pytest.mark.parametrize(("here", "there"), PAIRS)
def test_who_waits_on_one_node_is_woken_by_a_write_on_another(
    admin: AdminClient, raws: list[Raw], here: int, there: int
) -> None:
    topic = create_topic(admin)
    assert produce(raws[there], topic, batch(b"first")).base_offset == 0
    began = time.monotonic()
    with ThreadPoolExecutor() as threads:
        waiting = threads.submit(fetch, raws[there], topic, 1, max_wait_ms=LONG_POLL_MS)
        assert produce(raws[here], topic, batch(b"second")).base_offset == 1
        assert values(waiting.result()) == [b"second"]
    assert time.monotonic() - began < LONG_POLL_MS / 1000 / 2, "long before its time was over"


def test_a_topic_is_known_everywhere_as_soon_as_it_is_made(three_nodes: Cluster, raws: list[Raw]) -> None:
    for here, there in PAIRS:
        topic = create_topic(AdminClient(settings(three_nodes.nodes[here].address)), 3)
        assert produce(raws[there], topic, batch(b"x"), partition=2).error_code == Code.NONE
        found = metadata(three_nodes.nodes[there].address, topic).topics[0]
        assert (found.error_code, len(found.partitions)) == (Code.NONE, 3)


def test_without_acks_what_was_sent_is_written_also_if_the_client_goes(
    three_nodes: Cluster, admin: AdminClient, raws: list[Raw]
) -> None:
    """Kafka handles what it has received before it lets go of a connection, too. The topic is new to the node."""
    for node in three_nodes.nodes * 3:
        topic = create_topic(admin)
        with Raw(node.address) as leaving:
            leaving.send(produce_request(topic, batch(b"x"), acks=0), 12)
        until(partial(_has_records, raws[0], topic), "it is in the log", 10)


def _has_records(raw: Raw, topic: str) -> bool:
    return list_offset(raw, topic).offset > 0


def test_a_topic_that_is_deleted_is_deleted_everywhere(admin: AdminClient, raws: list[Raw]) -> None:
    topic = create_topic(admin)
    for raw in raws:
        assert produce(raw, topic, batch(b"x")).error_code == Code.NONE
    admin.delete_topics([topic])[topic].result(30)
    for raw in raws:
        assert produce(raw, topic, batch(b"x")).error_code == Code.UNKNOWN_TOPIC_OR_PARTITION
        assert fetch(raw, topic, 0).error_code == Code.UNKNOWN_TOPIC_OR_PARTITION


def test_a_batch_that_is_sent_again_to_another_node_is_not_doubled(admin: AdminClient, raws: list[Raw]) -> None:
    topic = create_topic(admin)
    for sequence in range(9):
        record = (None, b"%d" % sequence, (), 1_700_000_000_000)
        same = build_batch([record], producer_id=10**12, producer_epoch=0, base_sequence=sequence)
        for raw in raws:
            answer = produce(raw, topic, same)
            assert (answer.error_code, answer.base_offset) == (Code.NONE, sequence)
    assert list_offset(raws[0], topic).offset == 9


def test_leaders_and_their_epochs_agree(three_nodes: Cluster, admin: AdminClient, raws: list[Raw]) -> None:
    topic = create_topic(admin, 12)
    for partition in range(12):
        assert produce(raws[partition % 3], topic, batch(b"x"), partition).error_code == Code.NONE
    said = [metadata(node.address, topic) for node in three_nodes.nodes]
    leaders = [[(p.partition_index, p.leader_id, p.leader_epoch) for p in one.topics[0].partitions] for one in said]
    assert leaders[0] == leaders[1] == leaders[2]
    assert {leader for _, leader, _ in leaders[0]} == {0, 1, 2}, "each leads some"
    assert len({one.cluster_id for one in said}) == 1
    assert len({one.controller_id for one in said}) == 1
    asked = [OffsetForLeaderPartition(partition=p, leader_epoch=epoch) for p, _, epoch in leaders[0]]
    request = OffsetForLeaderEpochRequest(topics=[OffsetForLeaderTopic(topic=topic, partitions=asked)])
    for raw in raws:
        ends = raw.ask(request, OffsetForLeaderEpochResponse).topics[0].partitions
        assert [(e.error_code, e.partition, e.leader_epoch, e.end_offset) for e in ends] == [
            (Code.NONE, partition, epoch, 1) for partition, _, epoch in leaders[0]
        ]


def test_reads_never_go_back(admin: AdminClient, three_nodes: Cluster, raws: list[Raw]) -> None:
    """What was read on one node is there on every other one, while all nodes write."""
    topic = create_topic(admin)
    rounds = 200
    acked: list[int] = []

    def write() -> None:
        with ExitStack() as opened:
            writers = [opened.enter_context(Raw(node.address)) for node in three_nodes.nodes]
            for turn in range(rounds):
                acked.append(produce(writers[turn % 3], topic, batch(b"%d" % turn)).base_offset)

    with ThreadPoolExecutor() as threads:
        writing = threads.submit(write)
        seen = turn = 0
        while seen < rounds:
            turn += 1
            before = len(acked)
            found = values(fetch(raws[turn % 3], topic, seen, max_wait_ms=turn % 2 * 1000))
            assert found or seen >= before, "what was acked before is not denied"
            assert found == [b"%d" % number for number in range(seen, seen + len(found))]
            seen += len(found)
            for raw in raws:
                assert list_offset(raw, topic).offset >= max(seen, before)
                if seen:
                    assert values(fetch(raw, topic, seen - 1))[0] == b"%d" % (seen - 1)
        writing.result()
    assert acked == list(range(rounds))
