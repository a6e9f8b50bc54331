"""The virtual log of one partition: append to the last link of its chain, read across all of them.

The chain is cached and may be old; that is safe, because a link that is no longer the last one is sealed, and says so.
Whoever hits a seal refreshes the chain, finishes the change that is under way if there is one, and goes on. Nothing
that a loglet holds beyond its link's end is ever read.
"""

from __future__ import annotations

import asyncio
import functools
from collections.abc import Awaitable, Callable, Mapping
from contextlib import suppress
from typing import Any, NamedTuple, Protocol

from catena.errors import (
    Contended,
    Corrupt,
    LogSealed,
    ObjectMissing,
    OffsetOutOfRange,
    OutcomeUnknown,
    RetryLater,
    Sealed,
    StaleView,
    StoreRefused,
    UnknownTopic,
)
from catena.formats.records import NO_TIMESTAMP, iter_records
from catena.loglets.base import Batch, Entry, LinkSpec, Loglet, Run, Stored
from catena.meta import keys
from catena.meta.base import MetaStore
from catena.runtime import Clock, shielded
from catena.types import Epoch, Offset, TopicPartition
from catena.virtual_log import chain as chains
from catena.virtual_log.append_order import OVER, Place
from catena.virtual_log.chain import Chain, Link
from catena.virtual_log.chain_store import ChainStore
from catena.virtual_log.failed_producers import FailedProducers
from catena.virtual_log.handoff import load_handoff
from catena.virtual_log.reconfigure import finish, reconfigure

MAX_HOPS = 100
"""How often one call follows the chain; more means that others change it faster than it can be read."""
HOP_PAUSE_S = 0.005
MAX_AGE_S = 5.0
"""Whoever reads goes by a chain that is not older: what another node has trimmed is not read for longer than that."""


class Kinds(Protocol):
    """The kinds of loglets that a node has; both methods raise ConfigError for one that it has not."""

    def params(self, kind: str) -> dict[str, Any]:
        """What the chain is to say about a new link of this kind."""

    def open(self, kind: str, link: LinkSpec) -> Loglet: ...


class FoundTime(NamedTuple):
    offset: Offset
    timestamp_ms: int


class VirtualLog:
    def __init__(
        self,
        tp: TopicPartition,
        kind: str,
        meta: MetaStore,
        store: ChainStore,
        kinds: Kinds,
        clock: Clock,
    ) -> None:
        self.tp = tp
        self.kind = kind
        """Of the first link; it comes with the topic, so a chain that nobody changed need not be stored."""
        self.store = store
        self.meta = meta
        self._kinds = kinds
        self._clock = clock
        self._chain: Chain | None = None
        self.refreshed_at = float("-inf")
        """When the chain was last read, by the monotonic clock: it was not older then."""
        self._loglets: dict[Epoch, Loglet] = {}
        self._sealed_epoch: Epoch = 0
        """No link up to this epoch takes appends."""
        self._newest = Place(OVER)
        self._failed = FailedProducers()
        self._following: asyncio.Future[None] | None = None
        self._seen_tail: Offset = 0
        """The log reaches at least to here."""

    async def append(self, entry: Entry | Stored) -> Offset:
        """Append one batch; return the offset of its first record. Calls take their offsets in their order.

        What is stored already may be several batches; StaleView: it is too late for it without another look.
        """
        before, place = self._newest, Place()
        self._newest = place
        try:
            for hop in range(MAX_HOPS):
                link = (await self.chain()).last
                if link.is_open and link.epoch > self._sealed_epoch:
                    if not before.has_reached(link.epoch):
                        await before.reach(link.epoch)
                    admitted = self._failed.admit(entry, self._clock.monotonic())
                    place.hand_to(link.epoch)
                    try:
                        offset = await _hand_over(self.loglet(link), admitted)
                    except Sealed:
                        self._sealed_epoch = max(self._sealed_epoch, link.epoch)
                    else:
                        self._seen_tail = max(self._seen_tail, offset + entry.header.count)
                        self._failed.settle(entry.header)
                        return offset
                await self._follow(link, hop)
            raise Contended(f"{self.tp}: the chain changes all the time")
        except (RetryLater, LogSealed, OutcomeUnknown):
            self._failed.note(entry.header, self._clock.monotonic())
            raise
        finally:
            place.leave(before)

    async def read(self, offset: Offset, max_bytes: int) -> list[Batch]:
        """Batches from the one that holds `offset` on: at least one if there is one, then up to `max_bytes`.

        Empty at the tail. Raises OffsetOutOfRange before the start and beyond the tail.
        """
        gone = 0
        if self._clock.monotonic() - self.refreshed_at > MAX_AGE_S:
            await self.refresh()
            with suppress(StoreRefused):  # in the memory of another process; what is read may be elsewhere
                await self.tail()  # told to clients, beside what is read
        for hop in range(MAX_HOPS):
            chain = await self.chain()
            link = chain.link_at(offset)
            if offset < chain.start or link is None:
                if hop == 0:
                    await self.refresh()
                    continue
                return await self._nothing_at(offset)
            try:
                batches = await self.loglet(link).read(offset, max_bytes)
            except Sealed:
                if (await self.refresh()).link_at(offset) == link:
                    return await self._at_tail(offset)  # sealed, and what follows is not published yet
                await self._pause(hop)
                continue
            except (StaleView, ObjectMissing) as error:
                # The chain may have moved the bytes elsewhere, and vacuum may have collected what was left behind.
                gone += 1
                if (await self.refresh()).link_at(offset) == link and gone > 1:
                    raise error if isinstance(error, ObjectMissing) else Corrupt(f"{self.tp}: {error}") from error
                continue
            if link.end is not None:
                batches = [batch for batch in batches if batch.offset < link.end]
            if not batches:
                return await self._at_tail(offset)
            self._seen_tail = max(self._seen_tail, batches[-1].end)
            return batches
        raise Contended(f"{self.tp}: the chain changes all the time")

    async def tail(self) -> Offset:
        """The offset after the last record. Linearizable: above every append that was acked before the call."""
        for hop in range(MAX_HOPS):
            chain = await self.chain()
            try:
                tail = await self.loglet(chain.last).tail()
            except Sealed:
                await self.refresh()
                await self._pause(hop)
                continue
            if tail.sealed:
                # Only the chain knows whether this is where the log ends, or where the next link starts.
                refreshed = await self.refresh()
                if refreshed.last.epoch != chain.last.epoch:
                    continue
            self._seen_tail = max(self._seen_tail, tail.offset)
            return tail.offset
        raise Contended(f"{self.tp}: the chain changes all the time")

    async def start(self) -> Offset:
        """The first offset that can be read."""
        return (await self.refresh()).start

    async def wait_for_tail(self, beyond: Offset, max_wait_s: float) -> bool:
        """Wait until the tail is greater than `beyond`, at most so long; True if it is."""
        try:
            async with asyncio.timeout(max_wait_s):
                while True:
                    if await self._told_of_more(beyond) or await self.tail() > beyond:
                        return True
                    await self._wait_while_sealed()
        except TimeoutError:
            return await self.tail() > beyond

    async def wait_for_news(self, beyond: Offset) -> None:
        """Return once the tail may be greater than `beyond`, or appends go elsewhere. For those who look then."""
        await self._told_of_more(beyond)
        if self._seen_tail <= beyond and await self.tail() <= beyond:
            await self._wait_while_sealed()

    async def _told_of_more(self, beyond: Offset) -> bool:
        """Return once the tail may be greater than `beyond`, or appends go elsewhere; True if it surely is."""
        chain = await self.chain()
        if chain.last.is_open and (tail := await self.loglet(chain.last).wait_for_tail(beyond)) is not None:
            self._seen_tail = max(self._seen_tail, tail)
            return True
        return False

    @property
    def seen_start(self) -> Offset:
        """The log starts here, or later by now; -1 if nobody looked yet."""
        return self._chain.start if self._chain is not None else -1

    @property
    def seen_chain(self) -> Chain | None:
        """As it was last seen; None if nobody looked yet."""
        return self._chain

    def epoch_at(self, offset: Offset) -> Epoch:
        """Of whatever wrote this offset, in the chain as it was last seen; 0 if nobody looked yet."""
        return self._chain.epoch_at(offset) if self._chain is not None else 0

    @property
    def seen_tail(self) -> Offset:
        """The log reaches at least to here."""
        return self._seen_tail

    @property
    def seen_epoch(self) -> Epoch:
        """Of the last link, as it was last seen; -1 if nobody looked yet."""
        return self._chain.last.epoch if self._chain is not None else -1

    async def find_time(self, timestamp_ms: int) -> FoundTime | None:
        """The first record at or after this time."""
        return await self._search(lambda chain: self._find_time(chain, timestamp_ms))

    async def _find_time(self, chain: Chain, timestamp_ms: int) -> FoundTime | None:
        for link in chain.links:
            start = max(chain.start, link.base)
            while link.end is None or start < link.end:
                offset = await self.loglet(link).find_time(timestamp_ms, start)
                await self._check_not_moved(link, start)
                if offset is None or (link.end is not None and offset >= link.end):
                    break
                (batch,) = await self.read(max(offset, start), 1)
                for record in iter_records(batch.data, batch.offset):
                    if record.timestamp >= timestamp_ms and record.offset >= start:
                        return FoundTime(record.offset, record.timestamp)
                start = batch.end  # what fits lies before the start, or the batch's header promised too much
        return None

    async def find_max_time(self) -> FoundTime | None:
        """The first record with the greatest time; None if none has a time."""
        return await self._search(self._find_max_time)

    async def _find_max_time(self, chain: Chain) -> FoundTime | None:
        newest: FoundTime | None = None
        for link in chain.links:
            start = max(chain.start, link.base)
            while link.end is None or start < link.end:
                offset = await self.loglet(link).find_max_time(start, link.end)
                await self._check_not_moved(link, start)
                if offset is None:
                    break
                (batch,) = await self.read(max(offset, start), 1)
                for record in iter_records(batch.data, batch.offset):
                    if record.offset >= start and record.timestamp > (newest.timestamp_ms if newest else NO_TIMESTAMP):
                        newest = FoundTime(record.offset, record.timestamp)
                if batch.offset >= start:
                    break
                start = batch.end  # its header spoke of records before the start, too: others may be newer
        return newest

    async def _search(self, search: Callable[[Chain], Awaitable[FoundTime | None]]) -> FoundTime | None:
        for _ in range(MAX_HOPS):
            chain = await self.refresh()
            try:
                return await search(chain)
            except (OffsetOutOfRange, StaleView):
                continue  # what was found was trimmed or moved meanwhile: look again from the new start
            except ObjectMissing:
                if (await self.refresh()).revision == chain.revision:
                    raise
        raise Contended(f"{self.tp}: the chain changes all the time")

    async def _check_not_moved(self, link: Link, start: Offset) -> None:
        """What is not in the index any more was not found there; it goes after the boundary has passed it."""
        if link.kind != chains.TIERED and await self._boundary() > start:
            raise StaleView(f"{self.tp}: offsets from {start} on were moved meanwhile")

    async def runs(self, start: Offset, limit: int) -> list[Run]:
        """Up to `limit` runs of the log as it was last seen, from the one that holds `start` on; fewer at its end."""
        found: list[Run] = []
        for link in (await self.chain()).links:
            if len(found) < limit and (link.end is None or link.end > start):
                runs = await self.loglet(link).runs(max(start, link.base), limit - len(found))
                found += [run for run in runs if link.end is None or run.end <= link.end]
        return found

    async def seal(self) -> Offset:
        """End the log for now: appends fail with LogSealed until it is reopened by `reconfigure`. Returns its tail."""
        chain = await self.refresh()
        for _ in range(MAX_HOPS):
            if chain.intent is None and chain.last.end is not None:
                return chain.last.end
            chain = await reconfigure(self, None, {})
        raise Contended(f"{self.tp}: others reopen the log all the time")

    async def reconfigure(self, kind: str, params: Mapping[str, Any] | None = None) -> Chain:
        """Go on with a new link of this kind; also reopens a sealed log. Appends and reads go on meanwhile.

        Of several callers at once one wins, and the others adopt its chain.
        """
        return await reconfigure(self, kind, {**self._kinds.params(kind), **(params or {})})

    async def trim(self, offset: Offset) -> Offset:
        """Give up what is below `offset`; returns where the log starts now. Forward only."""
        tail = await self.tail()
        if offset > tail:
            raise OffsetOutOfRange(offset, (await self.chain()).start, tail)
        before = await self.chain()
        chain = (await self.store.change(self.tp, self.kind, lambda chain: chains.trim(chain, offset))).chain
        self.adopt(chain)
        for link in before.links:
            if link.base < chain.start:
                with suppress(StoreRefused):  # in the memory of another process, which gives it up when it ends
                    await self.loglet(link).trim(chain.start if link.end is None else min(link.end, chain.start))
        oldest = min(link.epoch for link in chain.links)
        await self.meta.delete_range(keys.handoff(self.tp, 0), keys.handoff(self.tp, oldest))
        return chain.start

    async def delete(self) -> None:
        """The topic is deleted: no append is acked any more, now or later. Anyone may repeat it."""
        chain = (await self.store.change(self.tp, self.kind, _tombstone)).chain
        self._chain = chain
        try:
            await self.loglet(chain.last).seal()
        except StoreRefused:
            pass  # in the memory of another process; whatever it still takes is in a deleted topic
        except Sealed:
            raise AssertionError(f"{self.tp}: a link follows the last one of a deleted chain") from None

    async def chain(self) -> Chain:
        """The chain as it was last seen."""
        return self._chain if self._chain is not None else await self.refresh()

    async def refresh(self) -> Chain:
        """The chain as it is now."""
        began = self._clock.monotonic()
        chain = self.adopt((await self.store.load(self.tp, self.kind)).chain)
        self.refreshed_at = max(self.refreshed_at, began)
        return chain

    def adopt(self, chain: Chain) -> Chain:
        if chain.deleted:
            raise UnknownTopic(self.tp.topic)
        if self._chain is None or chain.revision > self._chain.revision:
            self._chain = chain
            self._loglets = {
                link.epoch: self._loglets[link.epoch] for link in chain.links if link.epoch in self._loglets
            }
        return self._chain

    def loglet(self, link: Link) -> Loglet:
        loglet = self._loglets.get(link.epoch)
        if loglet is None:
            loglet = self._loglets[link.epoch] = self._kinds.open(link.kind, self._spec(link))
        return loglet

    def _spec(self, link: Link) -> LinkSpec:
        handoff = functools.partial(load_handoff, self.meta, self.tp, link.epoch)
        return LinkSpec(self.tp, link.epoch, link.base, link.params, handoff, self._boundary)

    async def _boundary(self) -> Offset:
        return (await self.store.load(self.tp, self.kind)).chain.boundary

    async def _follow(self, link: Link, hop: int) -> None:
        """The link takes no appends: find out what follows it, or why nothing does. One looks for all who ask."""
        if self._following is not None:
            try:
                await shielded(self._following)
            except (LogSealed, UnknownTopic):
                if hop:  # what was seen before this append was called does not count
                    raise
            return
        self._following = outcome = asyncio.get_running_loop().create_future()
        try:
            await self._find_next(link, hop)
        except (RetryLater, LogSealed, UnknownTopic) as error:
            outcome.set_exception(error)
            outcome.exception()  # there may be nobody else to take it
            raise
        finally:
            self._following = None
            if not outcome.done():
                outcome.set_result(None)

    async def _find_next(self, link: Link, hop: int) -> None:
        chain = await self.refresh()
        if chain.intent is not None:
            await finish(self, chain)
        elif not chain.last.is_open:
            raise LogSealed(f"{self.tp} is sealed at {chain.last.end}: reopen it to append (a node's /unfence does it)")
        elif chain.last.epoch == link.epoch:
            await self._pause(hop)

    async def _at_tail(self, offset: Offset) -> list[Batch]:
        """The last link has nothing at `offset`: it is the tail, or beyond it."""
        return [] if offset == self._seen_tail else await self._nothing_at(offset)

    async def _nothing_at(self, offset: Offset) -> list[Batch]:
        """Nothing was found; say whether that is the tail or outside of the log. Never from an old view."""
        tail = await self.tail()
        start = await self.start()
        if not start <= offset <= tail:
            raise OffsetOutOfRange(offset, start, tail)
        return []

    async def _wait_while_sealed(self) -> None:
        """If the last link takes no appends, return once the chain may have changed."""
        watch = self.meta.watch(keys.chain(self.tp))
        try:
            chain = await self.refresh()
            # An intent alone says nothing: until its link is sealed, and maybe nobody is left to do so, appends go on.
            if not chain.last.is_open or (chain.intent is not None and await self._is_sealed(chain.last)):
                await watch.changed()
                await self.refresh()
        finally:
            watch.close()

    async def _is_sealed(self, link: Link) -> bool:
        try:
            return (await self.loglet(link).tail()).sealed
        except Sealed:
            return False  # and followed by another link, which the chain has by now

    async def _pause(self, hop: int) -> None:
        await self._clock.sleep(HOP_PAUSE_S * min(hop, 10))


def _hand_over(loglet: Loglet, entry: Entry | Stored) -> Awaitable[Offset]:
    return loglet.append(entry) if isinstance(entry, Entry) else loglet.append_stored(entry)


def _tombstone(chain: Chain) -> Chain:
    return chain if chain.deleted else chains.tombstone(chain)
