"""Writes of applications: what is in the object store already, and is to become a part of many logs exactly once.

A write is named by (application, version), and versions of an application only grow. Who writes puts blobs first, which
nobody sees, and then says what it means to do: the intent, all runs of all blobs, is published by one compare-and-set
of the application's head. From then on anyone may finish the write, by appending each run to its log; runs carry the
stamp of an idempotent producer, so that it does not matter who does it, how often, and how many at once.

    head: {done, open}    done: all versions up to this one are over
                          open: the one write that is under way, if there is one

    1. put blobs                               crash: orphans
    2. write the body, if it is large          crash: parts that the next version's end deletes, or vacuum
    3. head: open = the intent                 crash: whoever comes next with this application goes on, or abandons it
    4. head: the intent is confirmed           crash: whoever comes next finishes it
    5. append each run to its log              crash: the same
    6. head: done = version, open = None       crash: the write is over
    7. delete the body                         crash: the next version's end deletes it, or vacuum
    8. delete the head, much later             crash: nothing is lost by it

**One record decides.** A second attempt at a version finds the first one's intent, finishes that, and drops its own
runs; one that comes when the version is done drops them, too. There is no list of what is done: an application does one
thing after the other, as a streaming query does, and so one number says it all. A version that was never begun when a
later one was is over for good, as in Delta's transactions.

**Why an intent is confirmed.** Vacuum takes blobs that are old and that nothing refers to. Whoever publishes an intent
may sleep just before, for so long that vacuum has taken its blobs. So nothing is appended before somebody has looked at
the clock after the intent was there: if the blobs were young enough then, no vacuum that did not see the intent takes
them. If they were not, the intent is abandoned: the compare-and-set that does so and the one that confirms exclude each
other, and nobody has appended anything.

**Unknown outcomes** of 3, 4 and 6 are settled by reading the head: the intent has a nonce, and `done` never goes back.

**A body that is gone** means that its write is over: its parts are deleted after the head says so. Or that it was never
confirmed, and is abandoned then: vacuum deletes bodies that are older than its grace and that no head names, for nobody
may come back for them (`forget_unpublished`). A nonce tells when its body was written; no blob of the write is younger.
Whoever wakes up after that, and publishes the intent of such a body, finds that the blobs are too old to be confirmed,
if not that the body is gone. One that is confirmed was named by its head when it was young: so vacuum, which looks at
parts first and at their head then, has seen it there.

**Writes that nobody comes back for** are finished by the pipeline (`source.finishing`): what was decided is decided. A
head says since when its last write is over, and is deleted long after that (`forget`); an application that comes back
then begins anew, and could write a version once more that it had written before. The head of a write without a name
goes with it, or a day after others have finished it.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable
from typing import NamedTuple, TypeAlias

import msgspec

from catena.errors import ConfigError, Conflict, Contended, Corrupt, OutcomeUnknown, Rejected
from catena.meta import keys
from catena.meta.base import MAX_VALUE_BYTES, MetaStore, Record
from catena.runtime import Clock, Entropy
from catena.types import ABSENT, Expect, Offset, TopicId, Version

MAX_ATTEMPTS = 50
BACKOFF_S = 0.01
MAX_INLINE_BYTES = 128 << 10
PART_BYTES = MAX_VALUE_BYTES // 2
MAX_PARTS = 1000
MAX_VERSION = (1 << 63) - 1
NONE_DONE = -1
ONCE_KEPT_MS = 24 * 3_600_000
"""The head of a write that others have finished: so long the one who has begun it may sleep, and still be told."""


class StoredRun(msgspec.Struct, frozen=True, array_like=True):
    """Batches of one partition that lie one after the other in a blob."""

    topic_id: TopicId
    partition: int
    at: int
    """Its first byte in the blob."""
    length: int
    count: int
    """Of records."""
    max_timestamp: int


class StoredBlob(msgspec.Struct, frozen=True):
    key: str
    created_at_ms: int
    producer_id: int
    """Of all its batches; in each partition the producer has no others of this epoch."""
    producer_epoch: int
    runs: tuple[StoredRun, ...]


class PartitionTail(msgspec.Struct, frozen=True, array_like=True):
    topic_id: TopicId
    partition: int
    tail: Offset


class Body(msgspec.Struct, frozen=True):
    topics: dict[TopicId, str]
    """Their names."""
    tails: tuple[PartitionTail, ...]
    """Of the partitions that are written to: below these is nothing of the write."""
    blobs: tuple[StoredBlob, ...]
    """In the order in which their runs are appended."""


class Intent(msgspec.Struct, frozen=True, omit_defaults=True):
    version: int
    nonce: str
    created_at_ms: int
    is_confirmed: bool = False
    """Its blobs will stay, and its runs may be appended."""
    parts: int = 0
    """How many records its body has; 0: it is here."""
    body: Body | None = None
    is_once: bool = False
    """Its application is this one write: nobody but the one who has begun it comes again for it."""


class WriteHead(msgspec.Struct, frozen=True, omit_defaults=True):
    done: int = NONE_DONE
    open: Intent | None = None
    at_ms: int = 0
    """When the last one was over; 0: it is not known."""
    is_once: bool = False
    """It was the only one, and another has finished it."""


class Done(NamedTuple):
    """The version is over."""

    version: int


Begun: TypeAlias = Intent | Done

_encode = msgspec.json.Encoder().encode
_body = msgspec.json.Decoder(Body)
_head = msgspec.json.Decoder(WriteHead)


class Intents:
    def __init__(self, meta: MetaStore, clock: Clock, entropy: Entropy) -> None:
        self._meta = meta
        self._clock = clock
        self._entropy = entropy

    async def find(self, app: str) -> WriteHead:
        check_app(app)
        return _found(await self._meta.get(keys.write_head(app)))[0]

    async def begin(self, app: str, version: int, body: Body, is_once: bool = False) -> Begun:
        """Publish the intent; or the one that is under way, whatever its version; or Done, if there is nothing to do.

        Whoever gets an intent finishes it. If it is one of an earlier version, this is called again then.
        """
        check_app(app)
        if not 0 <= version <= MAX_VERSION:
            raise ConfigError(f"a version is a number from 0 to {MAX_VERSION}, not {version}")
        intent: Intent | None = None
        for attempt in range(MAX_ATTEMPTS):
            head, expect = _found(await self._meta.get(keys.write_head(app)))
            if head.done >= version:
                return Done(version)
            if head.open is not None:
                return head.open
            if intent is None:
                intent = await self._prepare(app, version, body, is_once)
            try:
                await self._meta.put(keys.write_head(app), _encode(WriteHead(head.done, intent)), expect)
            except (Conflict, OutcomeUnknown):
                await self._pause(attempt)
            else:
                return intent
        raise OutcomeUnknown(f"it is not known whether version {version} of {app!r} was begun")

    async def body(self, app: str, intent: Intent) -> Body | None:
        """None: the write is over by now, or is to be abandoned."""
        return await read_body(self._meta, keys.write_head(app), app, intent)

    async def confirm(self, app: str, intent: Intent) -> bool:
        """The caller has seen that its blobs are young. False: it is not open any more."""
        confirmed = msgspec.structs.replace(intent, is_confirmed=True)
        return await self._replace(app, intent, lambda head: WriteHead(head.done, confirmed), confirmed)

    async def abandon(self, app: str, intent: Intent) -> None:
        """Nothing of it is in any log, and nothing will be; unless somebody has confirmed it meanwhile."""
        await self._replace(app, intent, lambda head: WriteHead(head.done, at_ms=self._clock.now_ms()), None)

    async def _replace(
        self, app: str, intent: Intent, change: Callable[[WriteHead], WriteHead], wanted: Intent | None
    ) -> bool:
        """Change the head while this intent is open and not confirmed; whether the wanted one is open then."""
        key = keys.write_head(app)
        for attempt in range(MAX_ATTEMPTS):
            head, expect = _found(await self._meta.get(key))
            if head.open is None or head.open.nonce != intent.nonce:
                return wanted is None
            if head.open.is_confirmed:
                return wanted is not None
            try:
                await self._meta.put(key, _encode(change(head)), expect)
            except (Conflict, OutcomeUnknown):
                await self._pause(attempt)
            else:
                return True
        raise Contended(f"the head of {app!r} could not be changed: version {intent.version} stays open")

    async def finish(self, app: str, intent: Intent, forget: bool = False) -> None:
        """All of it is in the logs. `forget`: nobody will ever ask for this application again."""
        key = keys.write_head(app)
        for attempt in range(MAX_ATTEMPTS):
            head, expect = _found(await self._meta.get(key))
            if head.open is None or head.open.nonce != intent.nonce:
                break  # another has finished it
            try:
                if forget:
                    await self._meta.delete(key, expect)
                else:
                    over = WriteHead(intent.version, at_ms=self._clock.now_ms(), is_once=intent.is_once)
                    await self._meta.put(key, _encode(over), expect)
            except (Conflict, OutcomeUnknown):
                await self._pause(attempt)
                continue
            break
        else:
            raise Contended(f"the head of {app!r} could not be changed: version {intent.version} stays open")
        # Nobody can begin any of these versions any more, so nobody needs what was written for it.
        await self._meta.delete_range(keys.write_bodies(app, 0), keys.write_bodies(app, intent.version + 1))

    async def forget(self, app: str, keep_ms: int) -> bool:
        """Delete a head that says nothing, or whose last write is over for so long; whether it is gone. One of which
        nobody knows since when it is over is told so now."""
        key, now_ms = keys.write_head(app), self._clock.now_ms()
        record = await self._meta.get(key)
        head, expect = _found(record)
        if record is None or head.open is not None:
            return False
        keep_ms = min(keep_ms, ONCE_KEPT_MS) if head.is_once else keep_ms
        is_old = head.at_ms > 0 and now_ms - head.at_ms > keep_ms
        try:
            if head.done == NONE_DONE or is_old:
                await self._meta.delete(key, expect)
                return True
            if not head.at_ms:
                await self._meta.put(key, _encode(WriteHead(head.done, at_ms=now_ms)), expect)
        except (Conflict, OutcomeUnknown):
            pass  # the application is back, or the next run sees what became of it
        return False

    async def _prepare(self, app: str, version: int, body: Body, is_once: bool = False) -> Intent:
        data, now_ms = _encode(body), self._clock.now_ms()
        nonce = f"{now_ms:013d}-{self._entropy.hex_id()}"
        if len(data) <= MAX_INLINE_BYTES:
            return Intent(version, nonce, now_ms, body=body, is_once=is_once)
        parts = [data[at : at + PART_BYTES] for at in range(0, len(data), PART_BYTES)]
        if len(parts) > MAX_PARTS:
            runs = sum(len(blob.runs) for blob in body.blobs)
            raise Rejected(
                f"a write of {runs} runs in {len(body.blobs)} objects is too much at once: spread its rows over fewer "
                "tasks by the partitions that they are for, or write it in several pieces"
            )
        for number, part in enumerate(parts):
            await self._put_part(keys.write_body_part(app, version, nonce, number), part)
        return Intent(version, nonce, now_ms, parts=len(parts), is_once=is_once)

    async def _put_part(self, key: str, part: bytes) -> None:
        for attempt in range(MAX_ATTEMPTS):
            try:
                await self._meta.put(key, part)
            except OutcomeUnknown:
                await self._pause(attempt)
            else:
                return
        raise Contended(f"{key} could not be written")

    async def _pause(self, attempt: int) -> None:
        await self._clock.sleep(BACKOFF_S * self._entropy.jitter() * min(attempt, 10))


def check_app(app: str) -> None:
    if not keys.is_group_id(app):
        raise ConfigError(f"{app!r} can't be the id of an application: it is empty, or longer than 255 characters")


async def read_body(meta: MetaStore, head_key: str, app: str, intent: Intent) -> Body | None:
    """None: the write is over by now, or nobody can confirm it any more."""
    if intent.body is not None:
        return intent.body
    parts: list[bytes] = []
    for number in range(intent.parts):
        key = keys.write_body_part(app, intent.version, intent.nonce, number)
        record = await meta.get(key)
        if record is None:
            head, _ = _found(await meta.get(head_key))
            if head.open is not None and head.open.nonce == intent.nonce and head.open.is_confirmed:
                raise Corrupt(f"meta record {key} is missing, and {head_key} names it")
            return None
        parts.append(record.value)
    try:
        return _body.decode(b"".join(parts))
    except msgspec.MsgspecError as error:
        raise Corrupt(f"the body of version {intent.version} in {head_key} can't be read: {error}") from error


async def heads(meta: MetaStore) -> AsyncIterator[tuple[str, WriteHead]]:
    """Of all applications that have one. Raises Corrupt at the first that can't be read."""
    async for app, head in readable_heads(meta):
        if isinstance(head, Corrupt):
            raise head
        yield app, head


async def readable_heads(meta: MetaStore) -> AsyncIterator[tuple[str, WriteHead | Corrupt]]:
    """For who goes on behind one that can't be read."""
    start, end = keys.WRITES, keys.after(keys.WRITES)
    while (record := await meta.ceiling(start, end)) is not None:
        quoted = record.key.removeprefix(keys.WRITES).partition("/")[0]
        # Bodies lie before heads, and what has no head was never begun, or is over.
        found = await meta.get(f"{keys.WRITES}{quoted}/head")
        if found is not None:
            yield keys.unquoted_group(quoted), _readable(found)
        start = keys.after(f"{keys.WRITES}{quoted}/")


def _readable(record: Record) -> WriteHead | Corrupt:
    try:
        return _found(record)[0]
    except Corrupt as error:
        return error


async def open_blobs(meta: MetaStore) -> set[str]:
    """The blobs of all writes that are under way: what they hold may become a part of logs."""
    found: set[str] = set()
    async for app, head in heads(meta):
        if head.open is not None:
            body = await read_body(meta, keys.write_head(app), app, head.open)
            found.update(blob.key for blob in (body.blobs if body is not None else ()))
    return found


async def forget_unpublished(meta: MetaStore, before_ms: int, limit: int, dry_run: bool = False) -> int:
    """Delete bodies that were written before this time and that no head names; how many, `limit` at the most. Crash at
    any step: some parts are gone, and the next one goes on. Raises Corrupt if a head can't be read."""
    forgotten = 0
    start, end = keys.WRITES, keys.after(keys.WRITES)
    while forgotten < limit and (record := await meta.ceiling(start, end)) is not None:
        written = keys.parse_write_body_part(record.key)
        if written is None:  # a head: of this application there are no more
            start = keys.after(record.key.rpartition("/")[0] + "/")
            continue
        start = keys.after(written.prefix)
        if not _was_made_before(written.nonce, before_ms):
            continue
        head, _ = _found(await meta.get(written.head))
        if head.open is None or head.open.nonce != written.nonce:
            forgotten += 1
            if not dry_run:
                await meta.delete_range(written.prefix, start)
    return forgotten


def _was_made_before(nonce: str, before_ms: int) -> bool:
    """Those of older releases don't tell, and stay until a later version ends."""
    made_at_ms, _, rest = nonce.partition("-")
    return bool(rest) and int(made_at_ms) < before_ms


def _found(record: Record | None) -> tuple[WriteHead, Version | Expect]:
    if record is None:
        return WriteHead(), ABSENT
    try:
        return _head.decode(record.value), record.version
    except msgspec.MsgspecError as error:
        raise Corrupt(f"meta record {record.key} can't be read: {error}") from error
