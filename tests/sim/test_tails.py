"""The wire between simulated processes: it loses and delays, wakes who listens, and changes nothing."""

from __future__ import annotations

from catena.loglets.diskless.tail_ring import Frame
from catena.loglets.diskless.tail_wire import Hearing
from catena.types import TopicId
from sim.loop import Chance, Process, SimLoop
from sim.tails import SimTails, SimWire, drawn

TOPIC = TopicId("1" * 32)


class Listener:
    def __init__(self, tails: SimTails, name: str) -> None:
        self.process = Process(name)
        self.heard: list[Frame] = []
        self.missed = 0
        hearing = Hearing(lambda _topic, partition: partition == 0, self.heard.extend, self._miss)
        self.wire: SimWire = self.process.context.run(tails.connect, hearing)
        self.wire.start()

    def _miss(self) -> None:
        self.missed += 1


def frame(offset: int, partition: int = 0) -> Frame:
    return Frame(TOPIC, partition, 1, offset, 1, 0.0, b"%d" % offset)


def test_what_is_published_reaches_the_others_or_is_lost() -> None:
    loop = SimLoop(1)
    tails = SimTails(loop, Chance(1))
    one, two, dead = (Listener(tails, name) for name in ("one", "two", "dead"))
    dead.process.alive = False

    async def run() -> None:
        for offset in range(1000):
            one.wire.publish(frame(offset))
            one.wire.publish(frame(offset, partition=1))
            await loop.sleep(0.01)
        await loop.sleep(1)

    loop.run(run())
    assert one.heard == dead.heard == []
    offsets = [each.offset for each in two.heard]
    assert two.heard == [frame(offset) for offset in offsets]
    assert offsets == sorted(set(offsets))
    assert 500 < len(offsets) < 1000
    assert two.missed > 0
    loop.bury()


def test_some_seeds_have_it() -> None:
    loop = SimLoop(1)
    share = sum(drawn(seed, loop) is not None for seed in range(1000)) / 1000
    assert 0.3 < share < 0.5
    loop.bury()
