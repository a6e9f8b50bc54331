"""What Catena does not have yet says so, to each client, at once: nobody waits for a time-out to learn it."""

from __future__ import annotations

import asyncio
import shutil
import subprocess
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytest
from aiokafka import AIOKafkaProducer  # type: ignore[import-untyped]
from aiokafka.errors import TransactionalIdAuthorizationFailed  # type: ignore[import-untyped]
from confluent_kafka import KafkaError, KafkaException, Producer
from confluent_kafka.admin import AdminClient

from tests.clients.conftest import fresh, settings
from tests.clients.kafka_python import KafkaAdminClient, KafkaProducer, kafka
from tests.clients.nodes import Cluster

AT_ONCE_S = 10.0
"""All of these clients would try for 30 s and more if they thought that it might work later."""
REMEDY = "transactions are not supported here yet"


@contextmanager
def at_once() -> Iterator[None]:
    began = time.monotonic()
    yield
    assert time.monotonic() - began < AT_ONCE_S


class TestTransactions:
    def test_librdkafka(self, cluster: Cluster) -> None:
        producer = Producer(settings(cluster.bootstrap, transactional_id=fresh("id")))
        with at_once(), pytest.raises(KafkaException, match=REMEDY) as fault:
            producer.init_transactions(60)
        assert fault.value.args[0].fatal()

    def test_kafka_python(self, cluster: Cluster) -> None:
        producer = KafkaProducer(bootstrap_servers=cluster.bootstrap.split(","), transactional_id=fresh("id"))
        with at_once(), pytest.raises(kafka.errors.TransactionalIdAuthorizationFailedError):
            producer.init_transactions()
        producer.close(timeout=0)

    async def test_aiokafka(self, cluster: Cluster) -> None:
        producer = AIOKafkaProducer(bootstrap_servers=cluster.bootstrap, transactional_id=fresh("id"))
        with at_once(), pytest.raises(TransactionalIdAuthorizationFailed):
            async with asyncio.timeout(60):
                await producer.start()
        await producer.stop()

    @pytest.mark.skipif(shutil.which("kcat") is None, reason="no kcat on this machine: it is Debian's package kcat")
    def test_kcat(self, cluster: Cluster, topic: str) -> None:
        command = ["kcat", "-b", cluster.bootstrap, "-P", "-t", topic, "-X", "transactional.id=x"]
        with at_once():
            ran = subprocess.run(command, input=b"x\n", capture_output=True, timeout=60, check=False)
        assert ran.returncode == 1
        assert REMEDY in ran.stderr.decode()


class TestAdmin:
    def test_librdkafka(self, cluster: Cluster) -> None:
        admin = AdminClient(settings(cluster.bootstrap))
        asked = admin.describe_user_scram_credentials(["me"])
        assert isinstance(asked, dict)
        with at_once(), pytest.raises(KafkaException) as fault:
            asked["me"].result(60)
        assert fault.value.args[0].code() == KafkaError._UNSUPPORTED_FEATURE

    @pytest.mark.parametrize("name", ["list_partition_reassignments", "describe_metadata_quorum", "list_transactions"])
    def test_kafka_python(self, cluster: Cluster, name: str) -> None:
        admin: Any = KafkaAdminClient(bootstrap_servers=cluster.bootstrap.split(","))
        with at_once(), pytest.raises(kafka.errors.KafkaError, match=r"(?i)support|version"):
            getattr(admin, name)()
        admin.close()
