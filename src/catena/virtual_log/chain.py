"""The chain: which loglet holds which offsets of a partition. A pure value; every change is a function Chain -> Chain.

    start          boundary                        tail
      |   tiered      |   diskless   |   memory      |
      [- - - link - - )[ - - link - -)[ - - link - - - >
           epoch 3         epoch 1         epoch 4

Invariants, checked on every change:
- links are contiguous, each [base, end), and only the last may be open (end None);
- no epoch is used twice, and `next_epoch` is greater than all that were ever given out: it never decreases;
- epochs grow along the chain, the tiered prefix aside, which is rewritten as a whole; `eras` keeps the epochs in which
  its offsets were written, since that is what clients see as leader epochs;
- `start` only grows; it lies at or after the first link's base, and at or before the last one's end;
- only the job that `tiering` names can change the tiered link, and it can do so once;
- at most one intent: a change of the tail that has been decided and not yet finished. Anyone may finish it.

The chain is published by compare-and-set (`chain_store`); `nonces` are the names of its last few changes, so that
somebody who does not know whether their change took place can look.
"""

from __future__ import annotations

import itertools
from typing import Any

import msgspec

from catena.errors import OffsetOutOfRange, StaleView
from catena.types import Epoch, Offset

TIERED = "tiered"
REMEMBERED_NONCES = 16
FORMAT = 1


class Link(msgspec.Struct, frozen=True, omit_defaults=True):
    kind: str
    epoch: Epoch
    base: Offset
    end: Offset | None = None
    params: dict[str, Any] = {}

    @property
    def is_open(self) -> bool:
        return self.end is None

    def holds(self, offset: Offset) -> bool:
        return self.base <= offset and (self.end is None or offset < self.end)


class Intent(msgspec.Struct, frozen=True, omit_defaults=True):
    """The last link is to be sealed, and a link of this kind is to follow; kind None: nothing follows, for now."""

    nonce: str
    epoch: Epoch
    kind: str | None = None
    params: dict[str, Any] = {}


class Chain(msgspec.Struct, frozen=True, omit_defaults=True):
    links: tuple[Link, ...]
    next_epoch: Epoch
    start: Offset = 0
    intent: Intent | None = None
    deleted: bool = False
    tiering: str | None = None
    """The job that may change the tiered link; any later one takes its place."""
    eras: tuple[tuple[Offset, Epoch], ...] = ()
    """From which offset on which epoch wrote what is in the tiered link."""
    revision: int = 0
    nonces: tuple[str, ...] = ()
    format: int = FORMAT

    @property
    def last(self) -> Link:
        return self.links[-1]

    @property
    def boundary(self) -> Offset:
        """Below it, offsets are tiered or gone: nobody looks for them in the links that take appends."""
        return max(self.start, self.links[0].end or 0) if self.links[0].kind == TIERED else self.start

    def link_at(self, offset: Offset) -> Link | None:
        """The link that holds `offset`; a sealed chain's end belongs to none."""
        for link in reversed(self.links):
            if link.holds(offset):
                return link
        return None

    @property
    def tiered(self) -> Link | None:
        return self.links[0] if self.links[0].kind == TIERED else None

    @property
    def written(self) -> tuple[tuple[Offset, Epoch], ...]:
        """From which offset on which epoch has written the log, in order."""
        eras = {epoch: base for base, epoch in self.eras}
        for link in self.links:
            if link.kind != TIERED:
                eras.setdefault(link.epoch, link.base)
        return tuple((base, epoch) for epoch, base in eras.items())

    def epoch_at(self, offset: Offset) -> Epoch:
        """The epoch that has written this offset, or will."""
        link = self.link_at(offset)
        if link is not None and link.kind != TIERED:
            return link.epoch
        return next((epoch for base, epoch in reversed(self.written) if base <= offset), self.last.epoch)


def initial(kind: str, params: dict[str, Any] | None = None) -> Chain:
    """The chain of a partition whose chain nobody has changed yet; it is not stored until somebody does."""
    return Chain(links=(Link(kind, 1, 0, None, params or {}),), next_epoch=2)


def intend(chain: Chain, nonce: str, kind: str | None, params: dict[str, Any] | None = None) -> Chain:
    """Decide what follows the last link; gives out the next epoch."""
    if chain.intent is not None:
        raise StaleView(f"another change of the chain is under way: {chain.intent.nonce}")
    intent = Intent(nonce, chain.next_epoch, kind, params or {})
    return _changed(chain, intent=intent, next_epoch=chain.next_epoch + 1)


def seal(chain: Chain, tail: Offset) -> Chain:
    """Close the last link at `tail`. Done as part of an intent only, by `finish`."""
    if not chain.last.is_open:
        return chain
    if tail < chain.last.base:
        raise AssertionError(f"tail {tail} lies below the base of the last link, {chain.last.base}")
    return _changed(chain, links=(*chain.links[:-1], msgspec.structs.replace(chain.last, end=tail)))


def open_link(chain: Chain, kind: str, epoch: Epoch, params: dict[str, Any]) -> Chain:
    """Put an open link behind the last one, which is closed. An empty one is replaced, to keep the chain short."""
    end = chain.last.end
    assert end is not None, "the last link is open"
    links = chain.links[:-1] if chain.last.base == end and chain.last.kind != TIERED else chain.links
    return _changed(chain, links=(*links, Link(kind, epoch, end, None, params)))


def finish(chain: Chain, nonce: str, tail: Offset) -> Chain:
    """Turn the intent of this nonce into what it intends, the last link having been sealed at `tail`."""
    intent = chain.intent
    if intent is None or intent.nonce != nonce:
        raise StaleView(f"the change {nonce} of the chain is no longer under way")
    sealed = seal(msgspec.structs.replace(chain, intent=None), tail)
    if intent.kind is None:
        return _checked(chain, sealed)
    return open_link(sealed, intent.kind, intent.epoch, intent.params)


def begin_tiering(chain: Chain, job: str) -> Chain:
    """From now on no other job can finish: one that sleeps, and whose objects may be gone when it wakes, never will."""
    if chain.deleted:
        raise StaleView("the topic is deleted")
    return _changed(chain, tiering=job)


def abandon_tiering(chain: Chain, job: str) -> Chain:
    """The job can't finish any more; nothing is changed if another one has taken its place."""
    return _changed(chain, tiering=None) if chain.tiering == job else chain


def finish_tiering(chain: Chain, job: str, base: Offset, boundary: Offset, params: dict[str, Any]) -> Chain:
    """Offsets from `base` to `boundary` are now in the tiered link that `params` describe; what held them shrinks.

    The one step with which tiering, merging and dropping end. `base` is where the chain began when the job did, or lies
    between that and the log's start: then what is below it is dropped.
    """
    first = chain.links[0]
    if chain.deleted or chain.tiering != job:
        raise StaleView(f"the job {job} was abandoned")
    if base < first.base or boundary < chain.boundary:
        raise StaleView(f"offsets from {base} to {boundary} were trimmed or tiered by others")
    if base > boundary or (base > first.base and base > chain.start):
        raise AssertionError(f"offsets from {first.base} on are needed, not only from {base} on")
    rest = chain.links[1:] if first.kind == TIERED else chain.links
    absorbed = tuple((link.base, link.epoch) for link in rest if link.base < boundary)
    kept = [link for link in rest if link.end is None or link.end > boundary] or [rest[-1]]
    if not kept[0].base <= boundary or (kept[0].end is not None and boundary > kept[0].end):
        raise AssertionError(f"boundary {boundary} lies outside of the chain")
    known = {epoch for _, epoch in chain.eras}
    eras = (*chain.eras, *(era for era in absorbed if era[1] not in known))
    kept[0] = msgspec.structs.replace(kept[0], base=boundary)
    tiered = Link(TIERED, chain.next_epoch, base, boundary, params)
    links = (tiered, *kept)
    return _changed(chain, links=links, eras=_needed(eras, base), tiering=None, next_epoch=chain.next_epoch + 1)


def trim(chain: Chain, offset: Offset) -> Chain:
    """The log starts at `offset` now, or further on if it did already. The last link is never dropped."""
    end = chain.last.end
    if end is not None and offset > end:
        raise OffsetOutOfRange(offset, chain.start, end)
    if offset <= chain.start:
        return chain
    kept = tuple(link for link in chain.links[:-1] if link.end is not None and link.end > offset)
    links = (*kept, chain.last)
    eras = _needed(chain.eras, offset) if links[0].kind == TIERED else ()
    return _changed(chain, links=links, start=offset, eras=eras)


def tombstone(chain: Chain) -> Chain:
    """The topic was deleted. The record stays until vacuum is sure that no late writer is left."""
    return _changed(chain, deleted=True, intent=None)


def signed(chain: Chain, nonce: str) -> Chain:
    """The chain as it is published by the change of this name."""
    nonces = (*chain.nonces, nonce)[-REMEMBERED_NONCES:]
    return msgspec.structs.replace(chain, revision=chain.revision + 1, nonces=nonces)


def _needed(eras: tuple[tuple[Offset, Epoch], ...], start: Offset) -> tuple[tuple[Offset, Epoch], ...]:
    """Those that wrote something at or above `start`."""
    over = sum(base <= start for base, _ in eras[1:])
    return eras[over:]


def _changed(chain: Chain, **fields: Any) -> Chain:
    return _checked(chain, msgspec.structs.replace(chain, **fields))


def _checked(old: Chain, new: Chain) -> Chain:
    links = new.links
    assert links, "a chain has a link"
    for left, right in itertools.pairwise(links):
        assert left.end == right.base, f"links don't meet: {left} {right}"
        assert left.kind == TIERED or left.epoch < right.epoch, f"epochs don't grow: {left} {right}"
    for link in links:
        assert link.end is None or link.base <= link.end, f"a link ends before it starts: {link}"
        assert link.epoch < new.next_epoch, f"epoch of {link} was never given out"
    assert list(new.written) == sorted(new.written), f"epochs did not write one after the other: {new.written}"
    assert new.next_epoch >= old.next_epoch, "next_epoch went back"
    assert new.start >= old.start, "start went back"
    assert links[-1].end is None or new.start <= links[-1].end, "start is beyond the end"
    return new
