"""Nodes are killed and paused under load: nothing acked is lost, doubled or moved, no committed offset goes back, and
nobody waits for longer than a session lasts and a little more."""

from __future__ import annotations

import random
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, ExitStack, closing, contextmanager
from pathlib import Path

import pytest
from confluent_kafka import KafkaException
from confluent_kafka.admin import AdminClient

from catena.wire.codes import Code
from tests.clients.conftest import SESSION_TTL_MS, create_topic, fresh, settings
from tests.clients.load import CLIENT_TIMEOUT_MS, PARTITIONS, Load
from tests.clients.members import LibrdkafkaMember, wait_until_read, wait_until_shared
from tests.clients.nodes import Cluster, Node
from tests.clients.proxy import Proxy
from tests.clients.raw import (
    Raw,
    commit,
    commit_answer,
    commit_request,
    committed,
    committed_answer,
    committed_request,
    coordinator,
    metadata,
)
from tests.clients.waiting import PATIENCE_S, until

pytestmark = pytest.mark.alone

SESSION_S = SESSION_TTL_MS / 1000
CUTS = 10
WATCH_S = 6.0
"""How long a coordinator that woke up is watched: two of its sessions."""
NOT_NOW = (Code.NOT_COORDINATOR, Code.COORDINATOR_LOAD_IN_PROGRESS, Code.COORDINATOR_NOT_AVAILABLE)


@pytest.fixture
def admin(killable_nodes: Cluster) -> AdminClient:
    return AdminClient(settings(killable_nodes.bootstrap))


@contextmanager
def dead(cluster: Cluster, *nodes: Node) -> Iterator[None]:
    """Killed at the start, back at the end."""
    for node in nodes:
        node.kill()
    try:
        yield
    finally:
        for node in nodes:
            node.launch()
        for node in nodes:
            node.wait_until_ready()
        cluster.wait_until_listed(cluster.nodes)


@contextmanager
def asleep(cluster: Cluster, node: Node) -> Iterator[None]:
    """Paused for longer than its session lasts."""
    node.pause()
    try:
        cluster.wait_until_listed(cluster.others(node))
        yield
    finally:
        node.resume()
        cluster.wait_until_listed(cluster.nodes)


def group_of(cluster: Cluster, node: Node) -> str:
    """The name of a group that this node coordinates."""
    names = (fresh("group") for _ in range(1000))
    return next(name for name in names if coordinator(cluster.nodes[0].address, name) == node.node_id)


def test_a_kill_under_load_is_a_short_gap(killable_nodes: Cluster, admin: AdminClient) -> None:
    load = Load(killable_nodes.bootstrap, create_topic(admin, PARTITIONS))
    load.write_for(1, 200)
    leaders = [p.leader_id for p in metadata(killable_nodes.nodes[0].address, load.topic).topics[0].partitions]
    with dead(killable_nodes, killable_nodes.nodes[leaders[0]]):
        load.write_for(SESSION_S + 6, 1500)
    load.write_for(1, 200)
    load.finish()
    # Its session, then a second until the others look, and one until the client does; as much again for a busy machine.
    assert load.longest_gap() <= SESSION_S + 4
    load.check(killable_nodes.bootstrap)


def kill_at_random(cluster: Cluster, admin: AdminClient, records: int, kills: int, seed: int) -> None:
    chance = random.Random(seed)
    load = Load(cluster.bootstrap, create_topic(admin, PARTITIONS))
    for _ in range(kills):
        load.write_for(chance.uniform(0.1, 1), records // kills // 2)
        # One or two of three; the last one goes on alone.
        with dead(cluster, *chance.sample(cluster.nodes, chance.choice((1, 1, 2)))):
            load.write_for(chance.uniform(0.1, SESSION_S), records // kills // 2)
    load.write(records - load.sent)
    load.finish()
    load.check(cluster.bootstrap)


def test_what_was_acked_through_kills_is_there_once_and_in_order(killable_nodes: Cluster, admin: AdminClient) -> None:
    kill_at_random(killable_nodes, admin, records=10_000, kills=2, seed=1)


@pytest.mark.long
@pytest.mark.timeout(900)
@pytest.mark.parametrize("seed", [2, 3, 4])
def test_a_long_run_through_kills(killable_nodes: Cluster, admin: AdminClient, seed: int) -> None:
    kill_at_random(killable_nodes, admin, records=100_000, kills=12, seed=seed)


@pytest.mark.parametrize("protocol", ["classic", "consumer"])
@pytest.mark.parametrize("how", [dead, asleep], ids=["killed", "paused"])
def test_a_group_goes_on_without_its_coordinator(
    killable_nodes: Cluster,
    admin: AdminClient,
    how: Callable[[Cluster, Node], AbstractContextManager[None]],
    protocol: str,
) -> None:
    """And without a rebalance: the new coordinator knows its members."""
    load = Load(killable_nodes.bootstrap, create_topic(admin, PARTITIONS))
    victim = killable_nodes.nodes[1]
    group = group_of(killable_nodes, victim)
    config: dict[str, str | int] = {"group_protocol": protocol, "socket_timeout_ms": CLIENT_TIMEOUT_MS}
    config |= {"enable_auto_commit": False}
    if protocol == "classic":
        config |= {"session_timeout_ms": 30_000, "heartbeat_interval_ms": 500}
    members = [LibrdkafkaMember(killable_nodes.bootstrap, group, load.topic, **config) for _ in range(2)]
    with closing(members[0]), closing(members[1]):
        wait_until_shared(members, [3, 3])
        load.write(600)
        wait_until_read(members, places(100))
        commit_all(members)
        revoked = [list(member.revoked) for member in members]
        with how(killable_nodes, victim):
            load.write(600)
            wait_until_read(members, places(200))
            commit_all(members)
        load.write(600)
        wait_until_read(members, places(300))
        commit_all(members)
        assert [member.revoked for member in members] == revoked
        assert sorted(place for member in members for place in member.read) == sorted(places(300)), "each record once"
    load.finish()
    found = until(lambda: stored(killable_nodes, group, load.topic), "its coordinator says what is committed")
    assert found == 300


def commit_all(members: Sequence[LibrdkafkaMember]) -> None:
    """What each has read; again and again until it is taken."""
    for member in members:

        def taken(member: LibrdkafkaMember = member) -> bool:
            try:
                member.poll()
                member.consumer.commit(asynchronous=False)
            except KafkaException:
                return False
            return True

        until(taken, "commits are taken")


def stored(cluster: Cluster, group: str, topic: str) -> int | None:
    """The committed offset of partition 0, from whoever coordinates the group."""
    for node in cluster.nodes:
        with Raw(node.address) as raw:
            said = committed(raw, group, topic)
        if not isinstance(said, Code):
            return said
    return None


def places(count: int) -> set[tuple[int, int]]:
    return {(partition, offset) for partition in range(PARTITIONS) for offset in range(count)}


def test_a_coordinator_that_was_paused_moves_no_offset_back(killable_nodes: Cluster, admin: AdminClient) -> None:
    topic = create_topic(admin)
    sleeper = killable_nodes.nodes[2]
    awake = killable_nodes.others(sleeper)
    group, other = group_of(killable_nodes, sleeper), group_of(killable_nodes, sleeper)
    with ExitStack() as opened:
        raws = {node: opened.enter_context(Raw(node.address)) for node in killable_nodes.nodes}
        late, late_too = [opened.enter_context(Raw(sleeper.address)) for _ in range(2)]
        for one in (group, other):
            assert commit(raws[sleeper], one, topic, 10) == Code.NONE
        sleeper.pause()
        opened.callback(killable_nodes.wait_until_listed, killable_nodes.nodes)
        opened.callback(sleeper.resume)
        # These lie unread at the old coordinator when the new one takes over.
        late.send(commit_request(group, topic, 11), 9)
        late_too.send(committed_request(other, topic), 9)
        killable_nodes.wait_until_listed(awake)
        successor = killable_nodes.nodes[coordinator(awake[0].address, group)]
        assert committed(raws[successor], group, topic) == 10
        assert commit(raws[successor], group, topic, 20) == Code.NONE
        assert commit(raws[killable_nodes.nodes[coordinator(awake[0].address, other)]], other, topic, 20) == Code.NONE
        sleeper.resume()
        assert committed_answer(late_too) in (20, *NOT_NOW)
        assert commit_answer(late) in NOT_NOW
        watch(raws, group, topic, 20)
        killable_nodes.wait_until_listed(killable_nodes.nodes)
        assert coordinator(awake[0].address, group) == sleeper.node_id
        until(lambda: commit(raws[sleeper], group, topic, 30) == Code.NONE, "it coordinates the group again")
        assert commit(raws[successor], group, topic, 15) in NOT_NOW
        watch(raws, group, topic, 30, seconds=1)


def watch(raws: dict[Node, Raw], group: str, topic: str, offset: int, seconds: float = WATCH_S) -> None:
    """For so long every node says this offset, or that it is not the one to ask."""
    deadline = time.monotonic() + seconds
    said: set[int | Code] = set()
    while time.monotonic() < deadline:
        said |= {committed(raw, group, topic) for raw in raws.values()}
    assert offset in said
    assert said <= {offset, *NOT_NOW}


def test_a_node_that_is_told_to_end_is_hardly_noticed(killable_nodes: Cluster, admin: AdminClient) -> None:
    """It leaves the cluster first, so that others take over before it is gone."""
    load = Load(killable_nodes.bootstrap, create_topic(admin, PARTITIONS))
    load.write_for(1, 200)
    node = killable_nodes.nodes[0]
    node.ask_to_end()
    load.write_for(2, 400)
    assert node.end() == 0
    node.launch()
    node.wait_until_ready()
    killable_nodes.wait_until_listed(killable_nodes.nodes)
    load.write_for(1, 200)
    load.finish()
    assert load.longest_gap() < SESSION_S
    load.check(killable_nodes.bootstrap)


def test_answers_that_get_lost_double_nothing(tmp_path: Path) -> None:
    """The node writes, the client does not hear of it and writes again: there is one copy."""
    with Proxy() as proxy:
        cluster = Cluster(1, tmp_path, {}, proxy.listener)
        try:
            cluster.start()
            topic = create_topic(AdminClient(settings(cluster.bootstrap)), PARTITIONS)
            load = Load(proxy.address, topic, reconnect_max_ms=100)
            for _ in range(CUTS):
                load.write(200)
                # Then it is connected, and the next answer is to what it writes next.
                load.wait_until_acked()
                proxy.lose_answers()
                load.write(200)
                proxy.hang_up(PATIENCE_S)
            load.finish()
            load.check(cluster.bootstrap)
        finally:
            codes = cluster.end()
    assert codes == [0]
