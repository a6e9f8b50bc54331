from __future__ import annotations

import msgspec
import pytest

from catena.meta import keys
from catena.objects.counted import CountedObjects
from catena.objects.memory import MemoryObjects
from catena.pipeline.tasks import TaskContext, listing, run_task
from catena.pipeline.tasks.listing import Listed, ListingPlan, kind_of
from catena.runtime import SystemClock, SystemEntropy
from catena.types import TopicId, TopicPartition
from tests.pipeline.vacuums import LeapingClock

TP = TopicPartition("topic", TopicId("6f5b88fe3ea04a95a148471b6f8c1745"), 12)
JOB, OTHER = "ad04c5e089884466ae19d5649cc8a96a", "88ac1ad141ce48c1b3ace27bee9de6e3"


def test_kinds_go_by_the_names_that_are_given_to_objects() -> None:
    assert kind_of(keys.wal_blob(JOB)) == "wal"
    assert kind_of(keys.segment(TP, JOB, OTHER)) == "segment"
    assert kind_of(keys.manifest(TP, JOB)) == "manifest"


@pytest.mark.parametrize(
    "key",
    [
        keys.CLUSTER,
        keys.INCARNATION,
        keys.chain(TP),
        keys.index(TP, 7),
        keys.wal_blob(JOB) + "\n",
        keys.wal_blob(JOB.upper() + "A"),
        keys.wal_blob(JOB[1:]),
        keys.wal_blob(JOB) + "/" + OTHER,
        "x" + keys.wal_blob(JOB),
        f"meta/{keys.wal_blob(JOB)}",
        keys.segment_prefix(TP) + JOB,
        keys.segment(TP, JOB, OTHER) + ".tmp",
        keys.manifest(TP, JOB) + "/" + OTHER,
        keys.manifest(TP._replace(topic_id=TopicId("topic")), JOB),
        keys.manifest(TP._replace(partition=-1), JOB),
    ],
)
def test_all_other_names_are_unknown(key: str) -> None:
    assert kind_of(key) is None


async def test_what_is_old_and_known_is_listed_and_all_is_counted() -> None:
    clock = LeapingClock()
    objects = CountedObjects(MemoryObjects(clock), clock)
    context = TaskContext(objects, SystemClock(), SystemEntropy(), objects)
    old, young = keys.wal_blob("a" * 32), keys.wal_blob("a" * 31 + "b")
    await objects.put(old, [b"123"])
    clock.leap(1000)
    cutoff_ms = clock.now_ms()
    clock.leap(1000)
    for key in (young, keys.wal_blob("a"), keys.wal_blob("b" * 32)):
        await objects.put(key, [b""])
    plan = msgspec.json.encode(ListingPlan(keys.wal_blob("a"), cutoff_ms))
    listed = listing.decode(await run_task("listing", context, plan))
    assert listed == Listed([old], [3], {"seen": 3, "young": 1, "unknown": 1})
    assert listed.totals == {"rows": 1, "seen": 3, "young": 1, "unknown": 1}
