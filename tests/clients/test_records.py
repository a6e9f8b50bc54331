"""What one client writes every client reads: keys, values, nulls, headers, timestamps, order, in every compression."""

from __future__ import annotations

from functools import cache

import pytest
from confluent_kafka import Consumer, TopicPartition
from confluent_kafka.admin import AdminClient

from tests.clients.clients import ACKS, CLIENTS, COMPRESSIONS, Client, Rec
from tests.clients.conftest import create_topic, fresh, settings
from tests.clients.nodes import Cluster
from tests.clients.waiting import until

START_MS = 1_700_000_000_000
NAMES = [client.name for client in CLIENTS]


def written(client: Client, partition: int) -> list[Rec]:
    """Enough in each partition to be worth compressing."""
    stamp = START_MS if client.can_stamp else -1
    plain = [
        Rec(partition, b"key-%d" % n, b"value-%d " % n * 20, (), stamp + n if stamp > 0 else -1) for n in range(20)
    ]
    headers: tuple[tuple[str, bytes | None], ...] = (("trace", b"1-2"), ("empty", b""), ("trace", "again é".encode()))
    if client.can_null_headers:
        headers += (("null", None),)
    odd = [
        Rec(partition, b"tombstone", None, (), stamp + 30 if stamp > 0 else -1),
        Rec(partition, None, b"no key", (), stamp + 29 if stamp > 0 else -1),
    ]
    return [*plain, *odd, Rec(partition, b"with headers", b"v", headers, stamp + 31 if stamp > 0 else -1)]


@cache
def topic_written_by(client: Client, cluster: Cluster) -> str:
    """One partition for each compression. Written once, for all who read it."""
    topic = create_topic(AdminClient(settings(cluster.bootstrap)), len(COMPRESSIONS))
    for partition, compression in enumerate(COMPRESSIONS):
        if compression in client.compressions:
            client.write(cluster.bootstrap, topic, written(client, partition), compression)
    return topic


@pytest.mark.parametrize("reader", CLIENTS, ids=NAMES)
@pytest.mark.parametrize("writer", CLIENTS, ids=NAMES)
def test_what_one_writes_another_reads(cluster: Cluster, writer: Client, reader: Client) -> None:
    topic = topic_written_by(writer, cluster)
    partitions = [
        number
        for number, compression in enumerate(COMPRESSIONS)
        if compression in writer.compressions and compression in reader.compressions
    ]
    expected = {partition: written(writer, partition) for partition in partitions}
    read = reader.read(cluster.bootstrap, topic, partitions, sum(map(len, expected.values())))
    for partition in partitions:
        got = [rec for rec in read if rec.partition == partition]
        assert [rec.offset for rec in got] == list(range(len(got)))
        if not writer.can_stamp:
            assert all(rec.timestamp > START_MS for rec in got), "the time of writing"
            got = [rec._replace(timestamp=-1) for rec in got]
        assert [rec._replace(offset=-1) for rec in got] == expected[partition]


def test_no_client_lacks_a_compression() -> None:
    lacking = [
        f"{client.name} {name}" for client in CLIENTS for name in COMPRESSIONS if name not in client.compressions
    ]
    if lacking == ["kafka-python snappy"]:
        pytest.skip("kafka-python writes and reads no snappy here: it wants the package python-snappy")
    assert lacking == []


@pytest.mark.parametrize("acks", ACKS)
@pytest.mark.parametrize("client", CLIENTS, ids=NAMES)
def test_acks(cluster: Cluster, topic: str, client: Client, acks: str) -> None:
    records = [Rec(n % 2, b"%d" % n, b"value") for n in range(50)]
    client.write(cluster.bootstrap, topic, records, "none", acks)
    with_watermarks = Consumer(settings(cluster.bootstrap, group_id=fresh("watermarks")))
    ends = [TopicPartition(topic, 0), TopicPartition(topic, 1)]
    try:
        # Without acks nobody says when they are there.
        until(
            lambda: [with_watermarks.get_watermark_offsets(end, 10) for end in ends] == [(0, 25), (0, 25)],
            "all records are in the log",
        )
    finally:
        with_watermarks.close()
    read = client.read(cluster.bootstrap, topic, [0, 1], 50)
    assert sorted((rec.partition, rec.offset, rec.key) for rec in read) == [
        (partition, offset, b"%d" % (2 * offset + partition)) for partition in (0, 1) for offset in range(25)
    ]
