"""What comes behind a batch that failed waits until that one is there."""

from __future__ import annotations

import pytest

from catena.errors import BackPressure, OutcomeUnknown, RetryLater, StoreUnavailable
from catena.formats.record_batch import BatchHeader
from catena.testing.contracts.loglet import Stamp, make_entry
from catena.testing.faults import Fail
from catena.virtual_log.failed_producers import MAX_PRODUCERS, FailedProducers
from tests.virtual_log.cluster import Cluster


def header(producer: int, sequence: int, epoch: int = 0) -> BatchHeader:
    return make_entry("x", stamp=Stamp(producer, epoch, sequence)).header


class TestRule:
    def test_the_least_that_failed_is_waited_for(self) -> None:
        failed = FailedProducers()
        failed.note(header(7, 2))
        failed.note(header(7, 1))
        failed.admit(header(7, 0))  # one that came before it lets nobody in
        with pytest.raises(RetryLater, match="sequence 2, and 1 failed"):
            failed.admit(header(7, 2))
        failed.admit(header(7, 1))
        failed.admit(header(7, 2))

    def test_others_do_not_wait(self) -> None:
        failed = FailedProducers()
        failed.note(header(7, 1))
        failed.note(make_entry("x").header)
        failed.admit(header(8, 5))
        failed.admit(header(7, 5, epoch=1))
        failed.admit(make_entry("x").header)

    def test_it_is_bounded(self) -> None:
        failed = FailedProducers()
        for producer in range(MAX_PRODUCERS + 1):
            failed.note(header(producer, 1))
        failed.admit(header(0, 2))
        with pytest.raises(RetryLater):
            failed.admit(header(1, 2))


class TestInALog:
    @pytest.mark.parametrize("error", [StoreUnavailable("down"), BackPressure("full"), OutcomeUnknown("lost")])
    async def test_a_batch_that_is_sent_after_one_that_failed_at_once(self, cluster: Cluster, error: Exception) -> None:
        node = await cluster.node()
        log = await node.log()
        first, second = (make_entry("y", stamp=Stamp(7, 0, number)) for number in range(2))
        node.faults.at("get chain", Fail(error))  # type: ignore[arg-type]
        with pytest.raises(type(error)):
            await log.append(first)
        with pytest.raises(RetryLater):
            await log.append(second)
        assert await log.append(make_entry("of another")) == 0
        assert await log.append(first) == 1
        assert await log.append(second) == 2
