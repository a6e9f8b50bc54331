"""Which cluster a meta store and a bucket belong to, and in which format they are written.

Both carry the same small record. The meta store's is created first; a bucket that names another cluster, or a record in
a newer format than this version knows, is refused before anything is touched.
"""

from __future__ import annotations

import msgspec

from catena.errors import Conflict, Corrupt, ObjectMissing, OutcomeUnknown, StoreRefused, StoreUnavailable
from catena.meta import keys
from catena.meta.base import MetaStore
from catena.objects.base import ObjectStore
from catena.runtime import Clock, Entropy
from catena.types import ABSENT

FORMAT = 1
MAX_ATTEMPTS = 10


class ClusterRecord(msgspec.Struct, frozen=True):
    cluster_id: str
    format: int
    created_at_ms: int


async def join_cluster(meta: MetaStore, objects: ObjectStore, clock: Clock, entropy: Entropy) -> ClusterRecord:
    """The cluster that these stores hold; a new one if both are empty."""
    in_bucket = await find_in_bucket(objects)
    in_meta = await find_in_meta(meta)
    if in_meta is None:
        if in_bucket is not None:
            raise StoreRefused(
                f"the bucket belongs to cluster {in_bucket.cluster_id}, but the meta store is empty: "
                "is this the right meta store? Restore it, or use an empty bucket"
            )
        in_meta = await _create_in_meta(meta, ClusterRecord(entropy.hex_id(), FORMAT, clock.now_ms()))
    if in_bucket is None:
        in_bucket = await _create_in_bucket(objects, in_meta)
    if in_bucket.cluster_id != in_meta.cluster_id:
        raise StoreRefused(
            f"the bucket belongs to cluster {in_bucket.cluster_id}, the meta store to {in_meta.cluster_id}: "
            "check which of the two addresses is wrong"
        )
    return in_meta


async def find_in_meta(meta: MetaStore) -> ClusterRecord | None:
    record = await meta.get(keys.CLUSTER)
    return _decode("meta record", record.value) if record is not None else None


async def find_in_bucket(objects: ObjectStore) -> ClusterRecord | None:
    try:
        return _decode("object", (await objects.get(keys.CLUSTER)).data)
    except ObjectMissing:
        return None


async def _create_in_meta(meta: MetaStore, cluster: ClusterRecord) -> ClusterRecord:
    for _ in range(MAX_ATTEMPTS):
        try:
            await meta.put(keys.CLUSTER, msgspec.json.encode(cluster), ABSENT)
        except OutcomeUnknown:
            continue
        except Conflict as conflict:
            if conflict.current is not None:
                return _decode("meta record", conflict.current.value)
            continue
        return cluster
    raise StoreUnavailable("the meta store did not take the cluster's record")


async def _create_in_bucket(objects: ObjectStore, cluster: ClusterRecord) -> ClusterRecord:
    for _ in range(MAX_ATTEMPTS):
        try:
            await objects.put(keys.CLUSTER, [msgspec.json.encode(cluster)], ABSENT)
        except (Conflict, OutcomeUnknown):
            if (found := await find_in_bucket(objects)) is not None:
                return found
            continue
        return cluster
    raise StoreUnavailable("the object store did not take the cluster's record")


def _decode(what: str, value: bytes) -> ClusterRecord:
    try:
        cluster = msgspec.json.decode(value, type=ClusterRecord)
    except msgspec.MsgspecError as error:
        raise Corrupt(f"{what} {keys.CLUSTER} can't be read: {error}") from error
    if cluster.format > FORMAT:
        raise StoreRefused(
            f"{what} {keys.CLUSTER} is in format {cluster.format}, and this version of Catena knows up to {FORMAT}: "
            "use a newer version"
        )
    return cluster
