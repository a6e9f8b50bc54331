"""POST /produce, from the wire to the log: fields, statuses, and what is told of each batch."""

from __future__ import annotations

import asyncio
import json
from contextlib import AsyncExitStack
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from catena.broker.base import TopicDefaults
from catena.errors import BackPressure, CatenaError, OutcomeUnknown, StoreUnavailable
from catena.formats.compression import Compression
from catena.formats.record_batch import parse_header
from catena.formats.records import Record, iter_records
from catena.http.base import HttpRequest
from catena.rest.hot import HotRecords
from catena.rest.produce import Produce
from catena.testing.faults import Fail
from tests.broker.world import World
from tests.rest.conftest import Api, serving


async def stored(api: Api, topic: str = "t", partition: int = 0) -> list[Record]:
    log = await api.node.node.log(topic, partition)
    batches = await log.read(0, 1 << 20)
    return [record for batch in batches for record in iter_records(batch.data, batch.offset)]


def blobs(folder: Path) -> dict[str, bytes]:
    return {file.as_uri(): file.read_bytes() for file in folder.glob("objects/llog/wal-shared/*")}


async def test_an_answer_has_what_the_contract_says(api: Api) -> None:
    assert (await api.produce("first")).status == 200
    answer = await api.produce("alpha", {"base64": "AAE="})
    topic_id = (await api.node.view.get("t")).topic_id
    (result,) = answer.body.pop("results")
    assert answer.status == 200
    assert answer.body == {"success_count": 1, "error_count": 0}
    uri = result.pop("wal_uri")
    assert result == {
        "topic": "t",
        "partition": 0,
        "ok": True,
        "start_offset": 1,
        "end_offset": 2,
        "count": 2,
        "index_key": f"llog/{topic_id}/partitions/0/index/00000000000000000002",
    }
    assert uri.startswith("memory:llog/wal-shared/")
    assert await api.node.node.meta.get(result["index_key"])
    assert b"alpha" in bytes((await api.node.node.objects.get(uri.removeprefix("memory:"))).data)
    assert [record.value for record in await stored(api)] == [b"first", b"alpha", b"\x00\x01"]


async def test_in_a_folder_the_uri_is_that_of_a_file(tmp_path: Path) -> None:
    async with serving(meta="", objects="", data=str(tmp_path)) as api:
        (result,) = (await api.produce("alpha", topic="made")).body["results"]
        assert {result["wal_uri"]: True} == {uri: b"alpha" in data for uri, data in blobs(tmp_path).items()}


async def test_where_a_log_is_in_no_object_none_is_named(api: Api) -> None:
    await (await api.node.node.log("t", 0)).reconfigure("memory")
    (result,) = (await api.produce("alpha")).body["results"]
    assert (result["ok"], result["index_key"], result["wal_uri"]) == (True, None, None)


async def test_requests_that_share_a_run_are_told_its_key(api: Api) -> None:
    many = {"topic": "t", "partition": 0, "records": ["a"]}
    answer = await api.post("/produce", {"topic_partitions": [many, many, {**many, "partition": 1}]})
    first, second, other = answer.body["results"]
    assert (first["start_offset"], second["start_offset"], other["start_offset"]) == (0, 1, 0)
    assert first["index_key"] == second["index_key"] != other["index_key"]
    assert first["wal_uri"] == second["wal_uri"] == other["wal_uri"], "they share a blob"
    assert await api.node.node.meta.get(first["index_key"])


async def test_keys_headers_and_times_can_be_sent(api: Api) -> None:
    record = {"value": "v", "key": {"base64": "/w=="}, "headers": [{"name": "h", "value": "x"}], "timestamp": 7}
    assert (await api.produce(record, "plain")).status == 200
    first, second = await stored(api)
    assert first == Record(0, 7, b"\xff", b"v", (("h", b"x"),))
    assert second.timestamp > 1_700_000_000_000


async def test_some_fail_and_the_others_are_done(api: Api) -> None:
    parts = [{"topic": "t", "partition": number, "records": ["a"]} for number in (0, 7)]
    answer = await api.post("/produce", {"topic_partitions": parts})
    assert (answer.status, answer.body["success_count"], answer.body["error_count"]) == (409, 1, 1)
    good, bad = answer.body["results"]
    assert (good["ok"], good["start_offset"]) == (True, 0)
    assert bad == {
        "topic": "t",
        "partition": 7,
        "ok": False,
        "error_type": "UnknownPartition",
        "error": "topic 't' has partitions 0 to 1, not 7",
    }
    assert len(await stored(api)) == 1


async def test_topics_are_made_as_kafka_clients_have_them_made() -> None:
    async with serving(kafka={"topics": {"partitions": 3}}) as api:
        assert (await api.produce("a", topic="new", partition=2)).status == 200
        assert (await api.node.node.topics.get("new")).partitions == 3
        (bad,) = (await api.produce("a", topic="no name")).body["results"]
        assert bad["error_type"] == "InvalidTopic"


async def test_or_not() -> None:
    async with serving(kafka={"topics": {"auto_create": False}}) as api:
        answer = await api.produce("a", topic="new")
        assert (answer.status, answer.body["results"][0]["error_type"]) == (409, "UnknownTopic")


async def test_a_batch_is_no_larger_than_the_topic_takes(api: Api) -> None:
    await api.node.node.topics.create("small", 1, configs={"max.message.bytes": "1000"})
    (bad,) = (await api.produce("x" * 2_000, topic="small")).body["results"]
    assert bad["error_type"] == "BatchTooLarge"
    assert "max.message.bytes" in bad["error"]
    assert (await api.produce("x" * 800, topic="small")).status == 200


@pytest.mark.parametrize("name", ["gzip", "snappy", "lz4", "zstd", "uncompressed"])
async def test_batches_are_stored_as_the_topic_has_them(api: Api, name: str) -> None:
    await api.node.node.topics.create(
        name, 1, configs={"compression.type": name, "message.timestamp.type": "LogAppendTime"}
    )
    assert (await api.produce("a", {"value": "b", "key": "k", "timestamp": 7}, topic=name)).status == 200
    (batch,) = await (await api.node.node.log(name, 0)).read(0, 1 << 20)
    header = parse_header(batch.data)
    expected = Compression.NONE if name == "uncompressed" else Compression[name.upper()]
    assert (header.compression, header.log_append_time) == (expected, True)
    assert [record.value for record in iter_records(batch.data)] == [b"a", b"b"]


async def test_times_that_the_topic_does_not_take(api: Api) -> None:
    await api.node.node.topics.create("now", 1, configs={"message.timestamp.before.max.ms": "1000"})
    answer = await api.produce({"value": "a", "timestamp": 7}, topic="now")
    assert (answer.status, answer.body["results"][0]["error_type"]) == (409, "Rejected")


@pytest.mark.parametrize(
    ("errors", "status", "types"),
    [
        ([BackPressure("slow"), BackPressure("slow")], 503, ["BackPressureRejected", "BackPressureRejected"]),
        ([BackPressure("slow"), None], 409, ["BackPressureRejected", None]),
        ([BackPressure("slow"), StoreUnavailable("away")], 409, ["BackPressureRejected", "StoreUnavailable"]),
        ([OutcomeUnknown("who knows"), None], 409, ["OutcomeUnknown", None]),
        ([StoreUnavailable("away"), StoreUnavailable("away")], 409, ["StoreUnavailable", "StoreUnavailable"]),
        ([None, None], 200, [None, None]),
    ],
    ids=str,
)
async def test_what_fails_has_a_name(
    tmp_path: Path, errors: list[CatenaError | None], status: int, types: list[str | None]
) -> None:
    async with AsyncExitStack() as opened:
        node = await World("memory", tmp_path, opened).node(1)
        await node.node.topics.create("t", 2)
        for number, error in enumerate(errors, 1):
            if error is not None:
                node.faults.at("get chain", Fail(error), nth=number)
        produce = Produce(
            node.node.topics, node.view, node.node.open_log, node.node.clock, TopicDefaults(), str, HotRecords(0)
        )
        parts = [{"topic": "t", "partition": number, "records": ["a"]} for number in (0, 1)]
        body = json.dumps({"topic_partitions": parts}).encode()
        answer = await produce.produce(HttpRequest("POST", "/produce", body=body))
    results = json.loads(answer.body)["results"]
    assert answer.status == status
    assert [result.get("error_type") for result in results] == types
    assert [result.get("error") for result in results] == [error and str(error) for error in errors]
    assert dict(answer.headers) == ({"retry-after": "1"} if status == 503 else {})


async def test_real_back_pressure() -> None:
    async with serving(diskless={"writer": {"buffer_max_bytes": 3_000}}) as api:
        answer = await api.post(
            "/produce",
            {"topic_partitions": [{"topic": "t", "partition": 0, "records": ["x" * 2_000]}] * 3},
        )
        assert answer.status == 409
        assert [result["ok"] for result in answer.body["results"]] == [True, False, False]
        assert answer.body["results"][1]["error_type"] == "BackPressureRejected"


async def test_a_fenced_log_takes_nothing(api: Api) -> None:
    assert (await api.post("/fence", {"topic": "t", "partition": 0})).status == 200
    answer = await api.produce("a")
    assert (answer.status, answer.body["results"][0]["error_type"]) == (409, "LogSealed")


async def test_a_request_that_is_wrong_does_nothing_at_all(api: Api) -> None:
    parts = [{"topic": "t", "partition": 0, "records": ["a"]}, {"topic": "t", "partition": 1, "records": ["a", {}]}]
    answer = await api.post("/produce", {"topic_partitions": parts})
    assert (answer.status, answer.body["at"]) == (400, "topic_partitions[1].records[1]")
    assert await stored(api) == []


async def test_a_deleted_topic_is_noticed(api: Api) -> None:
    assert (await api.produce("a")).status == 200
    await api.node.node.topics.delete("t")
    answer = await api.produce("a")
    if answer.status == 409:
        assert answer.body["results"][0]["error_type"] == "UnknownTopic"
        answer = await api.produce("a")
    assert (answer.status, answer.body["results"][0]["start_offset"]) == (200, 0), "of a new topic"


RECORDS = st.text(max_size=5) | st.fixed_dictionaries({"base64": st.text(max_size=5)}) | st.none() | st.integers()
PARTS = st.fixed_dictionaries(
    {"topic": st.sampled_from(["t", "", "no name", "u"]), "partition": st.integers(-1, 2), "records": st.lists(RECORDS)}
)


@settings(max_examples=30, deadline=None)
@given(body=st.fixed_dictionaries({"topic_partitions": st.lists(PARTS, max_size=3)}) | st.text() | st.none())
def test_no_body_is_a_bug(body: Any) -> None:
    async def ask() -> None:
        async with serving() as api:
            for path in ("/produce", "/consume", "/fence", "/unfence"):
                assert (await api.post(path, body)).status in (200, 400, 404, 409)

    asyncio.run(ask())
