"""The part of the meta store's contract that is about `transact`; see `catena.testing.contracts.meta`."""

from __future__ import annotations

import asyncio

import pytest

from catena.errors import Rejected
from catena.meta.base import (
    MAX_VALUE_BYTES,
    Check,
    Committed,
    Delete,
    Group,
    MetaStore,
    Put,
    Record,
    Refused,
)
from catena.meta.keys import after
from catena.types import ABSENT, Version

PATIENCE_S = 60
STALE = Version("no-such-version")

needs_transact = pytest.mark.usefixtures("capability")


class TransactContract:
    @pytest.fixture
    def capability(self, meta: MetaStore) -> None:
        if not meta.can_transact:
            pytest.skip("this store declares that it cannot transact")

    @needs_transact
    async def test_each_group_gets_its_own_answer(self, meta: MetaStore, other: MetaStore) -> None:
        old = await meta.put("x/a", b"a")
        taken = await meta.put("x/b", b"b")
        results = await other.transact(
            [
                [Put("x/a", b"A", old), Put("x/a.index", b"", ABSENT), Put("x/any", b"")],
                [Put("x/b", b"B", ABSENT), Put("x/b.index", b"", ABSENT)],
                [Check("x/c", ABSENT), Put("x/c.index", b"C", ABSENT)],
                [],
            ]
        )
        first, refused, third, nothing = results
        assert isinstance(first, Committed)
        assert isinstance(third, Committed)
        assert refused == Refused((Record("x/b", b"b", taken), None))
        assert nothing == Committed(())
        a, a_index, any_, c_index = *first.versions, third.versions[1]
        assert third.versions[0] is None
        assert a
        assert a_index
        assert any_
        assert c_index
        assert await meta.scan("x/", after("x/")) == [
            Record("x/a", b"A", a),
            Record("x/a.index", b"", a_index),
            Record("x/any", b"", any_),
            Record("x/b", b"b", taken),
            Record("x/c.index", b"C", c_index),
        ]
        assert old not in (a, a_index, any_, c_index)

    @needs_transact
    async def test_a_refused_group_tells_what_it_found(self, meta: MetaStore) -> None:
        there = Record("x/there", b"1", await meta.put("x/there", b"1"))
        group: Group = [Put("x/new", b"", ABSENT), Check("x/there", ABSENT), Delete("x/gone", STALE)]
        (result,) = await meta.transact([group])
        assert result == Refused((None, there, None))
        (result,) = await meta.transact([[Delete("x/there", there.version), Put("x/gone", b"", STALE)]])
        assert result == Refused((there, None))
        assert await meta.scan("x/", after("x/")) == [there]

    @needs_transact
    async def test_deletes_and_checks_in_a_group(self, meta: MetaStore, other: MetaStore) -> None:
        version = await meta.put("x/a", b"")
        guard = await meta.put("x/guard", b"")
        group: Group = [Check("x/guard", guard), Delete("x/a", version), Delete("x/b"), Delete("x/c", ABSENT)]
        assert await other.transact([group]) == [Committed((None, None, None, None))]
        assert [record.key for record in await meta.scan("x/", after("x/"))] == ["x/guard"]
        await meta.put("x/guard", b"moved")
        (result,) = await other.transact([[Check("x/guard", guard), Put("x/a", b"")]])
        assert isinstance(result, Refused)
        assert await meta.get("x/a") is None

    @needs_transact
    async def test_a_key_stands_once_in_a_call(self, meta: MetaStore) -> None:
        twice: list[list[Group]] = [[[Put("x/a", b""), Delete("x/a")]], [[Put("x/a", b"")], [Check("x/a", ABSENT)]]]
        for groups in twice:
            with pytest.raises(Rejected):
                await meta.transact(groups)
        with pytest.raises(Rejected):
            await meta.transact([[Put("x/a", bytes(MAX_VALUE_BYTES + 1))]])
        assert await meta.get("x/a") is None

    @needs_transact
    async def test_many_groups_in_one_call(self, meta: MetaStore, other: MetaStore) -> None:
        groups = [[Put(f"m/{number:04d}/{part}", b"") for part in "abc"] for number in range(300)]
        results = await meta.transact(groups)
        assert all(isinstance(result, Committed) for result in results)
        assert len(await other.scan("m/", after("m/"))) == 900

    @needs_transact
    async def test_racing_creates_of_one_key_in_several_groups(self, meta: MetaStore, other: MetaStore) -> None:
        """All want `shared`, and each a key of its own: one group is applied, and nothing of the others is."""
        calls = [
            (meta, other)[number % 2].transact(
                [
                    [Put(f"x/own-{number}", b"", ABSENT), Put("x/shared", b"%d" % number, ABSENT)],
                    [Put(f"y/{number}", b"")],
                ]
            )
            for number in range(8)
        ]
        results = await asyncio.wait_for(asyncio.gather(*calls), PATIENCE_S)
        (winner,) = [number for number, (mine, _) in enumerate(results) if isinstance(mine, Committed)]
        assert all(isinstance(bystander, Committed) for _, bystander in results)
        assert [record.key for record in await meta.scan("x/", after("x/"))] == [f"x/own-{winner}", "x/shared"]
        assert len(await meta.scan("y/", after("y/"))) == 8

    @needs_transact
    async def test_groups_that_exclude_each_other_are_never_both_applied(
        self, meta: MetaStore, other: MetaStore
    ) -> None:
        """Each of two groups puts one key if the other key is absent, by a Check or by a Delete that expects it."""
        for number, expect_absent in enumerate([Check, Delete] * 5):
            one, two = f"x/{number}-one", f"x/{number}-two"
            results = await asyncio.wait_for(
                asyncio.gather(
                    meta.transact([[expect_absent(one, ABSENT), Put(two, b"")]]),
                    other.transact([[Put(one, b""), expect_absent(two, ABSENT)]]),
                ),
                PATIENCE_S,
            )
            assert [type(result) for (result,) in results].count(Committed) == 1

    @needs_transact
    async def test_overlapping_calls_never_block_each_other_for_good_nor_apply_by_half(
        self, meta: MetaStore, other: MetaStore
    ) -> None:
        """Each group adds one to two counters, and neighbours name the same counters in opposite orders."""
        keys = [f"o/{number}" for number in range(5)]
        committed = 0

        def add_one(key: str, found: Record | None) -> Put:
            return Put(key, b"%d" % (int(found.value) + 1), found.version) if found else Put(key, b"1", ABSENT)

        async def add(store: MetaStore, number: int) -> None:
            nonlocal committed
            for turn in range(6):
                first, second = keys[(number + turn) % 5], keys[(number + turn + 1 + turn % 3) % 5]
                ops = [add_one(key, None) for key in ((first, second) if number % 2 else (second, first))]
                (result,) = await store.transact([ops])
                while isinstance(result, Refused):
                    ops = [add_one(op.key, found) for op, found in zip(ops, result.found, strict=True)]
                    (result,) = await store.transact([ops])
                committed += 1

        async with asyncio.timeout(PATIENCE_S):
            await asyncio.gather(*[add((meta, other)[number % 2], number) for number in range(6)])
        counters = await meta.scan("o/", after("o/"))
        assert sum(int(record.value) for record in counters) == 2 * committed == 72
