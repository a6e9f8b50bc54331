"""Topics: names, ids and partition counts. A topic's id is its identity; its name can be given to another one later.

Deleting takes these steps, and anyone who finds the topic half deleted finishes them:

    1. mark the topic record DELETING                       crash before: nothing happened
    2. for each partition: tombstone in the chain, seal     from here on no late writer can commit or bring it back
    3. write the tombstone of the topic, for vacuum
    4. mark the topic record DELETED                        the name is free; keys and objects are vacuum's

The record stays: a name is given out again by compare-and-set over it. Were it removed, a create of unknown outcome
that lands late would find the name absent once more, and bring the deleted topic back.

A change of a topic that exists (more partitions, other configs) is a function of the topic's record, published by
compare-and-set, so that none of several at once gets lost. One of unknown outcome is sent again as it was: it expects
the version it was made from, and is applied once at the most. If it is refused, the change is made again from what was
found; made twice it MUST be the same as made once.
"""

from __future__ import annotations

import asyncio
import re
from collections.abc import Callable, Mapping
from contextlib import suppress
from typing import Literal, TypeAlias

import msgspec

from catena.errors import (
    Conflict,
    Contended,
    Corrupt,
    InvalidTopic,
    OutcomeUnknown,
    StoreUnavailable,
    TopicExists,
    UnknownTopic,
)
from catena.meta import keys
from catena.meta.base import MetaStore, Record
from catena.runtime import Clock, Entropy
from catena.types import ABSENT, Expect, TopicId, TopicPartition, Version
from catena.virtual_log import topic_configs
from catena.virtual_log.log import VirtualLog

MAX_PARTITIONS = 100_000
MAX_NAME = 249
DELETE_AT_ONCE = 32
MAX_ATTEMPTS = 50
BACKOFF_S = 0.01

ConfigChange: TypeAlias = Callable[[Mapping[str, str]], Mapping[str, str | None]]
"""From what is set to what is to be set; None: back to the default."""

_name = re.compile(r"[A-Za-z0-9._-]+")


class TopicRecord(msgspec.Struct, frozen=True, omit_defaults=True):
    name: str
    topic_id: TopicId
    partitions: int
    kind: str
    """Of the first link of its partitions."""
    created_at_ms: int
    state: Literal["ACTIVE", "DELETING", "DELETED"] = "ACTIVE"
    configs: dict[str, str] = {}

    def partition(self, number: int) -> TopicPartition:
        return TopicPartition(self.name, self.topic_id, number)


_decoder = msgspec.json.Decoder(TopicRecord)


class Topics:
    def __init__(
        self,
        meta: MetaStore,
        clock: Clock,
        entropy: Entropy,
        open_log: Callable[[TopicRecord, int], VirtualLog],
    ) -> None:
        self._meta = meta
        self._clock = clock
        self._entropy = entropy
        self._open_log = open_log

    async def create(
        self, name: str, partitions: int = 1, kind: str = "diskless", configs: Mapping[str, str] | None = None
    ) -> TopicRecord:
        check_name(name)
        configs = topic_configs.validate(configs or {})
        if not 1 <= partitions <= MAX_PARTITIONS:
            raise InvalidTopic(f"a topic has 1 to {MAX_PARTITIONS} partitions, not {partitions}")
        topic_id = TopicId(self._entropy.hex_id())
        record = TopicRecord(name, topic_id, partitions, kind, self._clock.now_ms(), configs=configs)
        expect: Version | Expect = ABSENT
        unknown = False
        for _ in range(MAX_ATTEMPTS):
            try:
                await self._meta.put(keys.topic(name), msgspec.json.encode(record), expect)
            except OutcomeUnknown:
                unknown = True  # if it was applied, the next try finds our own id
            except StoreUnavailable as error:
                if unknown:
                    raise OutcomeUnknown(f"it is not known whether topic {name!r} was created: {error}") from error
                raise
            except Conflict as conflict:
                if conflict.current is None:
                    expect = ABSENT
                    continue
                found = decode_topic(conflict.current)
                if found.topic_id == topic_id:
                    return found
                if found.state == "ACTIVE":
                    raise TopicExists(name) from None
                if found.state == "DELETING":
                    await self._finish_delete(found)
                else:
                    expect = conflict.current.version
            else:
                return record
        raise Contended(f"topic {name!r} is created and deleted by others all the time")

    async def get(self, name: str) -> TopicRecord:
        """The topic as it is now."""
        check_name(name)
        record = await self._meta.get(keys.topic(name))
        if record is None or (topic := decode_topic(record)).state != "ACTIVE":
            raise UnknownTopic(name)
        return topic

    async def list(self) -> list[TopicRecord]:
        return await list_topics(self._meta)

    async def add_partitions(self, name: str, total: int, topic_id: TopicId | None = None) -> TopicRecord:
        """Have `total` partitions from now on, which must be more than there are."""
        if not 1 <= total <= MAX_PARTITIONS:
            raise InvalidTopic(f"a topic has 1 to {MAX_PARTITIONS} partitions, not {total}")

        def grown(topic: TopicRecord, again: bool) -> TopicRecord:
            if topic.partitions < total:
                return msgspec.structs.replace(topic, partitions=total)
            if again:
                return topic
            if topic.partitions == total:
                raise InvalidTopic(f"topic {name!r} already has {total} partitions")
            raise InvalidTopic(
                f"topic {name!r} currently has {topic.partitions} partitions, which is more than the requested {total}"
            )

        return await self._change(name, topic_id, grown)

    async def alter_configs(
        self, name: str, change: ConfigChange | Mapping[str, str | None], topic_id: TopicId | None = None
    ) -> TopicRecord:
        """Set each config of `change`, or, where it is None, take it back to its default. All or none.

        A change that depends on what is set is a function of that; it is asked again when others were faster.
        """
        if not callable(change):
            topic_configs.altered({}, change)

        def altered(topic: TopicRecord, _again: bool) -> TopicRecord:
            wanted = change(topic.configs) if callable(change) else change
            return msgspec.structs.replace(topic, configs=topic_configs.altered(topic.configs, wanted))

        return await self._change(name, topic_id, altered)

    async def delete(self, name: str, topic_id: TopicId | None = None) -> None:
        """Returns once no append to the topic can be acked any more. What it held is vacuum's to collect.

        With an id, a topic that has got the name since is left alone.
        """
        check_name(name)
        found = False
        for _ in range(MAX_ATTEMPTS):
            record = await self._meta.get(keys.topic(name))
            topic = decode_topic(record) if record is not None else None
            if record is None or topic is None or topic.state == "DELETED" or topic_id not in (None, topic.topic_id):
                if not found:
                    raise UnknownTopic(name)
                return  # it is deleted, by us or by others, and the name may belong to another topic by now
            found, topic_id = True, topic.topic_id
            if topic.state == "ACTIVE":
                topic = msgspec.structs.replace(topic, state="DELETING")
                try:
                    await self._meta.put(keys.topic(name), msgspec.json.encode(topic), record.version)
                except (Conflict, OutcomeUnknown):
                    continue
            await self._finish_delete(topic)
            return
        raise Contended(f"topic {name!r} is changed by others all the time")

    async def _change(
        self, name: str, topic_id: TopicId | None, change: Callable[[TopicRecord, bool], TopicRecord]
    ) -> TopicRecord:
        """Publish `change(topic, again)`; `again`: it was tried before, and what is found may be its own doing."""
        check_name(name)
        record = await self._meta.get(keys.topic(name))
        unknown = False
        for attempt in range(MAX_ATTEMPTS):
            if record is None or (topic := decode_topic(record)).state != "ACTIVE":
                raise UnknownTopic(name)
            topic_id = topic_id or topic.topic_id
            if topic.topic_id != topic_id:
                raise UnknownTopic(name)  # another one has the name
            changed = change(topic, attempt > 0)
            if changed == topic:
                return topic
            try:
                await self._meta.put(keys.topic(name), msgspec.json.encode(changed), record.version)
            except OutcomeUnknown:
                unknown = True
            except StoreUnavailable as error:
                if unknown:
                    raise OutcomeUnknown(f"it is not known whether topic {name!r} was changed: {error}") from error
                raise
            except Conflict as conflict:
                record = conflict.current
            else:
                return changed
            await self._clock.sleep(BACKOFF_S * self._entropy.jitter() * min(attempt, 10))
        if unknown:
            raise OutcomeUnknown(f"it is not known whether topic {name!r} was changed")
        raise Contended(f"topic {name!r} is changed by others all the time")

    async def _finish_delete(self, topic: TopicRecord) -> None:
        slots = asyncio.Semaphore(DELETE_AT_ONCE)

        async def delete_partition(number: int) -> None:
            async with slots:
                await self._open_log(topic, number).delete()

        await asyncio.gather(*(delete_partition(number) for number in range(topic.partitions)))
        tombstone = msgspec.json.encode({"topic": topic, "deleted_at_ms": self._clock.now_ms()})
        with suppress(Conflict):  # another has written it; by now it may say that the topic is forgotten
            await self._meta.put(keys.deleted(topic.topic_id), tombstone, ABSENT)
        await self._free_name(topic)

    async def _free_name(self, topic: TopicRecord) -> None:
        """Mark the topic DELETED, if the name still belongs to it."""
        deleted = msgspec.structs.replace(topic, state="DELETED")
        for _ in range(MAX_ATTEMPTS):
            record = await self._meta.get(keys.topic(topic.name))
            if record is None:
                return
            found = decode_topic(record)
            if found.topic_id != topic.topic_id or found.state == "DELETED":
                return
            try:
                await self._meta.put(keys.topic(topic.name), msgspec.json.encode(deleted), record.version)
            except (Conflict, OutcomeUnknown):
                continue
            return
        raise Contended(f"the name of the deleted topic {topic.name!r} could not be freed")


def check_name(name: str) -> None:
    if not _name.fullmatch(name) or len(name) > MAX_NAME or name in (".", ".."):
        raise InvalidTopic(f"{name!r} is no topic name: 1 to {MAX_NAME} letters, digits, dots, underscores and dashes")


async def list_topics(meta: MetaStore) -> list[TopicRecord]:
    """Those that there are, by name."""
    topics: list[TopicRecord] = []
    start, end = keys.TOPICS, keys.after(keys.TOPICS)
    while page := await meta.scan(start, end):
        topics += [topic for record in page if (topic := decode_topic(record)).state == "ACTIVE"]
        start = page[-1].key + "\0"
    return topics


def decode_topic(record: Record) -> TopicRecord:
    try:
        return _decoder.decode(record.value)
    except msgspec.MsgspecError as error:
        raise Corrupt(f"meta record {record.key} can't be read: {error}") from error
