"""What Kafka clients have asked for: counted as their connections see it."""

from __future__ import annotations

from catena.broker.connection import ConnectionSettings
from catena.broker.request_counts import UNSUPPORTED, RequestCounts
from catena.wire.apis import APIS
from catena.wire.codes import Code
from catena.wire.messages.fetch import FetchableTopicResponse, FetchRequest, FetchResponse, PartitionData
from catena.wire.messages.find_coordinator import Coordinator, FindCoordinatorRequest, FindCoordinatorResponse
from catena.wire.messages.heartbeat import HeartbeatResponse
from catena.wire.requests import Request
from catena.wire.schema import Message
from catena.wire.unsupported import unknown
from tests.broker.peers import END_TXN, Desk, serving, until

FETCH, FIND_COORDINATOR, HEARTBEAT = 1, 10, 12


def request(key: int, body: Message) -> Request:
    return Request(APIS[key], APIS[key].last, 1, "test", body)


def test_errors_are_those_within_the_answer() -> None:
    counts = RequestCounts()
    parts = [PartitionData(error_code=Code.OFFSET_OUT_OF_RANGE), PartitionData(), PartitionData(error_code=1)]
    answer = FetchResponse(responses=[FetchableTopicResponse(partitions=parts), FetchableTopicResponse()])
    counts.answered(request(FETCH, FetchRequest()), 0.25, 100, 2000, answer)
    counts.answered(
        request(FETCH, FetchRequest()), 0.25, 100, 20, FetchResponse(error_code=Code.FETCH_SESSION_ID_NOT_FOUND)
    )
    found = FindCoordinatorResponse(coordinators=[Coordinator(error_code=Code.INVALID_GROUP_ID)])
    counts.answered(request(FIND_COORDINATOR, FindCoordinatorRequest()), 0.0, 1, 1, found)
    fetch = counts.apis["Fetch"]
    assert (fetch.requests, fetch.bytes_in, fetch.bytes_out, fetch.seconds.sum) == (2, 200, 2020, 0.5)
    assert fetch.errors == {"OFFSET_OUT_OF_RANGE": 2, "FETCH_SESSION_ID_NOT_FOUND": 1}
    assert counts.apis["FindCoordinator"].errors == {"INVALID_GROUP_ID": 1}


def test_every_answer_that_can_have_an_error_has_it_counted() -> None:
    for api in APIS.values():
        counts = RequestCounts()
        counts.answered(Request(api, api.last, 1, "", api.request()), 0.0, 1, 1, api.response())
        assert counts.apis[api.name].requests == 1
        if "error_code" in api.response.__struct_fields__:
            answer = api.response(error_code=Code.UNKNOWN_SERVER_ERROR)
            counts.answered(Request(api, api.last, 1, "", api.request()), 0.0, 1, 1, answer)
            assert counts.apis[api.name].errors == {"UNKNOWN_SERVER_ERROR": 1}


def test_codes_and_apis_that_nobody_knows_have_one_name() -> None:
    counts = RequestCounts()
    counts.answered(request(HEARTBEAT, Message()), 0.0, 1, 1, HeartbeatResponse(error_code=12345))
    for key in (1000, 1001):
        refused = unknown(key)
        counts.answered(Request(refused.api, 0, 1, None, Message()), 0.0, 1, 1, refused.answer)
    assert counts.apis["Heartbeat"].errors == {"unknown": 1}
    assert counts.apis[UNSUPPORTED].requests == 2
    assert counts.apis.keys() == {"Heartbeat", UNSUPPORTED}


def test_zones_of_those_who_fetch() -> None:
    counts = RequestCounts("a")
    for rack in ("a", "b", "b", ""):
        counts.answered(request(FETCH, FetchRequest(rack_id=rack)), 0.0, 1, 1, FetchResponse())
    zones = counts.fetch_zones
    assert (zones.same, zones.other, zones.unknown) == (1, 2, 1)
    nowhere = RequestCounts()
    nowhere.answered(request(FETCH, FetchRequest(rack_id="a")), 0.0, 1, 1, FetchResponse())
    assert nowhere.fetch_zones.unknown == 1


async def test_a_connection_tells_of_what_it_answers() -> None:
    desk = Desk()
    async with serving(desk, ConnectionSettings()) as clients:
        peer = await clients.connect()
        for number in range(3):
            peer.send(number)
            assert await peer.answer() == number
        peer.send(3, "silent")
        peer.send(4, "later")
        await desk.until_asked(5)
        counts = clients.server.counts
        assert counts.apis["Heartbeat"].requests == 4, "what is on its way does not count yet"
        desk.later[0].set_result(HeartbeatResponse())
        assert await peer.answer() == 4
        heartbeat = counts.apis["Heartbeat"]
        assert (heartbeat.requests, heartbeat.seconds.count) == (5, 5)
        assert heartbeat.errors == {Code(7).name: 3}
        assert (heartbeat.bytes_in > 0, heartbeat.bytes_out > 0) == (True, True)
        peer.send(5, "bye")
        assert await peer.is_cut_off()
        await until(lambda: counts.connections_cut_off == 1)
        assert counts.connections_opened == 1
        assert END_TXN not in APIS
