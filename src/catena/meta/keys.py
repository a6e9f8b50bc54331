"""Everything that is persisted in the meta store: key, value, who changes it and under which condition.

| key | value | changed by | condition |
|---|---|---|---|
| `llog/cluster` | cluster id, format version | the first node that starts | absent, then never |
| `llog/incarnation` | Incarnation: a number that only grows; an object of the same name has it, too, and is never ahead | anyone who writes, now and then; `catena doctor --accept-older-meta` | compare-and-set; then the object, on its etag |
| `llog/nodes/{node_id}` | NodeRecord: incarnation, rack, roles, addresses; ephemeral, gone with the node's session | the node itself | absent; its own record's version when it has a new session, or removes one too many |
| `llog/services/{id}` | ServiceRecord: where a service of the pipeline tells of itself; ephemeral, gone with its session | the service itself | none: the id is its own; it decides nothing |
| `llog/topics/{name}` | TopicRecord: id, partitions, state, configs; stays when the topic is deleted | anyone: create, delete, add partitions, alter configs | compare-and-set |
| `llog/deleted/{topic_id}` | Tombstone of a topic: what vacuum has to collect | whoever finishes a delete; vacuum notes that the topic is forgotten, and deletes it 30 days later | absent, then compare-and-set |
| `llog/{topic_id}/partitions/{p}/meta/chain` | Chain | anyone: reconfigure, seal, trim, tier, delete | compare-and-set, with a nonce in the value |
| `llog/{topic_id}/partitions/{p}/meta/control` | Control: epoch, state, next, pending | anyone: append, seal, open a link | compare-and-set |
| `llog/{topic_id}/partitions/{p}/handoff/{epoch}[.{part}]` | producer state at the base of the link with this epoch | whoever reconfigures | absent |
| `llog/{topic_id}/partitions/{p}/index/{end_offset}` | IndexEntry: where the run that ends here is stored | the committer of the run, or whoever materializes `pending` | absent; in a group under the control record's condition |
| `llog/{topic_id}/partitions/{p}/producers/{producer_id}` | ProducerRecord: the last 5 batches | as above | newer offset only |
| `llog/{topic_id}/partitions/{p}/meta/compaction` | CompactionRecord: what a job is doing to the tiered link, and how far it is | the job, or whoever finishes or abandons it | compare-and-set; it decides nothing |
| `llog/{topic_id}/partitions/{p}/meta/compactor-claim` | who works on the partition; ephemeral, gone with its session | whoever works on it | absent; it only saves work |
| `llog/groups/{group}/state` | GroupHeader and the snapshot of the group's machine; stays, without a snapshot, when the group is deleted | the group's coordinator, or whoever takes over as such | compare-and-set, with a nonce in the value |
| `llog/group-offsets/{group}/{topic_id}/{chunk}` | OffsetChunk: committed offsets of 100 partitions | the group's coordinator | compare-and-set, in a group with a check of the state; without `transact` never over one of a higher coordinator epoch |
| `llog/writes/{app}/head` | WriteHead: up to which version an application's writes are done, and the one that is under way | whoever commits or finishes a write of the application; the pipeline deletes it long after the last one | compare-and-set, with a nonce in the value |
| `llog/writes/{app}/body/{version}.{nonce}/{part}` | a part of what a large write consists of | whoever is about to begin the write | absent; deleted when this version, or a later one, is done, and by vacuum if it is old and not begun |
| `llog/vacuum-grace` | Grace: how old an object has to be before a vacuum takes it | each vacuum, before it lists | compare-and-set; longer only when no vacuum can be under way with the shorter one |
| `llog/jobs/{job}` | GoodRun: when a job of the pipeline last ran and nothing of it failed | whoever ran it | compare-and-set, forward only; it decides nothing |
| `llog/producer-ids` | the next producer id that nobody has been given | anyone: reserve a block | compare-and-set |
| `llog/doctor/{id}` | nothing | `catena doctor`, to see what the store does; it deletes it again | absent, then its version |

Offsets are zero-padded to 20 digits, so that byte order is offset order and a ceiling lookup of an offset finds the run
that holds it. All keys of one partition share a routing key, so that a sharded store keeps them together; so do those
of one group, and of one application that writes. `{group}` is a group id with `=XX` for each byte that can't be in a key. The states of groups lie apart from
their offsets, so that listing groups does not read offsets. `{app}` is an id that is quoted in the same way.
"""

from __future__ import annotations

from typing import NamedTuple

from catena.types import Epoch, Offset, TopicId, TopicPartition

ROOT = "llog"
CLUSTER = f"{ROOT}/cluster"
INCARNATION = f"{ROOT}/incarnation"
NODES = f"{ROOT}/nodes/"
SERVICES = f"{ROOT}/services/"
TOPICS = f"{ROOT}/topics/"
DELETED = f"{ROOT}/deleted/"
DOCTOR = f"{ROOT}/doctor/"
GROUPS = f"{ROOT}/groups/"
GROUP_OFFSETS = f"{ROOT}/group-offsets/"
PRODUCER_IDS = f"{ROOT}/producer-ids"
JOBS = f"{ROOT}/jobs/"
WRITES = f"{ROOT}/writes/"
VACUUM_GRACE = f"{ROOT}/vacuum-grace"

WAL_BLOBS = f"{ROOT}/wal-shared/"
"""Prefix of the shared blobs, in the object store."""

OFFSET_DIGITS = 20

MAX_GROUP_PART = 255
"""The longest part of a key, and so the longest quoted group id. A hash in place of longer ones would take them all, but
a listing of groups could not tell their names."""

_PLAIN = frozenset(b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789._-")


def after(prefix: str) -> str:
    """The least key that is greater than every key that starts with `prefix`."""
    return prefix[:-1] + chr(ord(prefix[-1]) + 1)


def wal_blob(blob_id: str) -> str:
    return WAL_BLOBS + blob_id


def node(node_id: int) -> str:
    return f"{NODES}{node_id}"


def service(service_id: str) -> str:
    return SERVICES + service_id


def topic(name: str) -> str:
    return TOPICS + name


def deleted(topic_id: TopicId) -> str:
    return DELETED + topic_id


def partition(tp: TopicPartition) -> str:
    """Prefix of all keys of one partition, objects included."""
    return f"{ROOT}/{tp.topic_id}/partitions/{tp.partition}/"


def chain(tp: TopicPartition) -> str:
    return partition(tp) + "meta/chain"


def control(tp: TopicPartition) -> str:
    return partition(tp) + "meta/control"


def handoff(tp: TopicPartition, epoch: Epoch, part: int = 0) -> str:
    """Parts of an epoch lie between its first one and the first one of the next epoch."""
    first = f"{partition(tp)}handoff/{epoch:0{OFFSET_DIGITS}d}"
    return first if part == 0 else f"{first}.{part:03d}"


def index_prefix(tp: TopicPartition) -> str:
    return partition(tp) + "index/"


def index(tp: TopicPartition, end_offset: Offset) -> str:
    """`end_offset` is the last offset of the run."""
    return f"{index_prefix(tp)}{end_offset:0{OFFSET_DIGITS}d}"


def producer_prefix(tp: TopicPartition) -> str:
    return partition(tp) + "producers/"


def producer(tp: TopicPartition, producer_id: int) -> str:
    return f"{producer_prefix(tp)}{producer_id:0{OFFSET_DIGITS}d}"


def quoted_group(group_id: str) -> str:
    """Any id as a part of a key, and back by `unquoted_group`. `.` and `..` can't be parts as they are."""
    plain = frozenset[int]() if group_id in (".", "..") else _PLAIN
    return "".join(chr(b) if b in plain else f"={b:02X}" for b in group_id.encode("utf-8", "surrogatepass"))


def unquoted_group(quoted: str) -> str:
    first, *others = quoted.split("=")
    data = first.encode() + b"".join(bytes.fromhex(other[:2]) + other[2:].encode() for other in others)
    return data.decode("utf-8", "surrogatepass")


def is_group_id(group_id: str) -> bool:
    """Whether there can be keys for it."""
    return 0 < len(quoted_group(group_id)) <= MAX_GROUP_PART


def job(name: str) -> str:
    return JOBS + name


def group_state(group_id: str) -> str:
    return f"{GROUPS}{quoted_group(group_id)}/state"


def group_offsets(group_id: str) -> str:
    """Prefix of all offsets of one group."""
    return f"{GROUP_OFFSETS}{quoted_group(group_id)}/"


def group_offset_chunk(group_id: str, topic_id: TopicId, chunk: int) -> str:
    return f"{group_offsets(group_id)}{topic_id}/{chunk}"


def write_head(app: str) -> str:
    return f"{WRITES}{quoted_group(app)}/head"


def write_bodies(app: str, version: int) -> str:
    """Bodies of all versions from this one on begin here."""
    return f"{WRITES}{quoted_group(app)}/body/{version:0{OFFSET_DIGITS}d}"


def write_body_part(app: str, version: int, nonce: str, part: int) -> str:
    return f"{write_bodies(app, version)}.{nonce}/{part:05d}"


class WriteBody(NamedTuple):
    """Where the parts of a body are."""

    head: str
    """The key of the application's head."""
    prefix: str
    nonce: str


def parse_write_body_part(key: str) -> WriteBody | None:
    """None: it is no part of a body."""
    parts = key.removeprefix(WRITES).split("/")
    if not key.startswith(WRITES) or len(parts) != 4 or parts[1] != "body":
        return None
    app, _, name, _ = parts
    return WriteBody(f"{WRITES}{app}/head", f"{WRITES}{app}/body/{name}/", name.partition(".")[2])


def compaction(tp: TopicPartition) -> str:
    return partition(tp) + "meta/compaction"


def compactor_claim(tp: TopicPartition) -> str:
    return partition(tp) + "meta/compactor-claim"


def segment_prefix(tp: TopicPartition) -> str:
    return partition(tp) + "segments/"


def segment(tp: TopicPartition, job: str, segment_id: str) -> str:
    """In the object store. A job's segments lie together: as long as it may finish, they are needed. So does what the
    tasks of a compaction hand over to each other."""
    return f"{segment_prefix(tp)}{job}/{segment_id}"


def manifest_prefix(tp: TopicPartition) -> str:
    return partition(tp) + "manifests/"


def manifest(tp: TopicPartition, job: str) -> str:
    """In the object store; a job makes one."""
    return manifest_prefix(tp) + job


def routing_key(key: str) -> str:
    """What a sharded store routes by: one for all keys of a partition, one for all of a group, else the key itself."""
    if key.startswith((GROUPS, GROUP_OFFSETS)):
        return f"group:{key.split('/', 3)[2]}"
    if key.startswith(WRITES):
        return f"write:{key.split('/', 3)[2]}"
    parts = key.split("/", 4)
    if len(parts) == 5 and parts[0] == ROOT and parts[2] == "partitions":
        return f"{parts[1]}:{parts[3]}"
    return key
