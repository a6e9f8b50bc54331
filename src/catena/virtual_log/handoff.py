"""Producer state at the base of a link, so that idempotence crosses from one loglet to the next.

It is created after the seal that it comes from and before the link that needs it is published, and never changes. A
link without a handoff starts with no producers.
"""

from __future__ import annotations

from collections.abc import Mapping

import msgspec

from catena.errors import Conflict, Corrupt, OutcomeUnknown, StoreUnavailable
from catena.loglets.producers import ProducerState
from catena.meta import keys
from catena.meta.base import MetaStore
from catena.types import ABSENT, Epoch, TopicPartition

MAX_PRODUCERS = 2500
"""Past it those that have been silent longest are forgotten, so that the record stays below what a store takes."""
MAX_ATTEMPTS = 10

_decoder = msgspec.json.Decoder(dict[int, ProducerState])


async def create_handoff(
    meta: MetaStore, tp: TopicPartition, epoch: Epoch, producers: Mapping[int, ProducerState]
) -> None:
    if not producers:
        return
    newest = sorted(producers.items(), key=lambda item: item[1].updated_ms, reverse=True)[:MAX_PRODUCERS]
    value = msgspec.json.encode(dict(newest))
    for _ in range(MAX_ATTEMPTS):
        try:
            await meta.put(keys.handoff(tp, epoch), value, ABSENT)
        except OutcomeUnknown:
            continue
        except Conflict:
            pass  # whoever wrote it has it from the same seal
        return
    raise StoreUnavailable(f"{tp}: the producers of epoch {epoch} could not be handed over")


async def load_handoff(meta: MetaStore, tp: TopicPartition, epoch: Epoch) -> Mapping[int, ProducerState]:
    record = await meta.get(keys.handoff(tp, epoch))
    if record is None:
        return {}
    try:
        return _decoder.decode(record.value)
    except msgspec.MsgspecError as error:
        raise Corrupt(f"meta record {record.key} can't be read: {error}") from error
