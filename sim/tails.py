"""What processes of one host tell each other of their commits, over a wire that loses, delays and forgets.

In some seeds most processes are of one host. What one of them publishes lies at the others at once, as in a ring
that they can look into, and a call wakes them later, now and then only with the next tick. Sometimes it is left
out and nobody ever hears; sometimes a reader finds all that it has not read yet overwritten, and is told so. A process
that died hears nothing; what it published before stays.
"""

from __future__ import annotations

from catena.loglets.diskless.tail_ring import Frame
from catena.loglets.diskless.tail_wire import ConnectTails, Hearing, WireCounts
from sim.loop import PROCESS, Chance, Process, SimLoop

SHARE = 0.4
"""Of the seeds."""
STRANGERS = 0.4
"""Of the processes."""
LEFT_OUT = 0.1
OVERWRITTEN = 0.05
WAKE_S = 0.02
TICK_S = 0.25
NOT_WOKEN = 0.2


class SimTails:
    def __init__(self, loop: SimLoop, random: Chance) -> None:
        self.loop = loop
        self.random = random
        self._wires: dict[SimWire, None] = {}

    def for_a_process(self) -> ConnectTails | None:
        """None: it is on another host."""
        return None if self.random.random() < STRANGERS else self.connect

    def connect(self, hearing: Hearing) -> SimWire:
        """Called by a process that starts."""
        process = PROCESS.get()
        assert process is not None
        wire = SimWire(self, process, hearing)
        self._wires[wire] = None
        return wire

    def spread(self, frame: Frame, by: SimWire) -> None:
        if self.random.random() < LEFT_OUT:
            return
        for wire in list(self._wires):
            if not wire.process.alive:
                del self._wires[wire]
            elif wire is not by:
                wire.arrive(frame)


class SimWire:
    def __init__(self, tails: SimTails, process: Process, hearing: Hearing) -> None:
        self.process = process
        self._tails = tails
        self._hearing = hearing
        self._arrived: list[Frame] = []
        self._listening = False
        self._overwritten = False

    def publish(self, frame: Frame) -> None:
        self._tails.spread(frame._replace(data=bytes(frame.data)), self)

    def start(self) -> None:
        self._listening = True

    def poll(self) -> None:
        arrived, self._arrived = self._arrived, []
        overwritten, self._overwritten = self._overwritten, False
        if wanted := [frame for frame in arrived if self._hearing.wanted(frame.topic_id, frame.partition)]:
            self._hearing.heard(sorted(wanted, key=_offset))
        if overwritten:
            self._hearing.missed()

    def counts(self) -> WireCounts:
        return WireCounts()

    async def close(self) -> None:
        self._listening = False

    def arrive(self, frame: Frame) -> None:
        if not self._listening:
            return
        tails = self._tails
        self._arrived.append(frame)
        if tails.random.random() < OVERWRITTEN:
            self._arrived.clear()
            self._overwritten = True
        delay_s = tails.random.random() * (TICK_S if tails.random.random() < NOT_WOKEN else WAKE_S)
        tails.loop.call_later(delay_s, self._woken, context=self.process.context.copy())

    def _woken(self) -> None:
        if self._listening:
            self.poll()


def _offset(frame: Frame) -> int:
    return frame.offset


def drawn(seed: int, loop: SimLoop) -> SimTails | None:
    random = Chance(f"tails {seed}")
    return SimTails(loop, random) if random.random() < SHARE else None
