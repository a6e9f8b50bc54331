"""Change what the log goes on with: decide, seal, hand over, publish. Anyone may finish what someone else left.

    1. look at the meta store: never seal what could then not be continued
    2. publish the intent {nonce, epoch, kind, params} in the chain       crash before: nothing happened
    3. seal the last link's loglet, which gives (tail, producers)         crash: appenders find the seal and the intent,
    4. write the producers down as the handoff of the intent's epoch             and finish it; so does anyone who
    5. publish intent -> [last link ends at tail][new link from tail on]         reconfigures

Several may do 3 to 5 at once: the seal answers all of them the same, the handoff is created once, and the chain's
compare-and-set lets one through; the others adopt its chain.
"""

from __future__ import annotations

from typing import Any, Protocol

from catena.errors import Sealed, StaleView
from catena.loglets.base import Loglet
from catena.meta.base import MetaStore
from catena.types import TopicPartition
from catena.virtual_log import chain as chains
from catena.virtual_log.chain import Chain, Link
from catena.virtual_log.chain_store import ChainStore
from catena.virtual_log.handoff import create_handoff


class ChangingLog(Protocol):
    """What is needed of a virtual log to change its chain."""

    @property
    def tp(self) -> TopicPartition: ...
    @property
    def kind(self) -> str: ...
    @property
    def meta(self) -> MetaStore: ...
    @property
    def store(self) -> ChainStore: ...
    async def refresh(self) -> Chain: ...
    def adopt(self, chain: Chain) -> Chain: ...
    def loglet(self, link: Link) -> Loglet: ...


async def reconfigure(log: ChangingLog, kind: str | None, params: dict[str, Any]) -> Chain:
    """Seal the last link and go on with a link of `kind`, or with none. Returns the chain that came of it.

    Somebody else's change that is under way is finished first. One that is decided while we decide wins: we adopt it.
    """
    chain = await log.refresh()
    if chain.intent is not None:
        chain = await finish(log, chain)
    began_at = chain.last
    nonce = log.store.new_nonce()

    def decide(current: Chain) -> Chain:
        log.adopt(current)
        moved_on = (current.last.epoch, current.last.is_open) != (began_at.epoch, began_at.is_open)
        if current.intent is not None or moved_on:
            raise StaleView("somebody else changed the chain first")
        return chains.intend(current, nonce, kind, params)

    try:
        published = await log.store.change(log.tp, log.kind, decide)
    except StaleView:
        chain = await log.refresh()
    else:
        chain = log.adopt(published.chain)
    return await finish(log, chain) if chain.intent is not None else chain


async def finish(log: ChangingLog, chain: Chain) -> Chain:
    """Finish the change that is under way in `chain`, or learn that somebody else has."""
    intent = chain.intent
    assert intent is not None
    try:
        sealed = await log.loglet(chain.last).seal()
    except Sealed:
        return await log.refresh()  # a later link has been opened: the change was finished
    if intent.kind is not None:
        await create_handoff(log.meta, log.tp, intent.epoch, sealed.producers)
    try:
        published = await log.store.change(
            log.tp, log.kind, lambda current: chains.finish(_alive(log, current), intent.nonce, sealed.tail)
        )
    except StaleView:
        return await log.refresh()
    return log.adopt(published.chain)


def _alive(log: ChangingLog, chain: Chain) -> Chain:
    log.adopt(chain)
    return chain
