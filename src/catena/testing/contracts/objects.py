"""The contract of `catena.objects.base`, as tests.

A backend's test module subclasses ObjectStoreContract and gives two fixtures: `store`, which is empty, and
`second_store`, another handle on the same data, such as another process would have. Nothing in here may be overridden.
"""

from __future__ import annotations

import asyncio

import pytest

from catena.errors import Conflict, Corrupt, ObjectMissing, StoreUnavailable
from catena.objects.base import ObjectStore, Range
from catena.types import ABSENT, ANY, ETag

MIB = 1 << 20
RACERS = 4
INCREMENTS = 3
MORE_THAN_A_PAGE = 1_050
"""Stores list 1,000 objects at a time."""

IN_BYTE_ORDER = [
    "t/a",
    "t/b-c",
    "t/b.c",
    "t/b/c",
    "t/b/c-d",
    "t/b/d/e",
    "t/b0",
    "t/b=",
    "t/bB",
    "t/b_",
    "t/bb/c",
    "t/c",
]
"""`-` and `.` are below `/`, all else is above: a walk through folders by name gets this wrong."""

BAD_KEYS = ["", "/a", "a/", "a//b", ".", "..", "a/./b", "../a", "a b", "a~", "a\n", "ä", "a" * 256, "a/" * 500 + "a"]


async def list_keys(store: ObjectStore, prefix: str, after: str = "") -> list[str]:
    return [info.key async for info in store.list(prefix, after)]


async def increment(store: ObjectStore, key: str, times: int) -> None:
    """Count up by compare-and-set."""
    for _ in range(times):
        while True:
            blob = await store.get(key)
            try:
                await store.put(key, [b"%d" % (int(blob.data) + 1)], blob.etag)
                break
            except (Conflict, StoreUnavailable):
                continue


class ObjectStoreContract:
    async def test_get_returns_the_buffers_joined(self, store: ObjectStore) -> None:
        middle = memoryview(b"not cdefg this")[4:9]
        etag = await store.put("a/b", [b"a", b"", bytearray(b"b"), middle, b"h"])
        assert await store.get("a/b") == (b"abcdefgh", etag)

    async def test_an_object_can_be_empty(self, store: ObjectStore) -> None:
        await store.put("nothing", [])
        await store.put("empty", [b""])
        assert (await store.get("nothing")).data == b""
        assert (await store.get("empty")).data == b""
        assert (await store.head("empty")).size == 0

    async def test_an_object_can_be_large(self, store: ObjectStore, second_store: ObjectStore) -> None:
        parts = [bytes([number]) * (3 * MIB) for number in range(3)]
        await store.put("large", parts)
        assert (await second_store.get("large")).data == b"".join(parts)
        across = Range(3 * MIB - 2, 3 * MIB + 4)
        (found,) = await second_store.get_ranges("large", [across])
        assert bytes(found) == b"\0\0" + parts[1] + b"\2\2"

    async def test_an_object_can_come_in_many_buffers(self, store: ObjectStore) -> None:
        parts = [b"%d," % number for number in range(3_000)]
        await store.put("pieces", parts)
        assert (await store.get("pieces")).data == b"".join(parts)

    async def test_buffers_belong_to_the_caller_again_after_the_put(self, store: ObjectStore) -> None:
        buffer = bytearray(b"before")
        await store.put("a", [buffer])
        buffer[:] = b"after!"
        assert (await store.get("a")).data == b"before"

    async def test_what_is_absent_is_missing(self, store: ObjectStore) -> None:
        await store.put("a/b", [b"1"])
        for absent in ("b", "a", "a/c", "a/b/c"):
            for read in (store.get(absent), store.head(absent), store.get_ranges(absent, [Range(0, 1)])):
                with pytest.raises(ObjectMissing) as raised:
                    await read
                assert raised.value.key == absent

    @pytest.mark.parametrize("key", BAD_KEYS)
    async def test_a_bad_key_is_a_bug_of_the_caller(self, store: ObjectStore, key: str) -> None:
        for call in (store.put(key, [b""]), store.get(key), store.head(key), store.delete([key])):
            with pytest.raises(ValueError, match="key of an object"):
                await call

    async def test_absent_creates_once(self, store: ObjectStore, second_store: ObjectStore) -> None:
        etag = await store.put("a", [b"first"], ABSENT)
        for handle in (store, second_store):
            with pytest.raises(Conflict):
                await handle.put("a", [b"second"], ABSENT)
        assert await second_store.get("a") == (b"first", etag)

    async def test_any_creates_and_replaces(self, store: ObjectStore) -> None:
        await store.put("a", [b"first"], ANY)
        await store.put("a", [b"2"], ANY)
        assert (await store.get("a")).data == b"2"

    async def test_an_etag_replaces_just_that_version(self, store: ObjectStore, second_store: ObjectStore) -> None:
        first = await store.put("a", [b"first"])
        second = await second_store.put("a", [b"second"], first)
        with pytest.raises(Conflict):
            await store.put("a", [b"third"], first)
        assert await store.get("a") == (b"second", second)

    async def test_an_etag_does_not_bring_back_what_was_deleted(self, store: ObjectStore) -> None:
        etag = await store.put("a", [b"first"])
        await store.delete(["a"])
        with pytest.raises(Conflict):
            await store.put("a", [b"second"], etag)
        with pytest.raises(ObjectMissing):
            await store.get("a")
        await store.put("a", [b"third"], ABSENT)

    async def test_an_etag_changes_with_the_content(self, store: ObjectStore) -> None:
        etags = [await store.put("a", [b"%d" % number]) for number in range(10)]
        assert len(set(etags)) == 10

    async def test_all_tell_the_same_etag(self, store: ObjectStore, second_store: ObjectStore) -> None:
        etag = await store.put("a/b", [b"12345"])
        (info,) = [info async for info in second_store.list("a/")]
        assert (info.key, info.size, info.etag) == ("a/b", 5, etag)
        assert await second_store.head("a/b") == info
        assert (await second_store.get("a/b")).etag == etag

    async def test_one_of_racing_creators_wins(self, store: ObjectStore, second_store: ObjectStore) -> None:
        async def create(number: int) -> int | None:
            try:
                await (store, second_store)[number % 2].put("a", [b"%d" % number], ABSENT)
            except (Conflict, StoreUnavailable):
                return None
            return number

        winners = [n for n in await asyncio.gather(*map(create, range(RACERS))) if n is not None]
        assert len(winners) == 1
        assert (await store.get("a")).data == b"%d" % winners[0]

    async def test_racing_compare_and_sets_lose_no_update(self, store: ObjectStore, second_store: ObjectStore) -> None:
        await store.put("counter", [b"0"])
        handles = [(store, second_store)[number % 2] for number in range(RACERS)]
        await asyncio.gather(*(increment(handle, "counter", INCREMENTS) for handle in handles))
        assert (await store.get("counter")).data == b"%d" % (RACERS * INCREMENTS)

    async def test_one_of_a_racing_replacement_and_a_delete_comes_last(
        self, store: ObjectStore, second_store: ObjectStore
    ) -> None:
        for _ in range(3):
            etag = await store.put("a", [b"first"])
            replaced, _ = await asyncio.gather(
                store.put("a", [b"second"], etag), second_store.delete(["a"]), return_exceptions=True
            )
            assert isinstance(replaced, str | Conflict)
            if isinstance(replaced, Conflict):
                with pytest.raises(ObjectMissing):
                    await store.get("a")
            await store.delete(["a"])

    async def test_ranges_come_in_the_order_asked(self, store: ObjectStore) -> None:
        await store.put("a", [b"0123456789"])
        ranges = [Range(5, 3), Range(0, 2), Range(1, 5), Range(9, 1), Range(0, 10), Range(5, 3)]
        found = await store.get_ranges("a", ranges)
        assert [bytes(part) for part in found] == [b"567", b"01", b"12345", b"9", b"0123456789", b"567"]

    async def test_ranges_of_no_length_are_empty(self, store: ObjectStore) -> None:
        await store.put("a", [b"0123456789"])
        found = await store.get_ranges("a", [Range(3, 0), Range(2, 2), Range(10, 0), Range(99, 0)])
        assert [bytes(part) for part in found] == [b"", b"23", b"", b""]
        assert await store.get_ranges("a", []) == []
        assert await store.get_ranges("absent", []) == []
        assert [bytes(part) for part in await store.get_ranges("absent", [Range(0, 0)])] == [b""]

    @pytest.mark.parametrize("beyond", [Range(8, 3), Range(10, 1), Range(500, 20)])
    async def test_a_range_past_the_end_is_corruption(self, store: ObjectStore, beyond: Range) -> None:
        await store.put("a", [b"0123456789"])
        with pytest.raises(Corrupt, match="object a "):
            await store.get_ranges("a", [Range(0, 4), beyond])

    async def test_list_is_in_byte_order(self, store: ObjectStore, second_store: ObjectStore) -> None:
        for key in reversed([*IN_BYTE_ORDER, "s/z", "t-", "u"]):
            await store.put(key, [b"1"])
        assert await list_keys(second_store, "") == ["s/z", "t-", *IN_BYTE_ORDER, "u"]
        assert await list_keys(second_store, "t/") == IN_BYTE_ORDER

    async def test_list_takes_any_string_as_prefix(self, store: ObjectStore) -> None:
        for key in IN_BYTE_ORDER:
            await store.put(key, [b"1"])
        for prefix in ("t", "t/b", "t/b/", "t/b/c", "t/b-", "t/bb", "t/bb/c", "t/c", "t/d", "no/such", "t/a/no"):
            assert await list_keys(store, prefix) == [key for key in IN_BYTE_ORDER if key.startswith(prefix)]

    async def test_list_goes_on_after_any_string(self, store: ObjectStore) -> None:
        for key in IN_BYTE_ORDER:
            await store.put(key, [b"1"])
        for after in (*IN_BYTE_ORDER, "s", "t/b", "t/b/", "t/b/b", "t/b/cc", "t/b/d", "t/b5", "u"):
            assert await list_keys(store, "t/", after) == [key for key in IN_BYTE_ORDER if key > after]
            assert await list_keys(store, "t/b", after) == [
                key for key in IN_BYTE_ORDER if key > after and key.startswith("t/b")
            ]

    async def test_list_sees_more_than_a_page(self, store: ObjectStore) -> None:
        keys = [f"many/{number:05d}" for number in range(MORE_THAN_A_PAGE)]
        for start in range(0, len(keys), 50):
            await asyncio.gather(*(store.put(key, [b"1"], ABSENT) for key in keys[start : start + 50]))
        assert await list_keys(store, "many/") == keys
        assert await list_keys(store, "many/", after=keys[20]) == keys[21:]
        await store.delete(keys)
        assert await list_keys(store, "many/") == []

    async def test_list_yields_once_what_stays_while_others_come_and_go(self, store: ObjectStore) -> None:
        for number in range(10):
            await store.put(f"l/{number}", [b"1"])
        seen = []
        async for info in store.list("l/"):
            seen.append(info.key)
            if info.key == "l/2":
                await store.delete(["l/1", "l/7"])
                await store.put("l/8", [b"replaced"])
                await store.put("l/25", [b"new"])
        assert [key for key in seen if key not in ("l/7", "l/25")] == [
            f"l/{number}" for number in range(10) if number != 7
        ]
        assert seen == sorted(set(seen))

    async def test_delete_takes_what_is_there(self, store: ObjectStore, second_store: ObjectStore) -> None:
        for key in ("a/b", "a/c", "d"):
            await store.put(key, [b"1"])
        await store.delete(["a/b", "d", "absent", "no/such/folder", "a/b/under", "a"])
        await store.delete(["a/b"])
        await store.delete([])
        assert await list_keys(second_store, "") == ["a/c"]
        with pytest.raises(ObjectMissing):
            await second_store.head("d")

    async def test_a_put_that_returned_is_seen_by_all(self, store: ObjectStore, second_store: ObjectStore) -> None:
        etag: ETag | None = None
        for number in range(5):
            etag = await store.put("a/b", [b"%d" % number], ABSENT if etag is None else etag)
            assert await second_store.get("a/b") == (b"%d" % number, etag)
            assert (await second_store.head("a/b")).etag == etag
            assert [info.etag async for info in second_store.list("a")] == [etag]
