"""Seal a link: one compare-and-set of the control record to FENCED. After it no commit of this epoch can succeed.

Anyone may seal, any number of times. A link that nobody has written to is sealed too, so that a writer that comes late
finds the fence. Crash before the compare-and-set: the link is open. After it: sealed; sealing again answers the same.
"""

from __future__ import annotations

from typing import NamedTuple

import msgspec

from catena.errors import Conflict, Contended, OutcomeUnknown, Sealed
from catena.loglets.base import LinkSpec, SealResult
from catena.loglets.diskless.materialize import materialize
from catena.loglets.diskless.records import Control, decode_control, decode_producer, encode
from catena.loglets.producers import ProducerState, unexpired
from catena.meta import keys
from catena.meta.base import MetaStore, Record
from catena.runtime import Clock
from catena.types import ABSENT, Expect, Version

MAX_ATTEMPTS = 100


class _Found(NamedTuple):
    control: Control | None
    expect: Version | Expect


async def seal(meta: MetaStore, clock: Clock, link: LinkSpec) -> SealResult:
    control = await _fence(meta, link)
    if control.pending is not None:
        await materialize(meta, link, control.epoch, control.pending)
    return SealResult(control.next, await _producers(meta, link, clock.now_ms()))


async def _fence(meta: MetaStore, link: LinkSpec) -> Control:
    key = keys.control(link.partition)
    found = _found(await meta.get(key))
    for _ in range(MAX_ATTEMPTS):
        fenced = _fenced(found.control, link)
        if fenced is found.control:
            return fenced
        if found.control is not None and found.control.epoch < link.epoch and found.control.pending is not None:
            await materialize(meta, link, found.control.epoch, found.control.pending)
        try:
            await meta.put(key, encode(fenced), found.expect)
        except Conflict as conflict:
            found = _found(conflict.current)
        except OutcomeUnknown:
            found = _found(await meta.get(key))
        else:
            return fenced
    raise Contended(f"{link.partition}: could not seal epoch {link.epoch}: others commit all the time")


def _fenced(control: Control | None, link: LinkSpec) -> Control:
    """The record that seals the link; the same object if it is sealed already."""
    if control is None or control.epoch < link.epoch:
        return Control(link.epoch, "FENCED", link.base)
    if control.epoch > link.epoch:
        raise Sealed(f"{link.partition}: epoch {link.epoch} was sealed and epoch {control.epoch} has followed")
    if control.state == "FENCED":
        return control
    return msgspec.structs.replace(control, state="FENCED")


async def _producers(meta: MetaStore, link: LinkSpec, now_ms: int) -> dict[int, ProducerState]:
    """What the next link has to know: this link's records over what it was opened with."""
    producers = dict(await link.handoff())
    start, end = keys.producer_prefix(link.partition), keys.after(keys.producer_prefix(link.partition))
    while page := await meta.scan(start, end):
        for record in page:
            written = decode_producer(record.key, record.value)
            if written.link_epoch == link.epoch:
                producers[int(record.key.rpartition("/")[2])] = written.state
        start = page[-1].key + "\0"
    return {each: state for each, state in producers.items() if unexpired(state, now_ms) is not None}


def _found(record: Record | None) -> _Found:
    if record is None:
        return _Found(None, ABSENT)
    return _Found(decode_control(record.key, record.value), record.version)
