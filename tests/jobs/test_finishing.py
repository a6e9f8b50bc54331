"""Writes that were begun are finished by a job, which opens what it needs and closes it again."""

from __future__ import annotations

from pathlib import Path

import msgspec

import catena
from catena import jobs
from catena.config import load
from catena.jobs.finishing import finish_writes_on
from catena.pipeline.settings import PipelineSettings, WritesSettings
from catena.runtime import SystemClock, SystemEntropy
from catena.source.adopting import Adopter, Written
from catena.virtual_log.intents import Intents
from tests.source.writes import store_blob


async def test_a_write_whose_driver_is_gone(tmp_path: Path) -> None:
    settings = load(data=str(tmp_path))
    settings = msgspec.structs.replace(settings, pipeline=PipelineSettings(writes=WritesSettings(finish_after_ms=0)))
    clock, entropy = SystemClock(), SystemEntropy()
    async with catena.open(tmp_path) as log:
        await log.create_topic("t")
        topic = await log.topic("t")
        blob = await store_blob(log.node.objects, clock, topic, {0: [["a", "b"], ["c"]]}, app="gone")
        body = await Adopter(log.node, entropy, "gone", 1 << 40)._body(Written({topic.topic_id: "t"}, [blob]))
        begun_ms = clock.now_ms()
        await Intents(log.node.meta, clock, entropy).begin("gone", 0, body)
        while clock.now_ms() <= begun_ms + 5:
            assert await log.tail("t") == 0
    async with jobs.open_site(settings, clock, entropy) as (site, _):
        report = await finish_writes_on(site, settings)
        assert (report.finished, report.failures) == (1, {})
        assert (await finish_writes_on(site, settings)).finished == 0
    async with catena.open(tmp_path) as log:
        assert [record.value async for record in log.read("t", partition=0)] == [b"a", b"b", b"c"]
