"""What the contract of `catena.loglets.base` asks of `append_stored`, as tests.

A kind's test module subclasses StoredContract beside LogletContract, and gives a fixture more: `objects`, the store
that the loglets of `open_here` and `open_there` read.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence

import pytest

from catena.errors import OutOfOrderSequence, ProducerFenced, Sealed, StaleView
from catena.formats.record_batch import parse_header
from catena.loglets.base import Loglet, Stored, Tail, spanning_header
from catena.objects.base import ObjectStore, Range
from catena.testing.contracts.loglet import Links, OpenLink, Stamp, make_entry, read_values
from catena.types import ABSENT, Buffer

NEVER_MS = 1 << 60
BEFORE = b"bytes of others"


async def store(
    objects: ObjectStore, key: str, batches: Sequence[Sequence[str]], stamp: Stamp, not_after_ms: int = NEVER_MS
) -> Stored:
    """A batch of each, one after the other in one object, as a writer elsewhere would have put them."""
    bodies: list[bytes] = []
    sequence = stamp.sequence
    for number, values in enumerate(batches):
        entry = make_entry(*values, stamp=stamp._replace(sequence=sequence), timestamp_ms=100 + number)
        bodies.append(bytes(entry.data))
        sequence += len(values)
    await objects.put(key, [BEFORE, *bodies], ABSENT)
    size = sum(map(len, bodies))

    async def fetch() -> Buffer:
        (data,) = await objects.get_ranges(key, [Range(len(BEFORE), size)])
        return data

    newest = max(parse_header(body).max_timestamp for body in bodies)
    header = spanning_header(sequence - stamp.sequence, size, newest, *stamp)
    return Stored(header, key, len(BEFORE), 0, not_after_ms, fetch)


class StoredContract:
    async def test_stored_batches_are_appended_in_one_piece(
        self, open_here: OpenLink, open_there: OpenLink, links: Links, objects: ObjectStore
    ) -> None:
        here, there = open_here(links.spec(base=40)), open_there(links.spec(base=40))
        stored = await store(objects, "blob", [["b", "c"], ["d"]], Stamp(7, 0, 0))
        await there.append(make_entry("a"))
        assert await here.append_stored(stored) == 41
        assert await there.append(make_entry("e")) == 44
        for loglet in (here, there):
            assert await loglet.tail() == Tail(45, sealed=False)
            assert await read_values(loglet, 40, 45) == ["a", "b", "c", "d", "e"]
            (batch, *_) = await loglet.read(43, 1)
            assert (batch.offset, batch.count) == (43, 1)
            assert await loglet.find_time(101, 40) == 43

    async def test_what_is_handed_over_again_gets_its_first_offset_everywhere(
        self, open_here: OpenLink, open_there: OpenLink, links: Links, objects: ObjectStore
    ) -> None:
        """Whatever the number of its batches; a log remembers fewer of them than these."""
        here, there = open_here(links.spec()), open_there(links.spec())
        stored = await store(objects, "blob", [[f"{number}"] for number in range(9)], Stamp(7, 0, 0))
        assert await here.append_stored(stored) == 0
        await there.append(make_entry("other"))
        offsets = await asyncio.gather(*(loglet.append_stored(stored) for loglet in (here, there) * 3))
        assert offsets == [0] * 6
        assert await here.tail() == Tail(10, sealed=False)

    async def test_only_one_of_those_who_hand_it_over_at_once_appends_it(
        self, open_here: OpenLink, open_there: OpenLink, links: Links, objects: ObjectStore
    ) -> None:
        here, there = open_here(links.spec()), open_there(links.spec())
        stored = await store(objects, "blob", [["a", "b"], ["c"]], Stamp(7, 0, 0))
        offsets = await asyncio.gather(*(loglet.append_stored(stored) for loglet in (here, there) * 3))
        assert offsets == [0] * 6
        assert await read_values(there, 0, 3) == ["a", "b", "c"]
        assert await there.tail() == Tail(3, sealed=False)

    async def test_stored_batches_and_others_keep_the_order_of_their_calls(
        self, open_here: OpenLink, links: Links, objects: ObjectStore
    ) -> None:
        loglet = open_here(links.spec())
        stored = [
            await store(objects, f"blob-{number}", [[f"s{number}"]], Stamp(7 + number, 0, 0)) for number in range(5)
        ]

        async def append(number: int) -> int:
            await_stored = number % 2 == 1
            return await (
                loglet.append_stored(stored[number // 2]) if await_stored else loglet.append(make_entry(f"e{number}"))
            )

        assert await asyncio.gather(*(append(number) for number in range(10))) == list(range(10))
        expected = [f"s{number // 2}" if number % 2 else f"e{number}" for number in range(10)]
        assert await read_values(loglet, 0, 10) == expected

    async def test_a_producer_that_has_gone_on_is_fenced(
        self, open_here: OpenLink, open_there: OpenLink, links: Links, objects: ObjectStore
    ) -> None:
        here, there = open_here(links.spec()), open_there(links.spec())
        old = await store(objects, "old", [["a"], ["b"]], Stamp(7, 0, 0))
        new = await store(objects, "new", [["c"]], Stamp(7, 1, 0))
        gap = await store(objects, "gap", [["d"]], Stamp(7, 1, 2))
        assert await here.append_stored(new) == 0
        for loglet in (here, there):
            with pytest.raises(ProducerFenced):
                await loglet.append_stored(old)
            with pytest.raises(OutOfOrderSequence):
                await loglet.append_stored(gap)
        assert await there.tail() == Tail(1, sealed=False)

    async def test_what_comes_too_late_is_refused_and_not_in_the_log(
        self, open_here: OpenLink, links: Links, objects: ObjectStore
    ) -> None:
        loglet = open_here(links.spec())
        late = await store(objects, "late", [["a"]], Stamp(7, 0, 0), not_after_ms=1)
        with pytest.raises(StaleView) as refused:
            await loglet.append_stored(late)
        assert not isinstance(refused.value, Sealed)
        assert await loglet.append_stored(late._replace(not_after_ms=NEVER_MS)) == 0
        with pytest.raises(StaleView):
            await loglet.append_stored(late)
        assert await loglet.tail() == Tail(1, sealed=False)

    async def test_a_seal_ends_it_and_the_next_link_knows_what_was_appended(
        self, open_here: OpenLink, open_there: OpenLink, links: Links, objects: ObjectStore
    ) -> None:
        here, there = open_here(links.spec()), open_there(links.spec())
        stored = await store(objects, "first", [["a"], ["b"]], Stamp(7, 0, 0))
        other = await store(objects, "second", [["c"]], Stamp(8, 0, 0))
        await here.append_stored(stored)
        tail, producers = await there.seal()
        assert tail == 2
        for loglet in (here, there):
            with pytest.raises(Sealed):
                await loglet.append_stored(other)
        following: Loglet = open_here(links.spec(epoch=2, base=2, producers=producers))
        assert await following.append_stored(stored) == 0
        assert await following.append_stored(other) == 2
        assert await read_values(following, 2, 3) == ["c"]
