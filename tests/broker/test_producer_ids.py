"""No producer id is given out twice, whatever becomes of the writes behind it."""

from __future__ import annotations

import asyncio

import pytest

from catena.broker.base import Client
from catena.broker.producer_ids import BLOCK, SKIPPED, ProducerIds
from catena.errors import OutcomeUnknown, StoreUnavailable
from catena.meta import keys
from catena.meta.memory import MemoryMeta
from catena.testing.faults import Fail, Faults, FaultyMeta, Late
from catena.wire.codes import Code
from catena.wire.messages.init_producer_id import InitProducerIdRequest, InitProducerIdResponse
from catena.wire.requests import Request, response_frame
from tests.broker.group_world import FastClock
from tests.broker.world import api_of

STEP = "put producer-ids"


class Nodes:
    def __init__(self) -> None:
        self.clock = FastClock()
        self.meta = MemoryMeta(self.clock)
        self.faults = Faults()

    def node(self) -> ProducerIds:
        return ProducerIds(FaultyMeta(self.meta, self.faults), self.clock)


async def ask(ids: ProducerIds, body: InitProducerIdRequest, version: int = 6) -> InitProducerIdResponse:
    api = api_of(InitProducerIdRequest)
    answer = await ids.init_producer_id(Request(api, version, 1, "test", body), Client("host", "main"))
    assert response_frame(api, version, 1, answer)
    return answer


async def test_every_id_is_given_once_over_all_nodes_and_blocks() -> None:
    nodes = Nodes()
    several = [nodes.node() for _ in range(3)]
    given = await asyncio.gather(*(several[number % 3].fresh() for number in range(3 * BLOCK + 10)))
    assert len(dict.fromkeys(given)) == 3 * BLOCK + 10
    assert nodes.faults.taken[STEP] < 30


@pytest.mark.parametrize("fault", [None, Fail(OutcomeUnknown("no answer"), applied=True), Late()])
async def test_ids_that_a_restored_meta_store_has_forgotten_are_skipped(fault: Fail | Late | None) -> None:
    nodes = Nodes()
    await nodes.node().fresh()
    backup = await nodes.meta.get(keys.PRODUCER_IDS)
    assert backup is not None
    given = [await nodes.node().fresh() for _ in range(100)]
    await nodes.meta.put(keys.PRODUCER_IDS, backup.value)
    if fault is not None:
        nodes.faults.at(STEP, fault)
    await nodes.node().skip_ids()
    assert max(given) < SKIPPED < await nodes.node().fresh()


@pytest.mark.parametrize("version", range(7))
async def test_a_producer_gets_an_id_and_epoch_0_whatever_it_had(version: int) -> None:
    ids = Nodes().node()
    first = await ask(ids, InitProducerIdRequest(transactional_id=None), version)
    again = InitProducerIdRequest(transactional_id=None, producer_id=first.producer_id, producer_epoch=4)
    second = await ask(ids, again, version)
    assert (first.error_code, second.error_code) == (Code.NONE, Code.NONE)
    assert (first.producer_epoch, second.producer_epoch) == (0, 0)
    assert first.producer_id != second.producer_id


async def test_transactions_are_refused() -> None:
    answer = await ask(Nodes().node(), InitProducerIdRequest(transactional_id="tx"))
    assert (answer.error_code, answer.producer_id) == (Code.TRANSACTIONAL_ID_AUTHORIZATION_FAILED, -1)


@pytest.mark.parametrize("applied", [True, False])
async def test_a_reservation_of_unknown_outcome_is_left_aside(applied: bool) -> None:
    nodes = Nodes()
    one, two = nodes.node(), nodes.node()
    nodes.faults.at(STEP, Fail(OutcomeUnknown("lost"), applied=applied))
    given = [await one.fresh(), await two.fresh()]
    assert given == ([BLOCK, 2 * BLOCK] if applied else [0, BLOCK])


async def test_a_reservation_that_arrives_late_takes_nobodys_ids() -> None:
    nodes = Nodes()
    one, two = nodes.node(), nodes.node()
    await one.fresh()
    late = nodes.faults.at(STEP, Late())
    first = await two.fresh()
    with pytest.raises(Exception, match="producer-ids"):
        await late.arrive()
    third = await nodes.node().fresh()
    assert [first, third] == [BLOCK, 2 * BLOCK]


async def test_a_store_in_trouble_is_asked_again_later() -> None:
    nodes = Nodes()
    nodes.faults.at(STEP, Fail(StoreUnavailable("away")))
    ids = nodes.node()
    body = InitProducerIdRequest(transactional_id=None)
    assert (await ask(ids, body)).error_code == Code.COORDINATOR_LOAD_IN_PROGRESS
    assert (await ask(ids, body)).error_code == Code.NONE


async def test_a_record_that_can_not_be_read_is_no_reason_to_begin_anew() -> None:
    nodes = Nodes()
    await nodes.meta.put(keys.PRODUCER_IDS, b'{"next": -5}')
    answer = await ask(nodes.node(), InitProducerIdRequest(transactional_id=None))
    assert answer.error_code == Code.KAFKA_STORAGE_ERROR
