"""The loglet in memory keeps the contract."""

from __future__ import annotations

import asyncio

import pytest

from catena.errors import Corrupt, StoreUnavailable
from catena.loglets.base import LinkSpec
from catena.loglets.memory import MemoryLoglet, MemoryMedium
from catena.loglets.producers import ProducerState
from catena.objects.memory import MemoryObjects
from catena.runtime import SystemClock
from catena.testing.contracts.loglet import Links, LogletContract, OpenLink, Stamp, make_entry
from catena.testing.contracts.loglet_stored import StoredContract, store


class TestMemoryLoglet(LogletContract, StoredContract):
    @pytest.fixture
    def objects(self) -> MemoryObjects:
        return MemoryObjects(SystemClock())

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


async def test_stored_batches_that_are_not_what_was_said_are_refused(links: Links) -> None:
    objects, medium = MemoryObjects(SystemClock()), MemoryMedium()
    stored = await store(objects, "blob", [["a"], ["b"]], Stamp(7, 0, 0))
    loglet = MemoryLoglet(medium, links.spec(), SystemClock())
    with pytest.raises(Corrupt, match="object blob: 2 records at byte 15, not 3"):
        await loglet.append_stored(stored._replace(header=stored.header._replace(last_offset_delta=2)))
    assert await loglet.append_stored(stored) == 0
