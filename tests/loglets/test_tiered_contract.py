"""What the contract asks of a loglet that is read, asked of the tiered one.

It takes no appends, so what the suite appends is tiered: each batch into a segment of its own, with a new manifest.
"""

from __future__ import annotations

import pytest

from catena.loglets.base import Batch, Entry, Extent, LinkSpec, Run, SealResult, Stored, Tail
from catena.loglets.tiered.loglet import TieredLoglet
from catena.objects.memory import MemoryObjects
from catena.runtime import SystemClock
from catena.testing.contracts.loglet import Links, OpenLink, ReadContract, SealContract
from catena.types import Offset
from tests.loglets.segments import SegmentedLog, TieredNode


class Logs:
    """What was appended to each link, for all nodes."""

    def __init__(self) -> None:
        self.objects = MemoryObjects(SystemClock())
        self._logs: dict[Offset, SegmentedLog] = {}

    def node(self) -> OpenLink:
        node = TieredNode(self.objects)
        return lambda link: TieredAsAppended(node, self._log(link))

    def _log(self, link: LinkSpec) -> SegmentedLog:
        return self._logs.setdefault(link.base, SegmentedLog(self.objects, Links(), link.base))


class TieredAsAppended:
    def __init__(self, node: TieredNode, log: SegmentedLog) -> None:
        self._node = node
        self._log = log

    async def append(self, entry: Entry) -> Offset:
        return (await self._log.add([entry.data])).base

    async def append_stored(self, stored: Stored) -> Offset:
        return await (await self._tiered()).append_stored(stored)

    async def read(self, offset: Offset, max_bytes: int) -> list[Batch]:
        return await (await self._tiered()).read(offset, max_bytes)

    async def tail(self) -> Tail:
        return await (await self._tiered()).tail()

    async def wait_for_tail(self, beyond: Offset) -> None:
        await (await self._tiered()).wait_for_tail(beyond)

    async def find_time(self, timestamp_ms: int, start: Offset) -> Offset | None:
        return await (await self._tiered()).find_time(timestamp_ms, start)

    async def find_max_time(self, start: Offset, end: Offset | None) -> Offset | None:
        return await (await self._tiered()).find_max_time(start, end)

    async def runs(self, start: Offset, limit: int) -> list[Run]:
        return await (await self._tiered()).runs(start, limit)

    async def extents(self, start: Offset, end: Offset, limit: int) -> list[Extent]:
        return await (await self._tiered()).extents(start, end, limit)

    async def seal(self) -> SealResult:
        return await (await self._tiered()).seal()

    async def trim(self, offset: Offset) -> None:
        await (await self._tiered()).trim(offset)

    async def close(self) -> None:
        await (await self._tiered()).close()

    async def _tiered(self) -> TieredLoglet:
        return self._node.open(await self._log.link())


class TestTieredLoglet:
    """Those of the suite's tests that no append follows, and no wait for one."""

    test_starts = ReadContract.test_a_read_starts_with_the_batch_that_holds_the_offset
    test_max_bytes = ReadContract.test_a_read_has_at_least_one_batch_and_then_up_to_max_bytes
    test_time = ReadContract.test_the_first_batch_with_a_record_of_a_time_is_found
    test_max_time = ReadContract.test_the_first_batch_with_the_greatest_time_is_found
    test_max_time_inside = ReadContract.test_the_greatest_time_is_found_inside_of_what_was_written_together
    test_runs = ReadContract.test_runs_tell_of_all_that_is_there
    test_no_wait = ReadContract.test_nobody_waits_for_a_tail_that_is_there
    test_sends_on = SealContract.test_the_tail_of_a_sealed_link_sends_readers_on

    @pytest.fixture
    def logs(self) -> Logs:
        return Logs()

    @pytest.fixture
    def open_here(self, logs: Logs) -> OpenLink:
        return logs.node()

    @pytest.fixture
    def open_there(self, logs: Logs) -> OpenLink:
        return logs.node()
