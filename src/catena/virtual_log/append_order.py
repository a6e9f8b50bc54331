"""Appends to a log keep the order of their calls, while the chain is loaded and when a seal sends them back.

An append is handed to a link only after the one before it was handed to the same or a later one, or is over. Without
that one which waits for the chain could be overtaken; and a log that does not know a producer takes whichever of its
batches comes first, and then refuses the others for ever. When one is over because it failed, `failed_producers` holds
up what is behind it.

A place knows only the one before it, and only while that matters, so a busy log keeps no list.
"""

from __future__ import annotations

import asyncio

from catena.types import Epoch

OVER = 1 << 63
"""In place of an epoch, greater than any: the append is over."""


class Place:
    """One append's place among the calls: the epoch of the link that it was last handed to."""

    __slots__ = ("_before", "_behind", "_epoch")

    def __init__(self, epoch: Epoch = 0) -> None:
        self._epoch = epoch
        self._before: Place | None = None
        """Set when this append is over and the one before it was not: who comes next waits for that one."""
        self._behind: asyncio.Future[None] | None = None

    @property
    def is_over(self) -> bool:
        return self._epoch == OVER

    def has_reached(self, epoch: Epoch) -> bool:
        return self._epoch >= epoch and self._before is None

    async def reach(self, epoch: Epoch) -> None:
        """Wait until it, or the one that it left behind, is in a link of this epoch. For the next append only."""
        place: Place | None = self
        while place is not None:
            while place._epoch < epoch:
                place._behind = asyncio.get_running_loop().create_future()
                await place._behind
            place = place._before

    def hand_to(self, epoch: Epoch) -> None:
        """Who waits behind runs once the caller waits, too: then its append has taken its place in the link."""
        self._epoch = epoch
        if self._behind is not None and not self._behind.done():
            self._behind.set_result(None)

    def leave(self, before: Place | None) -> None:
        """The append is over, answered or given up."""
        while before is not None and before.is_over:
            before = before._before
        self._before = before
        self.hand_to(OVER)
