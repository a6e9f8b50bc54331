"""The loglet in memory keeps the contract."""

from __future__ import annotations

import pytest

from catena.loglets.base import LinkSpec
from catena.loglets.memory import MemoryLoglet, MemoryMedium
from catena.runtime import SystemClock
from catena.testing.contracts.loglet import LogletContract, OpenLink


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
