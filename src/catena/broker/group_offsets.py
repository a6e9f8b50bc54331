"""OffsetCommit, OffsetFetch and OffsetDelete.

Offsets are kept by topic id: a topic that is deleted and made again starts without any. Names are looked up before the
group is asked, so that what the coordinator says is answered as it was said.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple, cast

import msgspec

from catena.broker.base import Client
from catena.broker.coordinator import Committer, Coordinator, NewOffset, group_code
from catena.broker.group_store import CommittedOffset, HeldGroup, Slot
from catena.broker.handling import TopicLookup
from catena.errors import CatenaError, OutcomeUnknown, Rejected
from catena.groups.base import GroupError
from catena.meta import keys
from catena.runtime.tasks import map_bounded
from catena.types import TopicId
from catena.virtual_log.topic_view import TopicView
from catena.virtual_log.topics import TopicRecord
from catena.wire.codes import Code
from catena.wire.messages import offset_commit as commits
from catena.wire.messages import offset_delete as deletes
from catena.wire.messages import offset_fetch as fetches
from catena.wire.requests import Request
from catena.wire.schema import NO_ID

TOPICS_AT_ONCE = 32
GROUPS_AT_ONCE = 16

METADATA_MAX_BYTES = 4096
METADATA_MAX_STORED_BYTES = 8192
"""As JSON, in which control characters take six bytes: a chunk of such metadata has to fit into a meta record."""

NO_OFFSET = -1

_FIRST_BY_ID = 10
_FIRST_FETCH_OF_GROUPS = 8


class _Asked(NamedTuple):
    """Partitions of a topic, by its id or, where that is NO_ID, by its name."""

    topic_id: str
    name: str
    partitions: Sequence[int]


class GroupOffsets:
    def __init__(self, coordinator: Coordinator, view: TopicView) -> None:
        self._coordinator = coordinator
        self._view = view

    async def offset_commit(self, request: Request, _client: Client) -> commits.OffsetCommitResponse:
        body = cast(commits.OffsetCommitRequest, request.body)
        by_id = request.version >= _FIRST_BY_ID
        asked = [
            _Asked(topic.topic_id, topic.name, [partition.partition_index for partition in topic.partitions])
            for topic in body.topics
        ]
        committer = Committer(
            body.member_id, body.generation_id_or_member_epoch, body.group_instance_id, request.version
        )
        offsets: dict[Slot, NewOffset] = {}
        refusals: dict[tuple[str, str, int], Code] = {}
        try:
            for topic, record in zip(body.topics, await self._find_all(asked, by_id), strict=True):
                for partition in topic.partitions:
                    number = partition.partition_index
                    refusal = _refusal(partition, record)
                    if refusal is not None:
                        refusals[topic.topic_id, topic.name, number] = refusal
                    elif isinstance(record, TopicRecord):
                        metadata = partition.committed_metadata or ""
                        new = NewOffset(partition.committed_offset, partition.committed_leader_epoch, metadata)
                        offsets[record.topic_id, number] = new
            code = await self._commit(body.group_id, committer, offsets)
        except OutcomeUnknown:
            code = Code.REQUEST_TIMED_OUT
        except CatenaError as error:
            code = group_code(error)
        return commits.OffsetCommitResponse(
            topics=[
                commits.OffsetCommitResponseTopic(
                    topic_id=topic_id,
                    name=name,
                    partitions=[
                        commits.OffsetCommitResponsePartition(
                            partition_index=number, error_code=refusals.get((topic_id, name, number), code)
                        )
                        for number in numbers
                    ],
                )
                for topic_id, name, numbers in asked
            ]
        )

    async def offset_fetch(self, request: Request, _client: Client) -> fetches.OffsetFetchResponse:
        body = cast(fetches.OffsetFetchRequest, request.body)
        if request.version >= _FIRST_FETCH_OF_GROUPS:
            by_id = request.version >= _FIRST_BY_ID
            groups = await map_bounded(GROUPS_AT_ONCE, lambda group: self._fetch(group, by_id), body.groups)
            return fetches.OffsetFetchResponse(groups=groups)
        wanted = body.topics
        one = fetches.OffsetFetchRequestGroup(
            group_id=body.group_id,
            topics=None
            if wanted is None
            else [
                fetches.OffsetFetchRequestTopics(name=topic.name, partition_indexes=topic.partition_indexes)
                for topic in wanted
            ],
        )
        answer = await self._fetch(one, by_id=False)
        # Version 1 has no place for the group's error, so each partition says it, as it does in all of them.
        return fetches.OffsetFetchResponse(
            error_code=answer.error_code,
            topics=[
                fetches.OffsetFetchResponseTopic(
                    name=topic.name,
                    partitions=[
                        fetches.OffsetFetchResponsePartition(**msgspec.structs.asdict(partition))
                        for partition in topic.partitions
                    ],
                )
                for topic in answer.topics
            ],
        )

    async def offset_delete(self, request: Request, _client: Client) -> deletes.OffsetDeleteResponse:
        body = cast(deletes.OffsetDeleteRequest, request.body)
        if not keys.is_group_id(body.group_id):
            return deletes.OffsetDeleteResponse(error_code=Code.INVALID_GROUP_ID)
        asked = [
            _Asked(NO_ID, topic.name, [partition.partition_index for partition in topic.partitions])
            for topic in body.topics
        ]
        slots: dict[str, list[Slot]] = {}
        try:
            found = await self._find_all(asked, by_id=False)
            for topic, record in zip(asked, found, strict=True):
                if isinstance(record, TopicRecord):
                    slots.setdefault(topic.name, []).extend((record.topic_id, number) for number in topic.partitions)
            errors = await self._coordinator.delete_offsets(body.group_id, slots)
        except CatenaError as error:
            return deletes.OffsetDeleteResponse(error_code=group_code(error))
        if isinstance(errors, GroupError):
            return deletes.OffsetDeleteResponse(error_code=errors)
        return deletes.OffsetDeleteResponse(
            topics=[
                deletes.OffsetDeleteResponseTopic(
                    name=topic.name,
                    partitions=[
                        deletes.OffsetDeleteResponsePartition(
                            partition_index=number,
                            error_code=errors[topic.name] if _has(record, number) else Code.UNKNOWN_TOPIC_OR_PARTITION,
                        )
                        for number in topic.partitions
                    ],
                )
                for topic, record in zip(asked, found, strict=True)
            ]
        )

    async def _commit(self, group_id: str, committer: Committer, offsets: dict[Slot, NewOffset]) -> Code:
        if not keys.is_group_id(group_id):
            return Code.INVALID_GROUP_ID
        return Code(await self._coordinator.commit(group_id, committer, offsets)) if offsets else Code.NONE

    async def _fetch(self, group: fetches.OffsetFetchRequestGroup, by_id: bool) -> fetches.OffsetFetchResponseGroup:
        asked = None
        if group.topics is not None:
            asked = [_Asked(topic.topic_id, topic.name, topic.partition_indexes) for topic in group.topics]
        code = Code.INVALID_GROUP_ID
        if keys.is_group_id(group.group_id):
            try:
                found = await self._find_all(asked or (), by_id)
                held = await self._coordinator.fetch(group.group_id, group.member_id, group.member_epoch)
                if isinstance(held, HeldGroup):
                    topics = await self._everything(held) if asked is None else _fetched(asked, found, held)
                    return fetches.OffsetFetchResponseGroup(group_id=group.group_id, topics=topics)
                code = Code(held)
            except CatenaError as error:
                code = group_code(error)
        return fetches.OffsetFetchResponseGroup(
            group_id=group.group_id, topics=[_refused(topic, code) for topic in asked or ()], error_code=code
        )

    async def _everything(self, held: HeldGroup) -> list[fetches.OffsetFetchResponseTopics]:
        """Of all topics that are there; nobody can ask for the others any more."""
        partitions: dict[TopicId, list[int]] = {}
        for (topic_id, number), _ in held.offsets():
            partitions.setdefault(topic_id, []).append(number)
        if any(self._view.cached_by_id(topic_id) is None for topic_id in partitions):
            await self._view.refresh()
        found = [(self._view.cached_by_id(topic_id), numbers) for topic_id, numbers in partitions.items()]
        known = [(record, sorted(numbers)) for record, numbers in found if record is not None]
        asked = [_Asked(record.topic_id, record.name, numbers) for record, numbers in known]
        return _fetched(asked, [record for record, _ in known], held)

    async def _find_all(self, topics: Sequence[_Asked], by_id: bool) -> Sequence[TopicRecord | Code]:
        lookup = TopicLookup(self._view)
        return await map_bounded(TOPICS_AT_ONCE, lambda topic: _find(topic, by_id, lookup), topics)


async def _find(topic: _Asked, by_id: bool, lookup: TopicLookup) -> TopicRecord | Code:
    try:
        return await lookup.find(topic.name, topic.topic_id if by_id else None, max(topic.partitions, default=0))
    except Rejected:
        return Code.UNKNOWN_TOPIC_ID if by_id else Code.UNKNOWN_TOPIC_OR_PARTITION


def _has(record: TopicRecord | Code, number: int) -> bool:
    return isinstance(record, TopicRecord) and 0 <= number < record.partitions


def _refusal(partition: commits.OffsetCommitRequestPartition, record: TopicRecord | Code) -> Code | None:
    if not isinstance(record, TopicRecord):
        return record
    if not _has(record, partition.partition_index):
        return Code.UNKNOWN_TOPIC_OR_PARTITION
    metadata = partition.committed_metadata or ""
    if len(metadata.encode()) > METADATA_MAX_BYTES or len(msgspec.json.encode(metadata)) > METADATA_MAX_STORED_BYTES:
        return Code.OFFSET_METADATA_TOO_LARGE
    return None


def _fetched(
    asked: Sequence[_Asked], found: Sequence[TopicRecord | Code], held: HeldGroup
) -> list[fetches.OffsetFetchResponseTopics]:
    topics = []
    for topic, record in zip(asked, found, strict=True):
        if isinstance(record, TopicRecord):
            partitions = [_partition(number, held.offset(record.topic_id, number)) for number in topic.partitions]
            topics.append(_topic(topic, partitions))
        else:
            # A name that nobody has is no error here, as in Kafka: nothing was ever committed for it.
            topics.append(_refused(topic, Code.NONE if record is Code.UNKNOWN_TOPIC_OR_PARTITION else record))
    return topics


def _refused(topic: _Asked, code: Code) -> fetches.OffsetFetchResponseTopics:
    return _topic(topic, [_partition(number, None, code) for number in topic.partitions])


def _topic(topic: _Asked, partitions: list[fetches.OffsetFetchResponsePartitions]) -> fetches.OffsetFetchResponseTopics:
    return fetches.OffsetFetchResponseTopics(topic_id=topic.topic_id, name=topic.name, partitions=partitions)


def _partition(
    number: int, committed: CommittedOffset | None, code: Code = Code.NONE
) -> fetches.OffsetFetchResponsePartitions:
    if committed is None:
        return fetches.OffsetFetchResponsePartitions(
            partition_index=number, committed_offset=NO_OFFSET, error_code=code
        )
    return fetches.OffsetFetchResponsePartitions(
        partition_index=number,
        committed_offset=committed.offset,
        committed_leader_epoch=committed.leader_epoch,
        metadata=committed.metadata,
    )
