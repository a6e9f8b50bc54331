"""Groups and their committed offsets in the meta store, written by one coordinator at a time.

A group has one state record and chunks of offsets. Whoever coordinates it takes over by a compare-and-set of the state
that bumps the coordinator epoch, and reads the offsets only after that. From then on the versions it knows are what all
its writes are conditional on, so a coordinator that others have replaced can change nothing:

- **With `transact`**, a write is one group: the state (put, or only checked) and all its chunks. It is applied as a
  whole while the state is the one we hold, or not at all.
- **Without**, the state comes first, then the chunks, each by compare-and-set, and never over a chunk of a higher
  coordinator epoch. Before anybody is told, the state is read again. If it is still ours, a later coordinator takes
  over after that read, and reads the offsets after that, so it sees all that was acked. If it is not, the write counts
  as not acked; a chunk of it that landed late is seen by the next take-over or overwritten by the coordinator in
  office, as any commit may be whose sender was not told its outcome.

A write of unknown outcome is sent again as it was: it expects the same versions, so it is applied once at the most. If
it is refused, the nonce in the state tells whether it had been applied; a chunk is simply written again, since it holds
all of its partitions and says the same.

A deleted group leaves its state behind, marked, with a higher epoch. Chunks of lower epochs do not count from then on,
so a late write to a deleted group brings nothing back, and needs not to be waited for.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator, Mapping, Sequence
from functools import partial
from typing import Literal, NamedTuple, TypeAlias, TypeVar

import msgspec

from catena.errors import CatenaError, Conflict, Contended, Corrupt, OutcomeUnknown, RetryLater, StaleView, StoreRefused
from catena.meta import keys
from catena.meta.base import Check, Committed, MetaStore, Op, Put, Record, expected
from catena.runtime import Clock, Entropy
from catena.types import ABSENT, Expect, TopicId, Version

log = logging.getLogger(__name__)

FORMAT = 1
PARTITIONS_PER_CHUNK = 100
"""So that a chunk is well below the largest value of a meta store, with the longest metadata on every partition."""
PAGE = 100
CHUNKS_AT_ONCE = 8
MAX_REBASES = 20
PAUSES_S = (0.01, 0.05, 0.2, 0.5, 1.0)
"""Before a store call that failed is made again. After the last one the caller hears of it."""

T = TypeVar("T")

Kind: TypeAlias = Literal["classic", "consumer", "deleted"]
Slot: TypeAlias = tuple[TopicId, int]
"""A partition by its topic's id."""
ChunkId: TypeAlias = tuple[TopicId, int]


class GroupHeader(msgspec.Struct, frozen=True, kw_only=True):
    """The first line of a state record; behind it comes the snapshot, as the machine made it."""

    format: int = FORMAT
    kind: Kind
    coordinator_epoch: int
    node_id: int
    """Who took over last; for people."""
    nonce: str
    """Of the write."""
    protocol_type: str
    is_empty: bool
    changed_at_ms: int
    """When the machine was stored last; a take-over leaves it."""
    offsets_from_epoch: int = 0
    """Chunks of lower epochs are those of a group that was deleted."""


class CommittedOffset(msgspec.Struct, frozen=True, array_like=True):
    offset: int
    leader_epoch: int
    metadata: str
    committed_at_ms: int


class OffsetChunk(msgspec.Struct, frozen=True):
    coordinator_epoch: int
    partitions: dict[int, CommittedOffset]


class MachineState(NamedTuple):
    """What is stored of a machine."""

    kind: Kind
    protocol_type: str
    is_empty: bool
    snapshot: bytes


class Change(NamedTuple):
    """One write. All of it is applied before anybody is told of any of it."""

    machine: MachineState | None = None
    """None: as it is stored."""
    offsets: Mapping[Slot, CommittedOffset | None] = {}
    """None: removed."""
    delete: bool = False


class _HeldChunk(NamedTuple):
    expect: Version | Expect
    partitions: dict[int, CommittedOffset]


class HeldGroup:
    """What is stored of a group, as its coordinator knows it. Only GroupStore changes it, after the store has."""

    def __init__(self, group_id: str, node_id: int, header: GroupHeader | None, expect: Version | Expect) -> None:
        self.group_id = group_id
        self.node_id = node_id
        self.header = header
        self.expect = expect
        self.chunks: dict[ChunkId, _HeldChunk] = {}

    @property
    def exists(self) -> bool:
        return self.header is not None and self.header.kind != "deleted"

    def offset(self, topic_id: TopicId, partition: int) -> CommittedOffset | None:
        chunk = self.chunks.get((topic_id, partition // PARTITIONS_PER_CHUNK))
        return None if chunk is None else chunk.partitions.get(partition)

    def offsets(self) -> Iterator[tuple[Slot, CommittedOffset]]:
        for (topic_id, _), chunk in self.chunks.items():
            for partition, committed in chunk.partitions.items():
                yield (topic_id, partition), committed

    def quiet_since_ms(self) -> int:
        """When something was stored last, for a group that exists."""
        assert self.header is not None
        return max([self.header.changed_at_ms, *(committed.committed_at_ms for _, committed in self.offsets())])


class TakenOver(NamedTuple):
    held: HeldGroup
    snapshot: bytes
    """Empty unless the group exists."""


class _NewChunk(NamedTuple):
    chunk_id: ChunkId
    key: str
    partitions: dict[int, CommittedOffset]
    value: bytes


class GroupStore:
    def __init__(self, meta: MetaStore, clock: Clock, entropy: Entropy) -> None:
        self._meta = meta
        self._clock = clock
        self._entropy = entropy

    async def take_over(self, group_id: str, node_id: int) -> TakenOver:
        """Become the coordinator. A group that does not exist stays as it is until the first write."""
        key = keys.group_state(group_id)
        record = await self._patiently(partial(self._meta.get, key))
        nonce = self._entropy.hex_id()
        for _ in range(MAX_REBASES):
            if record is None:
                return TakenOver(HeldGroup(group_id, node_id, None, ABSENT), b"")
            header, snapshot = decode_state(record)
            if header.kind == "deleted":
                return TakenOver(HeldGroup(group_id, node_id, header, record.version), b"")
            ours = msgspec.structs.replace(
                header, coordinator_epoch=header.coordinator_epoch + 1, node_id=node_id, nonce=nonce
            )
            try:
                version = await self._put_state(key, ours, snapshot, record.version)
            except Conflict as conflict:
                record = conflict.current
                await self._clock.sleep(PAUSES_S[0] * self._entropy.jitter())
                continue
            held = HeldGroup(group_id, node_id, ours, version)
            await self._load_offsets(held)
            if not self._meta.can_transact:
                await self._each(list(held.chunks), partial(self._claim, held))
            return TakenOver(held, snapshot)
        raise Contended(f"others take over group {group_id!r} all the time")

    async def write(self, held: HeldGroup, change: Change) -> None:
        """StaleView: another node coordinates the group now. RetryLater: nothing of it was applied that `held` does not
        have. After anything else `held` may be wrong, and the group has to be taken over anew."""
        header, snapshot = self._next_state(held, change)
        epoch = (header or _header_of(held)).coordinator_epoch
        chunks = [] if change.delete else _changed_chunks(held, change.offsets, epoch)
        if self._meta.can_transact:
            await self._write_together(held, header, snapshot, chunks)
        else:
            await self._write_apart(held, header, snapshot, chunks, epoch)
        if change.delete:
            await self._clear(held)

    async def confirm(self, held: HeldGroup) -> None:
        """Return if nobody has taken the group over by now; StaleView otherwise."""
        record = await self._patiently(partial(self._meta.get, keys.group_state(held.group_id)))
        if not expected(held.expect, None if record is None else record.version):
            raise _replaced(held.group_id)

    async def headers(self) -> AsyncIterator[tuple[str, GroupHeader]]:
        """All groups that exist."""
        start, end = keys.GROUPS, keys.after(keys.GROUPS)
        while page := await self._meta.scan(start, end, PAGE):
            for record in page:
                header, _ = decode_state(record)
                if header.kind != "deleted":
                    yield keys.unquoted_group(record.key.removeprefix(keys.GROUPS).split("/")[0]), header
            start = page[-1].key + "\0"

    def _next_state(self, held: HeldGroup, change: Change) -> tuple[GroupHeader | None, bytes]:
        """None: the state record stays."""
        before = held.header
        if change.delete:
            old = _header_of(held)
            epoch = old.coordinator_epoch + 1
            header = msgspec.structs.replace(
                old,
                kind="deleted",
                coordinator_epoch=epoch,
                offsets_from_epoch=epoch,
                is_empty=True,
                nonce=self._entropy.hex_id(),
                changed_at_ms=self._clock.now_ms(),
            )
            return header, b""
        if change.machine is None:
            return None, b""
        # Nobody has taken over a group that does not exist: whoever creates it does.
        epoch = 0 if before is None else before.coordinator_epoch
        header = GroupHeader(
            kind=change.machine.kind,
            coordinator_epoch=epoch if held.exists else epoch + 1,
            node_id=held.node_id,
            nonce=self._entropy.hex_id(),
            protocol_type=change.machine.protocol_type,
            is_empty=change.machine.is_empty,
            changed_at_ms=self._clock.now_ms(),
            offsets_from_epoch=0 if before is None else before.offsets_from_epoch,
        )
        return header, change.machine.snapshot

    async def _write_together(
        self, held: HeldGroup, header: GroupHeader | None, snapshot: bytes, chunks: list[_NewChunk]
    ) -> None:
        key = keys.group_state(held.group_id)
        state: Op = Check(key, held.expect)
        if header is not None:
            state = Put(key, encode_state(header, snapshot), held.expect)
        expects = [_expect(held, chunk) for chunk in chunks]
        for _ in range(MAX_REBASES):
            puts = [Put(chunk.key, chunk.value, expect) for chunk, expect in zip(chunks, expects, strict=True)]
            [result] = await self._patiently(partial(self._meta.transact, [[state, *puts]]))
            if isinstance(result, Committed):
                self._took(held, header, chunks, result.versions)
                return
            found = [None if record is None else record.version for record in result.found]
            if header is not None and _is_of(result.found[0], header.nonce):
                # An attempt that we heard nothing of was applied, with all its chunks, and nobody has written since.
                self._took(held, header, chunks, found)
                return
            if not expected(held.expect, found[0]):
                raise _replaced(held.group_id)
            # The state is ours, so nobody else may write: these are of a group that was deleted, or our own.
            expects = [ABSENT if version is None else version for version in found[1:]]
        raise Contended(f"offsets of group {held.group_id!r} change all the time")

    async def _write_apart(
        self, held: HeldGroup, header: GroupHeader | None, snapshot: bytes, chunks: list[_NewChunk], epoch: int
    ) -> None:
        if header is not None:
            try:
                version = await self._put_state(keys.group_state(held.group_id), header, snapshot, held.expect)
            except Conflict:
                raise _replaced(held.group_id) from None
            held.header, held.expect = header, version
        if not chunks:
            return

        async def put(chunk: _NewChunk) -> None:
            version = await self._put_chunk(held, chunk, epoch)
            held.chunks[chunk.chunk_id] = _HeldChunk(version, chunk.partitions)

        await self._each(chunks, put)
        await self.confirm(held)

    async def _each(self, items: Sequence[T], work: Callable[[T], Awaitable[None]]) -> None:
        slots = asyncio.Semaphore(CHUNKS_AT_ONCE)

        async def one(item: T) -> None:
            async with slots:
                await work(item)

        outcomes = await asyncio.gather(*map(one, items), return_exceptions=True)
        failures = [outcome for outcome in outcomes if outcome is not None]
        # What is retried later must not hide what makes `held` wrong.
        for failure in sorted(failures, key=lambda failure: isinstance(failure, RetryLater)):
            raise failure

    async def _claim(self, held: HeldGroup, chunk_id: ChunkId) -> None:
        """Write a chunk as it is under our epoch, before anybody is told of it: from then on no coordinator that we
        have replaced can put what it last knew over it. Without that, what landed late could be seen, and be gone
        again."""
        header = _header_of(held)
        key = keys.group_offset_chunk(held.group_id, *chunk_id)
        chunk = held.chunks[chunk_id]
        for _ in range(MAX_REBASES):
            value = msgspec.json.encode(OffsetChunk(header.coordinator_epoch, chunk.partitions))
            try:
                version = await self._patiently(partial(self._meta.put, key, value, chunk.expect))
            except Conflict as conflict:
                if conflict.current is None:
                    held.chunks.pop(chunk_id)
                    return
                chunk = _held_chunk(held, conflict.current)
            else:
                held.chunks[chunk_id] = _HeldChunk(version, chunk.partitions)
                return
        raise Contended(f"offsets of group {held.group_id!r} change all the time")

    async def _put_state(self, key: str, header: GroupHeader, snapshot: bytes, expect: Version | Expect) -> Version:
        """Conflict: it was surely not applied, and can't be any more."""
        value = encode_state(header, snapshot)
        try:
            return await self._patiently(partial(self._meta.put, key, value, expect))
        except Conflict as conflict:
            if conflict.current is not None and _is_of(conflict.current, header.nonce):
                return conflict.current.version
            raise

    async def _put_chunk(self, held: HeldGroup, chunk: _NewChunk, epoch: int) -> Version:
        expect = _expect(held, chunk)
        for _ in range(MAX_REBASES):
            try:
                return await self._patiently(partial(self._meta.put, chunk.key, chunk.value, expect))
            except Conflict as conflict:
                found = conflict.current
                if found is not None and _decode_chunk(found).coordinator_epoch > epoch:
                    raise _replaced(held.group_id) from None
                # Of a coordinator that we replaced, and that did not ack it, or our own.
                expect = ABSENT if found is None else found.version
        raise Contended(f"offsets of group {held.group_id!r} change all the time")

    async def _load_offsets(self, held: HeldGroup) -> None:
        prefix = keys.group_offsets(held.group_id)
        start, end = prefix, keys.after(prefix)
        while page := await self._patiently(partial(self._meta.scan, start, end, PAGE)):
            for record in page:
                topic_id, chunk_number = record.key.removeprefix(prefix).split("/")
                held.chunks[TopicId(topic_id), int(chunk_number)] = _held_chunk(held, record)
            start = page[-1].key + "\0"

    async def _clear(self, held: HeldGroup) -> None:
        """Remove the chunks of a group that was just deleted; they do not count any more, so trouble is no matter."""
        chunks, held.chunks = held.chunks, {}
        for (topic_id, number), chunk in chunks.items():
            try:
                await self._meta.delete(keys.group_offset_chunk(held.group_id, topic_id, number), chunk.expect)
            except CatenaError as error:
                log.info("an offset chunk of the deleted group %r stays: %s", held.group_id, error)

    def _took(
        self,
        held: HeldGroup,
        header: GroupHeader | None,
        chunks: list[_NewChunk],
        versions: Sequence[Version | None],
    ) -> None:
        if header is not None:
            assert versions[0] is not None
            held.header, held.expect = header, versions[0]
        for chunk, version in zip(chunks, versions[1:], strict=True):
            assert version is not None
            held.chunks[chunk.chunk_id] = _HeldChunk(version, chunk.partitions)

    async def _patiently(self, call: Callable[[], Awaitable[T]]) -> T:
        """Make a call that may be made twice, until the store answers or the pauses are used up."""
        unknown: OutcomeUnknown | None = None
        for pause_s in (*PAUSES_S, None):
            try:
                return await call()
            except OutcomeUnknown as error:
                unknown = error
                if pause_s is None:
                    raise
            except RetryLater as error:
                if pause_s is None:
                    raise unknown or error from error
            await self._clock.sleep(pause_s * (1 + self._entropy.jitter()))
        raise AssertionError("the last try returns or raises")


def encode_state(header: GroupHeader, snapshot: bytes) -> bytes:
    return msgspec.json.encode(header) + b"\n" + snapshot


def decode_state(record: Record) -> tuple[GroupHeader, bytes]:
    line, _, snapshot = record.value.partition(b"\n")
    try:
        header = _header_decoder.decode(line)
    except msgspec.MsgspecError as error:
        raise Corrupt(f"meta record {record.key} can't be read: {error}") from error
    if header.format > FORMAT:
        raise StoreRefused(f"{record.key} has format {header.format}; this version of Catena reads up to {FORMAT}")
    return header, snapshot


_header_decoder = msgspec.json.Decoder(GroupHeader)
_chunk_decoder = msgspec.json.Decoder(OffsetChunk)


def _decode_chunk(record: Record) -> OffsetChunk:
    try:
        return _chunk_decoder.decode(record.value)
    except msgspec.MsgspecError as error:
        raise Corrupt(f"meta record {record.key} can't be read: {error}") from error


def _changed_chunks(held: HeldGroup, offsets: Mapping[Slot, CommittedOffset | None], epoch: int) -> list[_NewChunk]:
    changed: dict[ChunkId, dict[int, CommittedOffset]] = {}
    for (topic_id, partition), committed in offsets.items():
        chunk_id = (topic_id, partition // PARTITIONS_PER_CHUNK)
        if chunk_id not in changed:
            chunk = held.chunks.get(chunk_id)
            changed[chunk_id] = {} if chunk is None else dict(chunk.partitions)
        if committed is None:
            changed[chunk_id].pop(partition, None)
        else:
            changed[chunk_id][partition] = committed
    return [
        _NewChunk(
            chunk_id,
            keys.group_offset_chunk(held.group_id, *chunk_id),
            partitions,
            msgspec.json.encode(OffsetChunk(epoch, partitions)),
        )
        for chunk_id, partitions in changed.items()
    ]


def _held_chunk(held: HeldGroup, record: Record) -> _HeldChunk:
    """StaleView if it is of a later coordinator: it must not be written under our epoch, nor be told of."""
    header, chunk = _header_of(held), _decode_chunk(record)
    if chunk.coordinator_epoch > header.coordinator_epoch:
        raise _replaced(held.group_id)
    counts = chunk.coordinator_epoch >= header.offsets_from_epoch
    return _HeldChunk(record.version, chunk.partitions if counts else {})


def _expect(held: HeldGroup, chunk: _NewChunk) -> Version | Expect:
    found = held.chunks.get(chunk.chunk_id)
    return ABSENT if found is None else found.expect


def _header_of(held: HeldGroup) -> GroupHeader:
    assert held.header is not None, "a group is created with its machine"
    return held.header


def _is_of(record: Record | None, nonce: str) -> bool:
    return record is not None and decode_state(record)[0].nonce == nonce


def _replaced(group_id: str) -> StaleView:
    return StaleView(f"another node coordinates group {group_id!r} now")
