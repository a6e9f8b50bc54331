"""How what one process commits gets to the others of its host: the contract, and the way by files in a folder.

Best effort: a wire may lose and delay as it likes, and tells of losses that it notices. What does not arrive is in the
stores. It never changes anything, and never makes anything up.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import NamedTuple, Protocol, TypeAlias

from catena.loglets.diskless.tail_folder import TailFolder
from catena.loglets.diskless.tail_listener import TailListener
from catena.loglets.diskless.tail_publisher import TailPublisher
from catena.loglets.diskless.tail_ring import Frame, Wanted
from catena.runtime import Clock, Entropy


class Hearing(NamedTuple):
    """What a wire calls when there is something to hear."""

    wanted: Wanted
    """Whether anybody wants to hear of this partition."""
    heard: Callable[[Sequence[Frame]], None]
    """Committed by others; those of one partition in the order of their offsets, as far as they came together."""
    missed: Callable[[], None]
    """Something that was wanted may never be heard."""


class WireCounts(NamedTuple):
    """See `counts.TailCounts`."""

    published_batches: int = 0
    published_bytes: int = 0
    left_out_batches: int = 0
    lost: int = 0
    rings: int = 0


class TailWire(Protocol):
    def publish(self, frame: Frame) -> None:
        """It is committed. MUST NOT wait, and MUST NOT raise."""

    def start(self) -> None:
        """Somebody wants to hear: begin to, if that is not so yet."""

    def poll(self) -> None:
        """Tell at once what has arrived by now."""

    def counts(self) -> WireCounts: ...

    async def close(self) -> None: ...


ConnectTails: TypeAlias = Callable[[Hearing], TailWire]


class FolderWire:
    def __init__(self, publisher: TailPublisher, listener: TailListener) -> None:
        self.publisher = publisher
        self.listener = listener

    def publish(self, frame: Frame) -> None:
        self.publisher.publish(frame)

    def start(self) -> None:
        self.listener.start()

    def poll(self) -> None:
        self.listener.poll()

    def counts(self) -> WireCounts:
        publisher, listener = self.publisher, self.listener
        return WireCounts(
            publisher.published, publisher.published_bytes, publisher.left_out, listener.lost, listener.rings
        )

    async def close(self) -> None:
        await self.listener.close()
        await self.publisher.close()


def tails_in_folder(folder: str, ring_bytes: int, history: str, clock: Clock, entropy: Entropy) -> ConnectTails:
    """`history` names the cluster and the branch of its history. Raises ConfigError if the folder can't be used."""
    files = TailFolder(Path(folder), entropy)

    def connect(hearing: Hearing) -> FolderWire:
        publisher = TailPublisher(files, ring_bytes, history, clock)
        return FolderWire(publisher, TailListener(files, history, clock, *hearing))

    return connect
