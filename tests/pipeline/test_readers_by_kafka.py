"""Kafka consumers that read a partition from the start over and over, on real nodes, while jobs move it about."""

from __future__ import annotations

import asyncio
import functools
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest
from confluent_kafka import OFFSET_BEGINNING, Consumer, KafkaError, Producer, TopicPartition
from confluent_kafka.admin import AdminClient

from catena.config import Settings
from catena.types import Offset
from tests.clients.conftest import create_topic, running
from tests.clients.conftest import settings as client_settings
from tests.clients.nodes import Cluster
from tests.clients.waiting import PATIENCE_S
from tests.pipeline.real_stores import (
    DEADLINE_MS,
    MERGING,
    POSTGRES,
    SINGLES,
    SQLITE,
    check_sound,
    make_settings,
    open_driver,
    value_of,
)

pytestmark = [pytest.mark.long, pytest.mark.timeout(600)]

ROUNDS = 80
ROUND = 3
KEPT = 60
CONSUMERS = 3
POLL_S = 0.5


@pytest.fixture
def settings(kind: str, tmp_path: Path, request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> Settings:
    return make_settings(kind, tmp_path / "nodes" / "data", request, monkeypatch)


@pytest.fixture
def nodes(kind: str, settings: Settings, tmp_path: Path) -> Iterator[Cluster]:
    environment = {"CATENA_DISKLESS__WRITER__COMMIT_DEADLINE_MS": str(DEADLINE_MS)}
    if kind == POSTGRES:
        environment |= {"CATENA_META": settings.meta, "CATENA_OBJECTS": settings.objects}
    folder = tmp_path / "nodes"
    folder.mkdir(exist_ok=True)
    yield from running(Cluster(3 if kind == POSTGRES else 1, folder, environment))


class Story:
    def __init__(self, bootstrap: str) -> None:
        self.bootstrap = bootstrap
        self.topic = create_topic(AdminClient(client_settings(bootstrap)))
        self.acked: Offset = 0
        self.trimming: Offset = 0
        self.is_over = False
        self._producer = Producer(client_settings(bootstrap, enable_idempotence=True, linger_ms=0))

    def write(self, count: int) -> None:
        faults: list[KafkaError] = []
        for number in range(self.acked, self.acked + count):
            self._producer.produce(
                self.topic,
                value_of(self.topic, number).encode(),
                partition=0,
                on_delivery=lambda fault, _: faults.append(fault) if fault is not None else None,
            )
        assert self._producer.flush(PATIENCE_S) == 0
        assert faults == []
        self.acked += count

    def trim(self, start: Offset) -> None:
        self.trimming = start
        admin = AdminClient(client_settings(self.bootstrap))
        for future in admin.delete_records([TopicPartition(self.topic, 0, start)]).values():
            future.result(PATIENCE_S)


def hammer(story: Story) -> int:
    """Whole rounds, in a thread."""
    rounds = 0
    config = client_settings(
        story.bootstrap,
        group_id=f"nobody-{id(story)}",
        enable_auto_commit=False,
        auto_offset_reset="earliest",
        fetch_message_max_bytes=2000,
    )
    with closing(Consumer(config)) as consumer:
        while not story.is_over or rounds == 0:
            end = story.acked
            consumer.assign([TopicPartition(story.topic, 0, OFFSET_BEGINNING)])
            following = read_to(consumer, story, end)
            assert following >= end
            rounds += 1
    return rounds


def read_to(consumer: Consumer, story: Story, end: Offset) -> Offset:
    """The offset after the last record that was read."""
    following: Offset | None = None
    in_vain = 0
    while following is None or following < end:
        message = consumer.poll(POLL_S)
        if message is None:
            in_vain += 1
            assert in_vain * POLL_S < PATIENCE_S, f"nothing comes after {following}, and {end} are there"
            continue
        in_vain = 0
        assert message.error() is None, message.error()
        offset = message.offset()
        assert offset is not None
        if following is None:
            assert offset <= story.trimming
        elif offset != following:
            assert following < offset <= story.trimming, "only what was trimmed is left out"
        assert message.value() == value_of(story.topic, offset).encode()
        following = offset + 1
    return following


@pytest.mark.parametrize("kind", [SQLITE, POSTGRES])
async def test_consumers_see_every_offset_once_and_never_an_error(settings: Settings, nodes: Cluster) -> None:
    story = Story(nodes.bootstrap)
    story.write(ROUND)
    async with open_driver(settings) as driver, asyncio.TaskGroup() as group:
        consumers = [group.create_task(asyncio.to_thread(hammer, story)) for _ in range(CONSUMERS)]
        deleted = merged = dropped = 0
        try:
            for number in range(ROUNDS):
                await asyncio.to_thread(story.write, ROUND)
                [report] = await driver.tier(MERGING if number % 2 else SINGLES)
                assert report.outcome in ("tiered", "idle"), report
                merged, dropped = merged + report.merged, dropped + report.dropped
                if story.acked - story.trimming > KEPT:
                    await asyncio.to_thread(functools.partial(story.trim, story.acked - KEPT // 2))
                vacuumed = await driver.vacuum()
                assert vacuumed.failed == 0
                deleted += vacuumed.deleted.objects
        finally:
            story.is_over = True
    assert min(consumer.result() for consumer in consumers) > 1
    assert min(deleted, merged, dropped) > 0
    await check_sound(settings)
