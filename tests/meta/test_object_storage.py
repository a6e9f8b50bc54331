"""The meta store on object storage keeps the contract, on every object store, a real S3 server included."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from catena.errors import Conflict, Corrupt, OutcomeUnknown, SessionExpired, StoreRefused
from catena.meta.base import Record
from catena.meta.object_storage import ObjectMeta
from catena.meta.object_storage.envelope import Envelope, decode, encode
from catena.meta.object_storage.sessions import EXPIRY_MARGIN, Sessions
from catena.objects.base import ObjectStore
from catena.objects.folder import FolderObjects
from catena.objects.memory import MemoryObjects
from catena.objects.s3 import S3Objects
from catena.runtime import Disk, SystemClock, SystemEntropy
from catena.testing.contracts.meta import MetaStoreContract
from catena.testing.contracts.objects import list_keys
from catena.testing.faults import Fail, Faults, FaultyObjects, Late
from catena.testing.s3_server import SeaweedServer
from catena.types import ABSENT
from tests.meta.manual_clock import ManualClock

TTL_MS = 8_000


class ObjectMetaContract(MetaStoreContract):
    @pytest.fixture
    async def meta(self, objects: ObjectStore) -> AsyncIterator[ObjectMeta]:
        store = ObjectMeta(objects, SystemClock(), SystemEntropy())
        yield store
        await store.close()

    @pytest.fixture
    async def other(self, objects: ObjectStore) -> AsyncIterator[ObjectMeta]:
        store = ObjectMeta(objects, SystemClock(), SystemEntropy())
        yield store
        await store.close()


class TestOnMemory(ObjectMetaContract):
    @pytest.fixture
    def objects(self) -> MemoryObjects:
        return MemoryObjects(SystemClock())


class TestOnFolder(ObjectMetaContract):
    @pytest.fixture
    async def objects(self, tmp_path: Path) -> AsyncIterator[FolderObjects]:
        disk = Disk()
        yield await FolderObjects.open(tmp_path, disk, SystemClock(), SystemEntropy())
        disk.close()


class TestOnS3(ObjectMetaContract):
    @pytest.fixture
    def objects(self, s3_server: SeaweedServer) -> S3Objects:
        return S3Objects(s3_server.settings(f"meta/{SystemEntropy().hex_id()}"))


@given(st.text("0123456789abcdef", min_size=1), st.binary() | st.none(), st.text("0123456789abcdef.") | st.none())
def test_an_envelope_is_read_as_it_was_written(nonce: str, value: bytes | None, session: str | None) -> None:
    envelope = Envelope(nonce, value, session)
    assert decode("k", b"".join(encode(envelope))) == envelope


def test_what_is_no_envelope_is_corrupt() -> None:
    whole = b"".join(encode(Envelope("n", b"value", "s")))
    header = whole.index(b"\n")
    for cut in range(header + 1):
        with pytest.raises(Corrupt, match="object k "):
            decode("k", whole[:cut])
    with pytest.raises(StoreRefused, match="upgrade"):
        decode("k", whole.replace(b'"format":1', b'"format":2'))


@pytest.fixture
def objects() -> MemoryObjects:
    return MemoryObjects(SystemClock())


@pytest.fixture
def faults() -> Faults:
    return Faults()


@pytest.fixture
async def faulty(objects: MemoryObjects, faults: Faults) -> AsyncIterator[ObjectMeta]:
    store = ObjectMeta(FaultyObjects(objects, faults), SystemClock(), SystemEntropy())
    yield store
    await store.close()


@pytest.mark.parametrize("error", [OutcomeUnknown("the answer was lost"), Conflict("meta/t/a")])
async def test_a_write_is_recognized_as_one_s_own(faulty: ObjectMeta, faults: Faults, error: Exception) -> None:
    """Its answer was lost, or the store tried again by itself and was refused because of its own first try."""
    assert isinstance(error, OutcomeUnknown | Conflict)
    faults.at("a put", Fail(error, applied=True))
    version = await faulty.put("t/a", b"1", ABSENT)
    assert await faulty.get("t/a") == Record("t/a", b"1", version)
    faults.at("a put", Fail(error, applied=True))
    await faulty.delete("t/a", version)
    assert await faulty.get("t/a") is None


async def test_a_write_that_may_still_be_under_way_is_unknown(faulty: ObjectMeta, faults: Faults) -> None:
    version = await faulty.put("t/a", b"1")
    late = faults.at("a put", Late())
    with pytest.raises(OutcomeUnknown):
        await faulty.put("t/a", b"2", version)
    assert await faulty.get("t/a") == Record("t/a", b"1", version)
    await late.arrive()
    found = await faulty.get("t/a")
    assert found is not None
    assert found.value == b"2"


async def test_a_late_overwrite_does_not_undo_what_others_wrote(faulty: ObjectMeta, faults: Faults) -> None:
    """Even a put that expects nothing goes by the etag that it read."""
    await faulty.put("t/a", b"1")
    late = faults.at("a put", Late())
    with pytest.raises(OutcomeUnknown):
        await faulty.put("t/a", b"2")
    version = await faulty.put("t/a", b"3")
    with pytest.raises(Conflict):
        await late.arrive()
    assert await faulty.get("t/a") == Record("t/a", b"3", version)


async def test_equal_values_never_make_equal_objects(faulty: ObjectMeta, objects: MemoryObjects) -> None:
    await faulty.put("t/a", b"same")
    before = await objects.get("meta/t/a")
    await faulty.put("t/a", b"same")
    assert (await objects.get("meta/t/a")).data != before.data


async def test_tombstones_stay_until_the_key_is_put_again_or_its_range_deleted(
    faulty: ObjectMeta, objects: MemoryObjects
) -> None:
    for key in ("t/a", "t/b"):
        await faulty.delete(key, await faulty.put(key, b"x" * 1000))
    assert await list_keys(objects, "") == ["meta/t/a", "meta/t/b"]
    assert (await objects.head("meta/t/a")).size < 100
    await faulty.put("t/a", b"again", ABSENT)
    await faulty.delete_range("t/", "t0")
    assert await list_keys(objects, "") == []


async def test_a_session_is_over_when_it_was_seen_unchanged_for_its_time_to_live(objects: MemoryObjects) -> None:
    owner_clock, observer_clock = ManualClock(5), ManualClock(90_000)
    owner = Sessions(objects, owner_clock, SystemEntropy())
    observer = Sessions(objects, observer_clock, SystemEntropy())
    session = await owner.create(TTL_MS)
    for _ in range(3):
        assert await observer.is_alive(session)
        observer_clock.pause(TTL_MS / 1000)
        assert await observer.is_alive(session), "not for the whole time and the margin"
        assert await owner.renew(session, TTL_MS)
        observer_clock.pause(TTL_MS / 1000)
    assert await observer.is_alive(session)
    observer_clock.pause(EXPIRY_MARGIN * TTL_MS / 1000)
    assert not await observer.is_alive(session)
    assert not await owner.renew(session, TTL_MS), "a paused owner learns it with its next renewal"
    assert not await owner.is_alive(session)


async def test_a_renewal_whose_answer_was_lost_does_not_lose_the_session(
    objects: MemoryObjects, faults: Faults
) -> None:
    owner = Sessions(FaultyObjects(objects, faults), ManualClock(), SystemEntropy())
    session = await owner.create(TTL_MS)
    faults.at(f"{session} put", Fail(OutcomeUnknown("lost"), applied=True))
    with pytest.raises(OutcomeUnknown):
        await owner.renew(session, TTL_MS)
    assert await owner.renew(session, TTL_MS)


async def test_sessions_of_dead_owners_are_cleared_away(objects: MemoryObjects) -> None:
    clock = ManualClock()
    dead = await Sessions(objects, clock, SystemEntropy()).create(TTL_MS)
    living = Sessions(objects, clock, SystemEntropy())
    mine = await living.create(TTL_MS)
    await living.look_around()
    clock.pause(EXPIRY_MARGIN * TTL_MS / 1000)
    await living.renew(mine, TTL_MS)
    await living.look_around()
    assert await list_keys(objects, "") == [f"meta-sessions/{mine}"]
    assert not await living.is_alive(dead)


async def test_an_owner_past_its_own_deadline_puts_nothing(objects: MemoryObjects) -> None:
    clock = ManualClock()
    store = ObjectMeta(objects, clock, SystemEntropy())
    session = await store.session(TTL_MS)
    clock.pause(TTL_MS / 1000)
    with pytest.raises(SessionExpired):
        await store.put("e/a", b"", ephemeral=session)
    await store.close()
