"""The loglet in memory keeps the contract."""

from __future__ import annotations

import asyncio

import pytest

from catena.errors import StoreUnavailable
from catena.loglets.base import LinkSpec
from catena.loglets.memory import MemoryLoglet, MemoryMedium
from catena.loglets.producers import ProducerState
from catena.runtime import SystemClock
from catena.testing.contracts.loglet import Links, LogletContract, OpenLink, Stamp, make_entry


class TestMemoryLoglet(LogletContract):
    @pytest.fixture
    def medium(self) -> MemoryMedium:
        return MemoryMedium()

    @pytest.fixture
    def open_here(self, medium: MemoryMedium) -> OpenLink:
        def open_link(link: LinkSpec) -> MemoryLoglet:
            return MemoryLoglet(medium, link, SystemClock())

        return open_link

    @pytest.fixture
    def open_there(self, open_here: OpenLink) -> OpenLink:
        return open_here


async def test_what_was_called_behind_an_append_that_failed_fails_too(links: Links) -> None:
    """Taken, it would make the failed batch, sent again, look like one from the past."""
    troubles = [StoreUnavailable("the meta store is down")]

    async def handoff() -> dict[int, ProducerState]:
        if troubles:
            raise troubles.pop()
        return {}

    loglet = MemoryLoglet(MemoryMedium(), links.spec()._replace(handoff=handoff), SystemClock())
    batches = [make_entry("x", stamp=Stamp(7, 0, sequence)) for sequence in range(3)]
    answers = await asyncio.gather(*(loglet.append(batch) for batch in batches), return_exceptions=True)
    assert [type(answer) for answer in answers] == [StoreUnavailable] * 3
    assert [await loglet.append(batch) for batch in batches] == [0, 1, 2]
