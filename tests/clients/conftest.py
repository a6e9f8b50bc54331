"""The clusters that clients are tried with: one embedded node, and three nodes on PostgreSQL and SeaweedFS.

Each is started once a run; tests keep apart by names of topics and groups. Tests that kill or pause nodes have a
cluster of their own, which they leave as they found it.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from itertools import count
from typing import Literal

import asyncpg  # type: ignore[import-untyped]
import pytest
from confluent_kafka.admin import AdminClient
from confluent_kafka.cimpl import NewTopic

from catena.testing.postgres_server import PostgresServer
from catena.testing.s3_server import ACCESS_KEY, BUCKET, SECRET_KEY, SeaweedServer
from tests.clients.nodes import Cluster

Kind = Literal["one-node", "three-nodes"]
KINDS: tuple[Kind, ...] = ("one-node", "three-nodes")
SESSION_TTL_MS = 3000
"""Of the nodes that are killed and paused: as short as a busy machine allows."""

Setting = str | int | float | bool

_numbers = count()


def fresh(prefix: str) -> str:
    """A name that no other test has."""
    return f"{prefix}-{next(_numbers)}"


def settings(bootstrap: str, **config: Setting) -> dict[str, Setting]:
    """Of librdkafka, with _ for the dots. It logs nothing: nodes end before clients do, and are killed."""
    return {"bootstrap.servers": bootstrap, "log_level": 0, **{k.replace("_", "."): v for k, v in config.items()}}


def three_node_settings(name: str, postgres: PostgresServer, s3: SeaweedServer) -> dict[str, str]:
    """Of a cluster that shares its servers with others, but no data."""
    asyncio.run(_create_database(postgres.dsn, name))
    return {
        "CATENA_META": postgres.dsn.replace("/postgres?", f"/{name}?"),
        "CATENA_OBJECTS": f"s3://{BUCKET}/{name}?endpoint={s3.endpoint}&region=us-east-1&lists_as_tree=true",
        "AWS_ACCESS_KEY_ID": ACCESS_KEY,
        "AWS_SECRET_ACCESS_KEY": SECRET_KEY,
    }


async def _create_database(dsn: str, name: str) -> None:
    connection = await asyncpg.connect(dsn)
    try:
        await connection.execute(f"CREATE DATABASE {name}")
    finally:
        await connection.close()


def running(cluster: Cluster) -> Iterator[Cluster]:
    try:
        cluster.start()
        yield cluster
    finally:
        codes = cluster.end()
    assert codes == [0] * len(codes), [node.log[-3000:] for node in cluster.nodes]


@pytest.fixture(scope="session")
def one_node(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    yield from running(Cluster(1, tmp_path_factory.mktemp("one-node"), {}))


@pytest.fixture(scope="session")
def three_nodes(
    tmp_path_factory: pytest.TempPathFactory, postgres_server: PostgresServer, s3_server: SeaweedServer
) -> Iterator[Cluster]:
    settings = three_node_settings("three_nodes", postgres_server, s3_server)
    yield from running(Cluster(3, tmp_path_factory.mktemp("three-nodes"), settings))


@pytest.fixture(scope="session", params=KINDS)
def cluster(request: pytest.FixtureRequest) -> Cluster:
    """The same tests run on both."""
    name = {"one-node": "one_node", "three-nodes": "three_nodes"}[request.param]
    found: Cluster = request.getfixturevalue(name)
    return found


@pytest.fixture(scope="session")
def killable_nodes(
    tmp_path_factory: pytest.TempPathFactory, postgres_server: PostgresServer, s3_server: SeaweedServer
) -> Iterator[Cluster]:
    """Its sessions are short. Who kills or pauses a node starts or resumes it, and waits until all see it."""
    settings = three_node_settings("killable", postgres_server, s3_server)
    settings["CATENA_CLUSTER__SESSION_TTL_MS"] = str(SESSION_TTL_MS)
    yield from running(Cluster(3, tmp_path_factory.mktemp("killable"), settings))


@pytest.fixture
def admin(cluster: Cluster) -> AdminClient:
    return AdminClient(settings(cluster.bootstrap))


@pytest.fixture
def topic(admin: AdminClient) -> str:
    """A topic of this test's own, with 4 partitions."""
    return create_topic(admin, 4)


def create_topic(admin: AdminClient, partitions: int = 1, **configs: str) -> str:
    name = fresh("topic")
    new = NewTopic(name, partitions, 1, config={key.replace("_", "."): value for key, value in configs.items()})
    admin.create_topics([new])[name].result(30)
    return name
