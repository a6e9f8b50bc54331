"""Chains in the meta store: read them, and change them by compare-and-set.

A change is a pure function of the chain; it is applied again to whatever another process has made of the chain since.
An unknown outcome is settled by looking for the change's nonce. Crash at any step: the chain is as before the
compare-and-set, or as after it; there is no third state.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

import msgspec

from catena.errors import Conflict, Contended, Corrupt, OutcomeUnknown, StoreRefused, StoreUnavailable
from catena.meta import keys
from catena.meta.base import MetaStore, Record
from catena.runtime import Clock, Entropy
from catena.types import ABSENT, Expect, TopicPartition, Version
from catena.virtual_log import chain as chains
from catena.virtual_log.chain import Chain

MAX_ATTEMPTS = 50
BACKOFF_S = 0.01

_decoder = msgspec.json.Decoder(Chain)


class Published(NamedTuple):
    """A chain as it stood in the store at some point."""

    chain: Chain
    expect: Version | Expect
    """What a compare-and-set that builds on this chain expects."""


class ChainStore:
    def __init__(self, meta: MetaStore, clock: Clock, entropy: Entropy) -> None:
        self._meta = meta
        self._clock = clock
        self._entropy = entropy

    def new_nonce(self) -> str:
        return self._entropy.hex_id()

    async def load(self, tp: TopicPartition, kind: str) -> Published:
        """The chain now; `kind` is that of the topic's first link, whose chain is not stored until it changes."""
        return _published(await self._meta.get(keys.chain(tp)), kind)

    async def change(self, tp: TopicPartition, kind: str, change: Callable[[Chain], Chain]) -> Published:
        """Publish `change(chain)`; whatever it raises is passed on, and then nothing was changed."""
        published = await self.load(tp, kind)
        for attempt in range(MAX_ATTEMPTS):
            nonce = self._entropy.hex_id()
            changed = change(published.chain)
            if changed is published.chain:
                return published
            signed = chains.signed(changed, nonce)
            try:
                return await self._publish(tp, kind, signed, published.expect)
            except Conflict as conflict:
                published = _published(conflict.current, kind)
                await self._clock.sleep(BACKOFF_S * self._entropy.jitter() * min(attempt, 10))
        raise Contended(f"the chain of {tp} was changed by others {MAX_ATTEMPTS} times in a row")

    async def _publish(self, tp: TopicPartition, kind: str, signed: Chain, expect: Version | Expect) -> Published:
        """Compare-and-set until it is certain what happened. Conflict: it surely did not, and can't any more."""
        key, value = keys.chain(tp), msgspec.json.encode(signed)
        unknown = False
        for attempt in range(MAX_ATTEMPTS):
            try:
                return Published(signed, await self._meta.put(key, value, expect))
            except Conflict as conflict:
                current = _published(conflict.current, kind)
                # Looked at even if every answer has come in: something on the way may have sent the write twice.
                if signed.nonces[-1] in current.chain.nonces:
                    return current
                if not unknown or not _may_be_forgotten(current.chain, signed):
                    raise
                break
            except OutcomeUnknown:
                # It may still be applied, even later; the same write again is settled by the version it expects.
                unknown = True
            except StoreUnavailable:
                if not unknown:
                    raise
            await self._clock.sleep(BACKOFF_S * (1 + self._entropy.jitter()) * min(2**attempt, 100))
        raise OutcomeUnknown(f"it is not known whether the chain of {tp} was changed by {signed.nonces[-1]}")


def _may_be_forgotten(current: Chain, signed: Chain) -> bool:
    """Whether `signed` may have been published so many changes ago that its nonce is not remembered any more."""
    return current.revision - signed.revision >= chains.REMEMBERED_NONCES


def _published(record: Record | None, kind: str) -> Published:
    if record is None:
        return Published(chains.initial(kind), ABSENT)
    try:
        chain = _decoder.decode(record.value)
    except msgspec.MsgspecError as error:
        raise Corrupt(f"meta record {record.key} can't be read: {error}") from error
    if chain.format > chains.FORMAT:
        raise StoreRefused(
            f"{record.key} has format {chain.format}; this version of Catena reads up to {chains.FORMAT}"
        )
    return Published(chain, record.version)
