"""The record of a job on a partition, step by step, and what becomes of one that was left behind.

A job that is gone, or asleep, has left its record in one of three states. Whoever has the claim now:

    WRITING_COMPACTED_INDEX    abandons it: what it wrote is for vacuum
    UPDATING_CURSOR            finishes it, or abandons it if the chain does not take it any more
    DELETING_OLD               finishes it

Each step is safe to repeat, and safe when the one that was taken for dead wakes up: the record is changed under its
version, the chain takes one job only, and nobody looks for offsets below the boundary in the index.
"""

from __future__ import annotations

from contextlib import suppress
from typing import Any, Literal, NamedTuple, TypeAlias

import msgspec

from catena.errors import Conflict, ObjectMissing, OutcomeUnknown, StaleView, StoreUnavailable
from catena.formats import manifest as manifests
from catena.formats.manifest import Manifest
from catena.meta import keys
from catena.meta.base import Session
from catena.pipeline.records import DELETING, UPDATING, Claim, CompactionRecord, State, decode_compaction
from catena.pipeline.replaced import TAKEN_AT
from catena.pipeline.site import Place, Site
from catena.types import ABSENT, Expect, Offset, TopicPartition, Version
from catena.virtual_log import chain as chains
from catena.virtual_log.chain import Chain

Recovery: TypeAlias = Literal["nothing", "abandoned", "finished"]

MAX_ATTEMPTS = 20


class Open(NamedTuple):
    """A record that is in the store, or is to be created."""

    record: CompactionRecord
    expect: Version | Expect


def link_params(key: str, manifest: Manifest, now_ms: int) -> dict[str, Any]:
    """What the chain says of a tiered link."""
    return {
        "manifest": key,
        "segments": len(manifest.segments),
        "bytes": sum(segment.size for segment in manifest.segments),
        TAKEN_AT: now_ms,
    }


async def claim(site: Site, tp: TopicPartition, session: Session) -> Version | None:
    """Whether the partition is ours to work on: None if it is not. It may become another's at any time."""
    value = msgspec.json.encode(Claim(session.id, site.clock.now_ms()))
    try:
        return await site.meta.put(keys.compactor_claim(tp), value, ABSENT, ephemeral=session)
    except (Conflict, OutcomeUnknown):
        return None  # if it is ours all the same, it ends with the session


async def unclaim(site: Site, tp: TopicPartition, claimed: Version) -> None:
    with suppress(Conflict, StoreUnavailable, OutcomeUnknown):  # else it ends with the session
        await site.meta.delete(keys.compactor_claim(tp), claimed)


async def load(site: Site, tp: TopicPartition) -> Open | None:
    found = await site.meta.get(keys.compaction(tp))
    return None if found is None else Open(decode_compaction(found.key, found.value), found.version)


async def write(site: Site, tp: TopicPartition, record: CompactionRecord, expect: Version | Expect) -> Open:
    """Raises StaleView if another job has written its own meanwhile."""
    key, value = keys.compaction(tp), msgspec.json.encode(record)
    for _ in range(MAX_ATTEMPTS):
        try:
            return Open(record, await site.meta.put(key, value, expect))
        except OutcomeUnknown:
            continue  # the same again: it expects the same version, and so applies once
        except Conflict as conflict:
            if conflict.current is not None and conflict.current.value == value:
                return Open(record, conflict.current.version)
            raise StaleView(f"{key} was taken over by another job") from None
    raise StoreUnavailable(f"{key} could not be written")


async def move(site: Site, tp: TopicPartition, opened: Open, state: State) -> Open:
    return await write(site, tp, msgspec.structs.replace(opened.record, state=state), opened.expect)


async def remove(site: Site, tp: TopicPartition, opened: Open) -> None:
    with suppress(Conflict, OutcomeUnknown):  # another's by now; or the next one to look finds and removes it
        await site.meta.delete(keys.compaction(tp), opened.expect)


def begun(chain: Chain, seen: Chain, job: str) -> Chain:
    """The chain with this job named in it. Raises StaleView if it is not the one that the job was planned for."""
    # An earlier revision: the topic was deleted, and vacuum has forgotten it.
    is_same = (chain.links[0].epoch, chain.boundary) == (seen.links[0].epoch, seen.boundary)
    if not is_same or chain.revision < seen.revision:
        raise StaleView("the chain was changed meanwhile")
    return chains.begin_tiering(chain, job)


async def publish(site: Site, place: Place, opened: Open, manifest: Manifest) -> Chain:
    """From segments that are written to the end of the job. Raises StaleView if it was all for nothing."""
    try:
        await site.objects.put(opened.record.data_key, [manifests.encode(manifest)], ABSENT)
    except Conflict:
        pass  # an earlier try of ours: the name is known to nobody else
    return await commit(site, place, await move(site, place.tp, opened, UPDATING), manifest)


async def commit(site: Site, place: Place, opened: Open, manifest: Manifest) -> Chain:
    """From a manifest that is written to the end of the job. Raises StaleView if the chain does not take it."""
    record = opened.record

    def finished(chain: Chain) -> Chain:
        params = link_params(record.data_key, manifest, site.clock.now_ms())
        return chains.finish_tiering(chain, record.compaction_id, record.base, record.boundary, params)

    chain = (await site.chains.change(place.tp, place.kind, finished)).chain
    with suppress(StaleView):  # whoever has taken the record over does the rest
        await clean(site, place.tp, await move(site, place.tp, opened, DELETING), chain.boundary)
    return chain


async def clean(site: Site, tp: TopicPartition, opened: Open, boundary: Offset) -> None:
    await site.meta.delete_range(keys.index_prefix(tp), keys.index(tp, boundary))
    await remove(site, tp, opened)


async def recover(site: Site, place: Place) -> Recovery:
    """Finish or abandon what another job has left. Whoever calls has the claim."""
    opened = await load(site, place.tp)
    if opened is None:
        return "nothing"
    chain = (await site.chains.load(place.tp, place.kind)).chain
    tiered = chain.tiered
    match opened.record.state:
        case "DELETING_OLD":
            pass
        case "UPDATING_CURSOR" if tiered is not None and tiered.params.get("manifest") == opened.record.data_key:
            pass  # the chain has taken it
        case "UPDATING_CURSOR" if chain.tiering == opened.record.compaction_id:
            try:
                blob = await site.objects.get(opened.record.data_key)
                await commit(site, place, opened, manifests.decode(blob.data, opened.record.data_key))
            except (StaleView, ObjectMissing):
                return await abandon(site, place, opened)
            return "finished"
        case _:
            return await abandon(site, place, opened)
    await clean(site, place.tp, opened, chain.boundary)
    return "finished"


async def abandon(site: Site, place: Place, opened: Open) -> Recovery:
    """The chain first: once the record is gone, nothing tells what the chain still waits for."""
    job = opened.record.compaction_id
    with suppress(StaleView):
        await site.chains.change(place.tp, place.kind, lambda chain: chains.abandon_tiering(chain, job))
    await remove(site, place.tp, opened)
    return "abandoned"
