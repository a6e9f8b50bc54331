"""Processes that share a tail folder: a reader is told by writers, and goes to the stores whatever becomes of them."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from itertools import count
from pathlib import Path

import pytest
from confluent_kafka.admin import AdminClient

from catena.formats.records import build_batch
from catena.loglets.diskless.tail_listener import TICK_S
from catena.loglets.diskless.tail_publisher import LOOK_S
from catena.loglets.diskless.tail_sharing import TRUST_S
from catena.testing.postgres_server import PostgresServer
from catena.testing.s3_server import SeaweedServer
from catena.wire.apis import APIS
from catena.wire.messages.fetch import FetchPartition, FetchRequest, FetchResponse, FetchTopic
from tests.clients.conftest import create_topic, settings, three_node_settings
from tests.clients.load import PARTITIONS, Load
from tests.clients.nodes import Cluster, Node
from tests.clients.raw import Raw, fetch, produce
from tests.clients.split import Follower, counters, records_of, split_cluster
from tests.clients.waiting import until

FETCH = APIS[1]
CHAIN_S = 5.0
"""How often a reader looks at the chain."""
ROLES = ("write", "write", "read")


@pytest.fixture(scope="module")
def split(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    """Two writers and a reader. Who kills a node starts it again."""
    with split_cluster(tmp_path_factory.mktemp("hot"), ROLES) as cluster:
        yield cluster


def new_topic(cluster: Cluster, partitions: int) -> str:
    return create_topic(AdminClient(settings(cluster.bootstrap)), partitions)


def long_poll(topic: str, offset: int) -> FetchRequest:
    asked = FetchPartition(fetch_offset=offset, partition_max_bytes=1 << 20)
    return FetchRequest(
        max_wait_ms=10_000, min_bytes=1, max_bytes=1 << 20, topics=[FetchTopic(topic=topic, partitions=[asked])]
    )


def test_hot_long_polls_do_not_touch_the_stores(split: Cluster) -> None:
    poll_hot(split, split.nodes[0], split.nodes[2])


@pytest.mark.long
def test_nor_do_they_where_the_stores_are_servers(
    tmp_path: Path, postgres_server: PostgresServer, s3_server: SeaweedServer
) -> None:
    stores = three_node_settings("hot_tail", postgres_server, s3_server)
    with split_cluster(tmp_path, ("write", "read"), stores) as cluster:
        poll_hot(cluster, *cluster.nodes)


def poll_hot(cluster: Cluster, writer: Node, reader: Node) -> None:
    topic = new_topic(cluster, 1)
    polls, numbers = 300, count()
    with Raw(writer.address) as producing, Raw(reader.address) as polling:

        def poll() -> float:
            """How long it took."""
            number, began = next(numbers), time.monotonic()
            polling.send(long_poll(topic, number), 12)
            assert produce(producing, topic, build_batch([(None, b"%d" % number, (), 0)])).base_offset == number
            part = polling.receive(FETCH, FetchResponse, 12).responses[0].partitions[0]
            assert records_of(part) == [(number, b"%d" % number)]
            return time.monotonic() - began

        # Each looks for the other's file now and then; until they know each other the store is read.
        met = time.monotonic() + 4 * max(TICK_S, LOOK_S)
        while time.monotonic() < met:
            poll()
        until(lambda: _objects_read(reader, poll) == 0, "reader and writer know each other")
        before = counters(reader)
        took_s = [poll() for _ in range(polls)]
    after, seconds = counters(reader), sum(took_s)
    # A process that stood still for so long that it was not trusted any more: then the store is asked, as it has to be.
    slow = sum(each > TRUST_S / 4 for each in took_s)
    assert after.objects - before.objects <= 2 * slow
    # The chain and the tail every 5 s, however many polls there are, and a few things that have to do with no log.
    records, scans = 2 * (seconds / CHAIN_S + 1) + seconds / 5 + 2, 4 * (seconds + 1)
    assert after.records - before.records <= records + 4 * slow
    assert after.scans - before.scans <= scans + 4 * slow
    assert slow or (records < polls / 10 and scans < polls / 2), "or this proves nothing"


def _objects_read(reader: Node, poll: Callable[[], float]) -> int:
    before = counters(reader).objects
    for _ in range(10):
        poll()
    return counters(reader).objects - before


def test_what_is_acked_is_not_denied_at_another_node(split: Cluster) -> None:
    """By fetches that do not wait: the reader may have been told of the record before, and not of this one yet."""
    topic = new_topic(split, 1)
    *writers, reader = split.nodes
    with Raw(writers[0].address) as one, Raw(writers[1].address) as two, Raw(reader.address) as reading:
        for number in range(200):
            value = b"%d" % number
            writer = (one, two)[number % 3 == 0]
            assert produce(writer, topic, build_batch([(None, value, (), 0)])).base_offset == number
            assert records_of(fetch(reading, topic, number, max_wait_ms=0)) == [(number, value)]


def follow_through(split: Cluster, trouble: Callable[[Cluster, Load], None]) -> None:
    """What followers of all partitions at the reader have seen equals what was acked, whatever happened meanwhile."""
    topic = new_topic(split, PARTITIONS)
    load = Load(split.bootstrap, topic)
    load.write_for(0.5, 300)
    followers = [Follower(split.nodes[2], topic, partition) for partition in range(PARTITIONS)]
    load.write_for(1, 500)
    trouble(split, load)
    load.finish()
    for partition, follower in enumerate(followers):
        follower.wait_for(len(load.acked[partition]))
        follower.end()
        found = [(offset, int(value)) for offset, value in follower.found]
        assert found == load.acked[partition], "each once, in order, where its ack said"
    load.check(split.bootstrap)


def kill_a_writer(split: Cluster, load: Load) -> None:
    writer = split.nodes[0]
    writer.kill()
    load.write_for(1, 500)
    split.wait_until_listed(split.nodes[1:])
    load.write_for(0.5, 300)
    writer.launch()
    writer.wait_until_ready()
    split.wait_until_listed(split.nodes)
    load.write_for(1, 500)


def test_a_writer_that_is_killed(split: Cluster) -> None:
    follow_through(split, kill_a_writer)


def paused(node: Node, seconds: float, load: Load, records: int) -> None:
    node.pause()
    try:
        load.write_for(seconds, records)
    finally:
        node.resume()


@pytest.mark.long
@pytest.mark.parametrize("number", [0, 2], ids=["writer", "reader"])
def test_a_node_that_is_stopped_for_a_while(split: Cluster, number: int) -> None:
    def pause(split: Cluster, load: Load) -> None:
        for seconds in (0.5, 2.0):
            paused(split.nodes[number], seconds, load, 500)
            load.write_for(1, 500)

    follow_through(split, pause)


@pytest.mark.long
def test_a_reader_that_falls_behind_the_ring(tmp_path: Path) -> None:
    small = {"CATENA_DISKLESS__TAIL_RING_BYTES": str(1 << 20)}
    with split_cluster(tmp_path, ("write", "read"), small) as cluster:
        writer, reader = cluster.nodes
        topic = new_topic(cluster, 1)
        follower = Follower(reader, topic)
        sent: list[tuple[int, bytes]] = []
        with Raw(writer.address) as producing:
            for _ in range(5):
                for pause in (False, True):
                    if pause:
                        reader.pause()
                    for _ in range(40):
                        value = b"%d " % len(sent) + b"x" * 100_000
                        answer = produce(producing, topic, build_batch([(None, value, (), 0)]))
                        assert (answer.error_code, answer.base_offset) == (0, len(sent))
                        sent.append((len(sent), value))
                    reader.resume()
            follower.wait_for(len(sent))
        follower.end()
        assert follower.found == sent


@pytest.mark.long
@pytest.mark.timeout(300)
def test_writers_that_are_killed_again_and_again(split: Cluster) -> None:
    def kill(split: Cluster, load: Load) -> None:
        for _ in range(4):
            kill_a_writer(split, load)

    follow_through(split, kill)
