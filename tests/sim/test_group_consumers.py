"""When a member of a consumer group may still believe in its partitions."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from catena.wire.messages.consumer_group_heartbeat import (
    Assignment,
    ConsumerGroupHeartbeatResponse,
    TopicPartitions,
)
from sim import group_scenario
from sim.chaos import Tally
from sim.group_cluster import GroupWorld
from sim.group_consumers import ConsumerMember
from sim.group_history import Beat, GroupHistory, Slot
from sim.loop import SimLoop

A0, A1 = Slot("a", 0), Slot("a", 1)


class Bench:
    """A member, and the answers to its heartbeats; each of them takes no time."""

    def __init__(self, loop: SimLoop) -> None:
        self.loop = loop
        scenario = next(each for each in map(group_scenario.draw, range(100)) if each.partitions > 1)
        self.world = GroupWorld(scenario, loop, GroupHistory(loop.time), Tally())
        self.world.create_topic("a")
        self.member = ConsumerMember(self.world, "k", "g", [])

    def told(self, *partitions: int) -> None:
        given = TopicPartitions(topic_id=self.world.topics["a"].topic_id, partitions=list(partitions))
        answer = ConsumerGroupHeartbeatResponse(
            member_epoch=1, heartbeat_interval_ms=500, assignment=Assignment(topic_partitions=[given])
        )
        self.member._hear(Beat("g", "k"), answer, self.loop.time())

    def wait(self, seconds: float) -> None:
        self.loop.run(self.loop.sleep(seconds))


@pytest.fixture
def bench() -> Iterator[Bench]:
    loop = SimLoop(seed=1)
    yield Bench(loop)
    loop.bury()


def test_it_holds_what_it_was_told_until_its_session_is_over(bench: Bench) -> None:
    bench.told(0)
    bench.wait(bench.world.scenario.session_s - 0.1)
    assert bench.member.holds(A0)
    assert not bench.member.holds(A1)
    bench.wait(0.2)
    assert not bench.member.holds(A0)


def test_what_it_gives_up_too_late_may_have_cost_it_all(bench: Bench) -> None:
    bench.told(0, 1)
    bench.told(0)
    bench.wait(bench.world.scenario.rebalance_s + 0.1)
    bench.told(0)
    assert not bench.member.holds(A0), "it still has what it was to give up"
    bench.member._take((A0,))
    assert not bench.member.holds(A0), "nobody has answered yet that it was in time"
    bench.told(0)
    assert bench.member.holds(A0)
