"""What clients see of a node whose meta store was restored from a backup: all that it knows, and a clear no."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from confluent_kafka import Consumer, KafkaError, KafkaException, Producer, TopicPartition
from confluent_kafka.admin import AdminClient
from confluent_kafka.cimpl import NewTopic

from tests.backups import copy_sqlite
from tests.clients.clients import CLIENTS, NONE, Client, Rec
from tests.clients.conftest import Setting, create_topic, fresh, settings
from tests.clients.kafka_python import KafkaProducer
from tests.clients.members import LibrdkafkaMember, wait_while_polling
from tests.clients.nodes import Cluster
from tests.clients.waiting import PATIENCE_S

KEPT, LOST, NEW = ([b"%s %d" % (word, number) for number in range(5)] for word in (b"kept", b"lost", b"new"))
POLICY_VIOLATION = 44


class Restored:
    """One node that was killed twice: a while after the backup was made, and again as soon as it had written more."""

    def __init__(self, folder: Path) -> None:
        # Sessions are short, so that whoever was killed is soon followed.
        self.cluster = Cluster(1, folder, {"CATENA_CLUSTER__SESSION_TTL_MS": "1000"})
        (self.node,) = self.cluster.nodes
        self.data = folder / "data"

    def restore(self) -> None:
        self.start()
        self.topic = create_topic(AdminClient(settings(self.node.address)))
        self.write(KEPT)
        copy_sqlite(self.data / "meta.db", self.data / "backup")
        self.node.kill()
        self.start()
        self.write(LOST)
        self.node.kill()
        copy_sqlite(self.data / "backup", self.data / "meta.db")
        self.start()

    def start(self) -> None:
        self.node.launch()
        self.node.wait_until_ready()

    def write(self, values: list[bytes]) -> None:
        CLIENTS[0].write(self.node.address, self.topic, [Rec(0, None, value) for value in values], NONE)

    def delivery(self, **config: Setting) -> int | None:
        producer = Producer(settings(self.node.address, **config))
        faults: list[KafkaError | None] = []
        producer.produce(self.topic, b"more", on_delivery=lambda fault, _: faults.append(fault))
        assert producer.flush(PATIENCE_S) == 0
        return None if faults[0] is None else faults[0].code()

    def command(self, *arguments: str) -> tuple[int, object]:
        ran = subprocess.run(
            [sys.executable, "-m", "catena.cli", "--data", str(self.data), *arguments, "--json"],
            check=False,
            capture_output=True,
            env={name: value for name, value in os.environ.items() if not name.startswith("CATENA_")},
            timeout=PATIENCE_S,
        )
        return ran.returncode, json.loads(ran.stdout)


@pytest.fixture(scope="module")
def restored(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Restored]:
    """A node was killed before it could raise anything by and by: that it had started is what tells."""
    found = Restored(tmp_path_factory.mktemp("restored"))
    try:
        found.restore()
        yield found
    finally:
        code = found.node.end()
    assert code == 0


@pytest.mark.parametrize("client", CLIENTS, ids=lambda client: client.name)
def test_what_is_known_can_be_read(restored: Restored, client: Client) -> None:
    found = client.read(restored.node.address, restored.topic, [0], len(KEPT))
    assert [(rec.offset, rec.value) for rec in found] == list(enumerate(KEPT))


def test_a_producer_is_refused_at_once_and_not_kept_waiting(restored: Restored) -> None:
    assert restored.delivery() == POLICY_VIOLATION


def test_an_idempotent_one_too_within_its_own_time(restored: Restored) -> None:
    """It gets no id, says so in its log, and asks again until it gives its records up: they are reported as lost."""
    assert restored.delivery(enable_idempotence=True, message_timeout_ms=3000) == KafkaError._MSG_TIMED_OUT


def test_the_reason_is_told_where_there_is_a_place_for_it(restored: Restored) -> None:
    producer = KafkaProducer(bootstrap_servers=restored.node.address, enable_idempotence=False)
    with pytest.raises(Exception, match="the meta store was set back"):
        producer.send(restored.topic, b"more").get(PATIENCE_S)
    producer.close()
    admin = AdminClient(settings(restored.node.address))
    for future in admin.create_topics([NewTopic(fresh("topic"), 1, 1)]).values():
        with pytest.raises(KafkaException, match="`catena doctor` says how"):
            future.result(PATIENCE_S)


def test_groups_are_told_and_do_not_wait_in_silence(restored: Restored) -> None:
    member = LibrdkafkaMember(restored.node.address, fresh("group"), restored.topic)
    wait_while_polling([member], lambda: bool(member.errors), "it is told")
    assert member.errors[0].code() == POLICY_VIOLATION
    member.close()
    consumer = Consumer(settings(restored.node.address, group_id=fresh("group"), enable_auto_commit=False))
    with pytest.raises(KafkaException, match="POLICY_VIOLATION"):
        consumer.commit(offsets=[TopicPartition(restored.topic, 0, 3)], asynchronous=False)
    consumer.close()


def test_the_loss_is_accepted_and_writing_goes_on(restored: Restored) -> None:
    code, report = restored.command("doctor")
    assert isinstance(report, list)
    assert (code, report[-1]["check"], report[-1]["status"]) == (3, "history", "fail")
    assert restored.command("doctor", "--accept-older-meta", "--yes")[0] == 0
    assert restored.delivery() == POLICY_VIOLATION, "this node has to be started again"
    assert restored.node.end() == 0
    restored.start()
    restored.write(NEW)
    found = CLIENTS[0].read(restored.node.address, restored.topic, [0], len(KEPT + NEW))
    assert [(rec.offset, rec.value) for rec in found] == list(enumerate(KEPT + NEW))
