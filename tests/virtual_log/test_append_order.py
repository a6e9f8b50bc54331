"""Places in the order of calls: who may be handed to a link, and when."""

from __future__ import annotations

import asyncio

from catena.virtual_log.append_order import OVER, Place


async def waits(place: Place, epoch: int) -> asyncio.Task[None]:
    """A task of the append behind `place`, which waits for it."""
    task = asyncio.ensure_future(place.reach(epoch))
    await asyncio.sleep(0)
    assert not task.done()
    return task


async def test_the_next_one_waits_until_it_is_in_the_same_link_or_a_later_one() -> None:
    place = Place()
    behind = await waits(place, 2)
    place.hand_to(1)
    await asyncio.sleep(0)
    assert not behind.done()
    place.hand_to(2)
    await behind
    assert place.has_reached(2)
    assert not place.has_reached(3)


async def test_nobody_waits_for_one_that_is_over() -> None:
    place = Place()
    behind = await waits(place, 2)
    place.leave(Place(OVER))
    await behind
    assert place.is_over
    assert place.has_reached(2)


async def test_one_that_leaves_hands_the_wait_on_to_the_one_before_it() -> None:
    first, second, third = Place(), Place(), Place()
    first.hand_to(1)
    second.leave(first)
    third.leave(second)
    behind = await waits(third, 2)
    assert not third.has_reached(2)
    first.hand_to(2)
    await behind
