"""Producer state at the base of a link, so that idempotence crosses from one loglet to the next.

It is written after the seal that it comes from and before the link that needs it is published. It has as many parts as
it needs, each created once. Whoever finishes a change makes sure that the parts together hold all producers it was
told of; several may do so at once, since a seal tells all of them the same. No handoff means no producers.
"""

from __future__ import annotations

from collections.abc import Mapping

import msgspec

from catena.errors import Conflict, Corrupt, OutcomeUnknown, StoreUnavailable
from catena.loglets.producers import ProducerState
from catena.meta import keys
from catena.meta.base import MetaStore, Record
from catena.types import ABSENT, Epoch, TopicPartition

PRODUCERS_PER_PART = 2500
"""Fewer than a meta record holds, however long their numbers are."""
MAX_PARTS = 100
"""Past it those that have been silent longest are forgotten."""
MAX_ATTEMPTS = 10

_decoder = msgspec.json.Decoder(dict[int, ProducerState])


async def create_handoff(
    meta: MetaStore, tp: TopicPartition, epoch: Epoch, producers: Mapping[int, ProducerState]
) -> None:
    left = dict(sorted(producers.items(), key=lambda item: item[1].updated_ms, reverse=True))
    for part in range(MAX_PARTS):
        if not left:
            return
        ours = dict(list(left.items())[:PRODUCERS_PER_PART])
        for producer_id in await _create_part(meta, keys.handoff(tp, epoch, part), ours):
            left.pop(producer_id, None)


async def _create_part(meta: MetaStore, key: str, producers: dict[int, ProducerState]) -> Mapping[int, ProducerState]:
    """The part as it is now: ours, or what somebody else has written before."""
    for _ in range(MAX_ATTEMPTS):
        try:
            await meta.put(key, msgspec.json.encode(producers), ABSENT)
        except OutcomeUnknown:
            continue
        except Conflict as conflict:
            if conflict.current is not None:
                return _decode(conflict.current)
        else:
            return producers
    raise StoreUnavailable(f"{key} could not be written: the producers are not handed over yet")


async def load_handoff(meta: MetaStore, tp: TopicPartition, epoch: Epoch) -> Mapping[int, ProducerState]:
    producers: dict[int, ProducerState] = {}
    for record in await meta.scan(keys.handoff(tp, epoch), keys.handoff(tp, epoch + 1), MAX_PARTS):
        producers |= _decode(record)
    return producers


def _decode(record: Record) -> dict[int, ProducerState]:
    try:
        return _decoder.decode(record.value)
    except msgspec.MsgspecError as error:
        raise Corrupt(f"meta record {record.key} can't be read: {error}") from error
