"""Is the meta store older than the bucket? Both carry a number that only grows, and that tells.

A meta store that was restored from yesterday's backup has forgotten what was written since. Whoever goes on from there
gives offsets out twice, and vacuum takes today's blobs, which nothing refers to any more, for orphans.

**The rule.** Meta is raised first, by compare-and-set; then the object is put with the same number, on condition that
it is still the one that was looked at, and never with a lower one. So the bucket is ahead of meta only if meta was set
back. Whoever compares reads the bucket first and meta after it, so a raise in between is no false alarm. A bucket that
is behind meta is normal.

| a raise ends after | and leaves |
|---|---|
| its two reads | nothing |
| the write of meta, known or unknown | a bucket that is behind by one. The next raise takes a higher number to both |
| the put, with no answer | the number in the bucket, now or later; later only if nobody else has put one since |

**When it is raised.** By a node that begins to serve. Then every `EVERY_S` by each process that has written since it
raised last, unless another one has raised meanwhile: then its turn is the next time. Once more when a process ends
cleanly. By vacuum, before it deletes: a backup from before that refers to what will be gone. An idle cluster raises
nothing.

**What that covers.** A backup is recognized as old if one raise was begun and ended since it was made. After any write
that is so within about 2 * EVERY_S if its process lives, else when a node starts, or anybody else who writes raises.

**What it does not cover.** All processes are killed within these seconds after a backup, and just that backup is
restored before a node has started; or a standby that lacked the last moments takes over from the meta store. What was
acked in between is gone, and its offsets are given out again, without a word. The bucket can't tell: a blob that no
index entry names may as well be of a writer that died before its commit. So the meta store's standby has to be a
synchronous one, and for a move to another server nodes are ended before the backup is made, not after.

**While processes run.** Each remembers the number that it saw last: meta below it was set back under way. It also
remembers the branch: whoever finds another one has in its caches what an accepted restore has undone. Until it looks,
up to EVERY_S long, such a process goes by its caches, and one that is in the middle of a raise, begun before the last
one that came before the restore, may even end it and so hide the restore. So nodes are to be ended before meta is
restored.

**What follows.** A process that finds meta behind writes nothing any more until it ends, and says so (`read_only`); it
reads what meta knows. That is for good, even if meta is put right meanwhile: what it has cached may be of either
history. Vacuum refuses. The operator brings a newer backup, or accepts the loss.

**Accepting** (`accept_older_meta`) takes a number above the bucket's and a new branch to both stores, meta first. A
crash between the two leaves a loss that is accepted: meta is ahead. Offsets above the restored tails are then given to
new records. No reader is confused by that: index entries name blobs by ids that are drawn anew for each, so the bytes
of old blobs are not found under new offsets, and caches ended with their processes.
"""

from __future__ import annotations

import asyncio
import logging
from datetime import UTC, datetime
from typing import NamedTuple, Protocol

import msgspec

from catena.errors import CatenaError, Conflict, Corrupt, MetaBehind, ObjectMissing, OutcomeUnknown, StoreUnavailable
from catena.meta import keys
from catena.meta.base import MetaStore, Record
from catena.objects.base import ObjectStore
from catena.runtime import Clock, Entropy, Tasks
from catena.types import ABSENT, ETag, Expect, Version

log = logging.getLogger(__name__)

EVERY_S = 10.0
LAST_RAISE_MAX_S = 5.0
"""A process that ends does not wait longer for a store that is away."""
MAX_ATTEMPTS = 10

BEHIND = "nothing is written until that is settled: `catena doctor` says how"


class Incarnation(msgspec.Struct, frozen=True):
    number: int = 0
    branch: str = ""
    """Drawn anew when an older meta store is accepted."""
    at_ms: int = 0
    """When it was raised, by the clock of who did it. Only people read it."""

    @property
    def shown(self) -> str:
        when = datetime.fromtimestamp(self.at_ms / 1000, UTC).isoformat(" ", "seconds").removesuffix("+00:00")
        return f"{self.number} ({when} UTC)" if self.number else "0"


class Compared(NamedTuple):
    """What both stores say, the bucket having been asked first."""

    in_bucket: Incarnation
    in_meta: Incarnation

    @property
    def is_behind(self) -> bool:
        return self.in_meta.number < self.in_bucket.number

    def trouble(self, since: Incarnation | None = None) -> str | None:
        """Why nothing may be written, if so; `since` is what the caller saw before."""
        newest = max(self.in_bucket, since or self.in_bucket, key=lambda each: each.number)
        if self.in_meta.number < newest.number:
            return (
                f"the meta store was set back, as by a restore from a backup: its incarnation is {self.in_meta.shown}, "
                f"and {newest.shown} was reached before; {BEHIND}"
            )
        if since is not None and since.branch != self.in_meta.branch:
            return (
                "an older meta store was accepted while this process ran, which still knows what is no longer so: "
                "nothing is written until it is started again"
            )
        return None

    def require_current(self, since: Incarnation | None = None) -> None:
        if (trouble := self.trouble(since)) is not None:
            raise MetaBehind(trouble)


class Writes(Protocol):
    """What a process writes to the meta store."""

    @property
    def writes(self) -> int:
        """How many have ended so far."""

    def end_writes(self, reason: str) -> None: ...


async def compare(meta: MetaStore, objects: ObjectStore) -> Compared:
    in_bucket = (await _find_in_bucket(objects)).incarnation
    return Compared(in_bucket, _decode("meta record", await meta.get(keys.INCARNATION)))


async def check_incarnation(meta: MetaStore, objects: ObjectStore, since: Incarnation | None = None) -> Incarnation:
    """What meta says now. Raises MetaBehind if it is behind the bucket, or not where `since` came from.

    Vacuum checks before it reads what is referred to, and afterwards calls `raise_incarnation` with what it was told
    here; only then it deletes. So all that it read is from one and the same history, and newer than any backup that
    will pass for current from then on.
    """
    compared = await compare(meta, objects)
    compared.require_current(since)
    return compared.in_meta


async def raise_incarnation(
    meta: MetaStore, objects: ObjectStore, clock: Clock, since: Incarnation | None = None
) -> Incarnation:
    """Take a higher number to both stores; returns it. Raises MetaBehind, as above, and changes nothing then."""
    for _ in range(MAX_ATTEMPTS):
        marker = await _find_in_bucket(objects)
        record = await meta.get(keys.INCARNATION)
        found = _decode("meta record", record)
        Compared(marker.incarnation, found).require_current(since)
        raised = Incarnation(found.number + 1, found.branch, clock.now_ms())
        try:
            await meta.put(keys.INCARNATION, msgspec.json.encode(raised), _version(record))
        except OutcomeUnknown:
            continue
        except Conflict as conflict:
            # Somebody else has raised it since we looked, which is as good; only its put may be still to come.
            raised = _decode("meta record", conflict.current)
            Compared(marker.incarnation, raised).require_current(found)
        await _mark(objects, marker, raised)
        return raised
    raise StoreUnavailable("it is not known whether the meta store took a higher incarnation")


async def accept_older_meta(meta: MetaStore, objects: ObjectStore, clock: Clock, entropy: Entropy) -> Incarnation:
    """Go on from a meta store that is behind; one that is not is left as it is. Nodes have to be started again."""
    branch = entropy.hex_id()
    for _ in range(MAX_ATTEMPTS):
        marker = await _find_in_bucket(objects)
        record = await meta.get(keys.INCARNATION)
        found = _decode("meta record", record)
        if not Compared(marker.incarnation, found).is_behind:
            if found.branch == branch:
                await _mark(objects, marker, found)
            return found
        accepted = Incarnation(marker.incarnation.number + 1, branch, clock.now_ms())
        try:
            await meta.put(keys.INCARNATION, msgspec.json.encode(accepted), _version(record))
        except (Conflict, OutcomeUnknown):
            continue
        await _mark(objects, marker, accepted)
        return accepted
    raise StoreUnavailable("the meta store did not take the new incarnation: others change it all the time")


class IncarnationKeeper:
    """One process's part: it looks, raises, and ends the writes of the process when meta is behind.

    `check` once, before anything is written; `start` in processes that stay; `close` when all is written.
    """

    def __init__(self, meta: MetaStore, objects: ObjectStore, clock: Clock, writes: Writes) -> None:
        """The stores are those below `writes`: what is raised here is no write of the process."""
        self._meta = meta
        self._objects = objects
        self._clock = clock
        self._writes = writes
        self._seen: Incarnation | None = None
        self._raised_after = 0
        """So many writes had ended when this process last began to raise."""
        self._trouble: str | None = None
        self._tasks = Tasks("incarnation")
        self.read_only: str | None = None
        """Why this process writes nothing any more."""

    @property
    def branch(self) -> str | None:
        """Of the history that this process goes by; None: it has none, since meta was behind when it looked."""
        return self._seen.branch if self._seen is not None else None

    async def check(self) -> None:
        self._obey(await compare(self._meta, self._objects))

    async def start(self, *, raise_now: bool) -> None:
        if raise_now and self.read_only is None:
            await self._raise()
        self._tasks.spawn("raise", self._run())

    async def close(self) -> None:
        await self._tasks.close()
        if self.read_only is None and self._has_written:
            try:
                async with asyncio.timeout(LAST_RAISE_MAX_S):
                    await self._raise()
            except (CatenaError, TimeoutError) as error:
                self._say(error)

    async def tick(self) -> None:
        """Look at meta, which is enough to see it set back, and raise if that is due."""
        before = self._seen
        found = _decode("meta record", await self._meta.get(keys.INCARNATION))
        self._obey(Compared(Incarnation(), found), before)
        others_raised = before is not None and found.number > before.number
        if self.read_only is None and self._has_written and not others_raised:
            await self._raise()

    @property
    def _has_written(self) -> bool:
        return self._writes.writes != self._raised_after

    async def _run(self) -> None:
        while self.read_only is None:
            await self._clock.sleep(EVERY_S)
            try:
                await self.tick()
            except CatenaError as error:
                self._say(error)
            else:
                self._trouble = None

    async def _raise(self) -> None:
        writes = self._writes.writes
        try:
            self._seen = await raise_incarnation(self._meta, self._objects, self._clock, self._seen)
        except MetaBehind as error:
            self._end_writes(str(error))
        else:
            self._raised_after = writes

    def _obey(self, compared: Compared, since: Incarnation | None = None) -> None:
        if (trouble := compared.trouble(since)) is not None:
            self._end_writes(trouble)
        else:
            self._seen = compared.in_meta

    def _end_writes(self, reason: str) -> None:
        self.read_only = reason
        self._writes.end_writes(reason)
        log.error("this process is read-only: %s", reason)

    def _say(self, error: Exception) -> None:
        """Once for each kind of trouble: not again with every try."""
        kind = type(error).__name__
        if kind != self._trouble:
            self._trouble = kind
            log.warning(
                "the incarnation could not be raised, which guards against an old meta store: %s: %s", kind, error
            )


class _Marker(NamedTuple):
    """The object, and what a put has to expect that replaces it."""

    incarnation: Incarnation
    etag: ETag | Expect


async def _find_in_bucket(objects: ObjectStore) -> _Marker:
    try:
        blob = await objects.get(keys.INCARNATION)
    except ObjectMissing:
        return _Marker(Incarnation(), ABSENT)
    return _Marker(_decoded("object", blob.data), blob.etag)


async def _mark(objects: ObjectStore, marker: _Marker, raised: Incarnation) -> None:
    """Put this number into the bucket, unless it has it or a higher one."""
    for _ in range(MAX_ATTEMPTS):
        if marker.incarnation.number >= raised.number:
            return
        try:
            await objects.put(keys.INCARNATION, [msgspec.json.encode(raised)], marker.etag)
        except (Conflict, OutcomeUnknown):
            marker = await _find_in_bucket(objects)
        else:
            return
    raise StoreUnavailable("the object store did not take a higher incarnation")


def _version(record: Record | None) -> Version | Expect:
    return ABSENT if record is None else record.version


def _decode(what: str, record: Record | None) -> Incarnation:
    return Incarnation() if record is None else _decoded(what, record.value)


def _decoded(what: str, value: bytes) -> Incarnation:
    try:
        return msgspec.json.decode(value, type=Incarnation)
    except msgspec.MsgspecError as error:
        raise Corrupt(f"{what} {keys.INCARNATION} can't be read: {error}") from error
