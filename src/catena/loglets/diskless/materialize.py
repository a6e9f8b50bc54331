"""Write down what `pending` stands for: its index entries and producer records. Anyone may do it, any number of times.

An append without `transact` is committed by one compare-and-set, which can't write a second key; so it leaves its index
entries in the control record. Whoever commits next MUST succeed here first, because their own compare-and-set replaces
`pending`: skipped, a committed offset would be in no index.

Crash at any step: `pending` is still in the control record, and the next caller does it again. A caller that stalls and
wakes late can do no harm: index entries are only created where there is none, and not below the boundary, where the
offsets have gone elsewhere; producer records only change to a newer state.
"""

from __future__ import annotations

from collections.abc import Mapping

from catena.errors import Conflict, Contended, Corrupt, OutcomeUnknown, StoreUnavailable
from catena.loglets.base import LinkSpec
from catena.loglets.diskless.records import (
    IndexEntry,
    Pending,
    ProducerRecord,
    decode_index_entry,
    decode_producer,
    encode,
)
from catena.loglets.producers import ProducerState
from catena.meta import keys
from catena.meta.base import MetaStore, Record
from catena.types import ABSENT, Epoch, Expect, TopicPartition, Version

MAX_ATTEMPTS = 20


async def materialize(
    meta: MetaStore,
    link: LinkSpec,
    epoch: Epoch,
    pending: Pending,
    expect: Mapping[int, Version | Expect] | None = None,
) -> dict[int, Version]:
    """`epoch` is that of the control record with this `pending`, `link` any link of the partition.

    `expect` has versions of producer records where the caller knows them. Returns the versions of those it wrote.
    """
    tp = link.partition
    boundary = await link.boundary()
    for entry in pending.entries:
        if entry.end_offset >= boundary:
            await _create_index_entry(meta, tp, entry)
    written: dict[int, Version] = {}
    for producer_id, state in pending.producers.items():
        known = expect.get(producer_id) if expect else None
        version = await _advance_producer(meta, tp, producer_id, ProducerRecord(epoch, state), known)
        if version is not None:
            written[producer_id] = version
    return written


async def _create_index_entry(meta: MetaStore, tp: TopicPartition, entry: IndexEntry) -> None:
    key = keys.index(tp, entry.end_offset)
    value = encode(entry)
    for _ in range(MAX_ATTEMPTS):
        try:
            await meta.put(key, value, ABSENT)
        except Conflict as conflict:
            if conflict.current is not None:
                found = decode_index_entry(key, conflict.current.value)
                if found.append_id != entry.append_id:
                    raise Corrupt(f"{key} belongs to append {found.append_id}, not {entry.append_id}") from None
                return
        except OutcomeUnknown:
            continue  # creating it again is harmless
        else:
            return
    raise StoreUnavailable(f"{key} could not be written; it stays pending")


async def _advance_producer(
    meta: MetaStore, tp: TopicPartition, producer_id: int, record: ProducerRecord, expect: Version | Expect | None
) -> Version | None:
    """Write the record unless there is a newer one; None: there was."""
    key = keys.producer(tp, producer_id)
    value = encode(record)
    for _ in range(MAX_ATTEMPTS):
        if expect is None:
            found = await meta.get(key)
            if _is_newer(found, record.link_epoch, record.state):
                return None
            expect = ABSENT if found is None else found.version
        try:
            return await meta.put(key, value, expect)
        except (Conflict, OutcomeUnknown):
            expect = None
    raise Contended(f"{key} was changed by others {MAX_ATTEMPTS} times in a row")


def _is_newer(found: Record | None, epoch: Epoch, state: ProducerState) -> bool:
    if found is None:
        return False
    record = decode_producer(found.key, found.value)
    return (record.link_epoch, record.state.end) >= (epoch, state.end)
