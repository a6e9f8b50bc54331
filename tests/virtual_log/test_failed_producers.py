"""What comes behind a batch that failed waits until that one is there, or the log knows its producer."""

from __future__ import annotations

import pytest

from catena.errors import BackPressure, CatenaError, OutcomeUnknown, OutOfOrderSequence, StoreUnavailable
from catena.loglets.base import Entry
from catena.testing.contracts.loglet import Stamp, make_entry
from catena.testing.faults import Fail
from catena.virtual_log.failed_producers import IN_FLIGHT_MAX_S, MAX_PRODUCERS, FailedProducers
from tests.virtual_log.cluster import Cluster


def batch(producer: int, sequence: int, epoch: int = 0) -> Entry:
    return make_entry("x", stamp=Stamp(producer, epoch, sequence))


class TestRule:
    def test_those_behind_the_least_that_failed_say_so(self) -> None:
        failed = FailedProducers()
        failed.note(batch(7, 2).header, 0)
        failed.note(batch(7, 1).header, 0)
        for sequence in (2, 1, 0, 2):
            assert failed.admit(batch(7, sequence), 0).not_before == 1

    def test_one_that_is_in_the_log_ends_it(self) -> None:
        failed = FailedProducers()
        failed.note(batch(7, 1).header, 0)
        failed.settle(batch(7, 5).header)
        assert failed.admit(batch(7, 6), 0).not_before is None

    def test_others_do_not_wait(self) -> None:
        failed = FailedProducers()
        failed.note(batch(7, 1).header, 0)
        failed.note(make_entry("x").header, 0)
        for other in (batch(8, 5), batch(7, 5, epoch=1), make_entry("x")):
            assert failed.admit(other, 0).not_before is None

    def test_it_is_bounded_in_number_and_in_time(self) -> None:
        failed = FailedProducers()
        for producer in range(MAX_PRODUCERS + 1):
            failed.note(batch(producer, 1).header, 0)
        assert failed.admit(batch(0, 2), 0).not_before is None
        assert failed.admit(batch(1, 2), IN_FLIGHT_MAX_S).not_before == 1
        assert failed.admit(batch(1, 2), IN_FLIGHT_MAX_S + 1).not_before is None


class TestInALog:
    @pytest.mark.parametrize("error", [StoreUnavailable("down"), BackPressure("full"), OutcomeUnknown("lost")])
    async def test_a_batch_that_is_sent_after_one_that_failed_at_once(
        self, cluster: Cluster, error: CatenaError
    ) -> None:
        node = await cluster.node()
        log = await node.log()
        first, second = batch(7, 0), batch(7, 1)
        node.faults.at("get chain", Fail(error))
        with pytest.raises(type(error)):
            await log.append(first)
        with pytest.raises(OutOfOrderSequence):
            await log.append(second)
        assert await log.append(make_entry("of another")) == 0
        assert await log.append(first) == 1
        assert await log.append(second) == 2

    async def test_one_that_came_in_through_another_node(self, cluster: Cluster) -> None:
        node, other = await cluster.node(), await cluster.node()
        log = await node.log()
        node.faults.at("get chain", Fail(StoreUnavailable("down")))
        with pytest.raises(StoreUnavailable):
            await log.append(batch(7, 0))
        assert await (await other.log()).append(batch(7, 0)) == 0
        assert await log.append(batch(7, 1)) == 1
        assert await (await other.log()).append(batch(7, 2)) == 2
        assert await log.append(batch(7, 3)) == 3
