"""Watches wake for the keys under their prefix, and only for those."""

from __future__ import annotations

import asyncio

import pytest

from catena.errors import StoreUnavailable
from catena.meta.watches import LocalWatch, Watches


def is_awake(watch: LocalWatch) -> bool:
    """Whether `changed` would return at once; it then counts as returned."""
    coroutine = watch.changed()
    try:
        coroutine.send(None)
    except StopIteration:
        return True
    coroutine.close()
    return False


async def test_a_key_wakes_just_the_prefixes_it_starts_with() -> None:
    watches = Watches()
    prefixes = ["", "a", "a/", "a/b", "a/b/", "a/c", "b", "a/bb"]
    opened = {prefix: watches.open(prefix) for prefix in prefixes}
    watches.wake(["a/b"])
    assert [prefix for prefix, watch in opened.items() if is_awake(watch)] == ["", "a", "a/", "a/b"]
    assert not any(is_awake(watch) for watch in opened.values())
    watches.wake_all()
    assert all(is_awake(watch) for watch in opened.values())


async def test_changes_coalesce() -> None:
    watches = Watches()
    watch = watches.open("a/")
    watches.wake(["a/1", "a/2"])
    watches.wake(["a/3"])
    assert is_awake(watch)
    assert not is_awake(watch)


async def test_several_watches_of_one_prefix_wake_and_close_apart() -> None:
    watches = Watches()
    first, second = watches.open("a/"), watches.open("a/")
    first.close()
    assert watches.is_watched("a/")
    watches.wake(["a/1"])
    assert is_awake(second)
    second.close()
    assert not watches.is_watched("a/")
    assert len(watches) == 0


async def test_who_waits_is_known() -> None:
    watches = Watches()
    watch = watches.open("a/")
    assert not watches.is_awaited("a/")
    waiting = asyncio.ensure_future(watch.changed())
    await asyncio.sleep(0)
    assert watches.is_awaited("a/")
    watches.wake(["a/1"])
    await waiting
    assert not watches.is_awaited("a/")


async def test_closing_all_ends_every_wait() -> None:
    watches = Watches()
    waits = [asyncio.ensure_future(watches.open(prefix).changed()) for prefix in ("a/", "b/", "a/")]
    await asyncio.sleep(0)
    watches.close()
    for result in await asyncio.gather(*waits, return_exceptions=True):
        assert isinstance(result, StoreUnavailable)


async def test_a_closed_watch_says_so() -> None:
    watch = Watches().open("a/")
    watch.close()
    with pytest.raises(StoreUnavailable, match="'a/' was closed"):
        await watch.changed()
