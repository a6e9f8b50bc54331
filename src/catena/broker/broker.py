"""Which handler answers which request."""

from __future__ import annotations

from catena.broker.api_versions import api_versions
from catena.broker.base import Answer, AnswerBudget, Client, Handler, OpenLog, TopicDefaults
from catena.broker.configs import Configs
from catena.broker.coordinator import Coordinator
from catena.broker.describe import Describe
from catena.broker.fetch import Fetch
from catena.broker.group_offsets import GroupOffsets
from catena.broker.groups import Groups
from catena.broker.long_polls import LongPolls
from catena.broker.metadata import Metadata
from catena.broker.moved_leaders import MovedLeaders
from catena.broker.offsets import Offsets
from catena.broker.produce import Produce
from catena.broker.producer_ids import ProducerIds
from catena.broker.sending_on import SendingOn
from catena.broker.topic_admin import TopicAdmin
from catena.cluster.membership import Membership
from catena.cluster.view import READ, WRITE
from catena.counting import Sent
from catena.meta.base import MetaStore
from catena.runtime import Clock, Entropy, Tasks
from catena.virtual_log.topic_view import TopicView
from catena.virtual_log.topics import Topics
from catena.wire.apis import APIS
from catena.wire.requests import Request


class Broker:
    def __init__(
        self,
        cluster_id: str,
        meta: MetaStore,
        membership: Membership,
        topics: Topics,
        view: TopicView,
        open_log: OpenLog,
        coordinator: Coordinator,
        clock: Clock,
        entropy: Entropy,
        defaults: TopicDefaults,
        answer_budget: AnswerBudget,
    ) -> None:
        self._tasks = Tasks("broker")
        roles = membership.record.roles
        produce = Produce(view, open_log, clock, self._tasks, writes=WRITE in roles)
        sending_on = SendingOn(membership, clock)
        self.sent_on = sending_on.counts
        self.polls = LongPolls(clock, self._tasks)
        """Of all who wait for more to come, whichever way they ask."""
        elsewhere = None if READ in roles else sending_on.reader
        moved = MovedLeaders(membership, clock).of
        self._fetch = fetch = Fetch(view, open_log, self.polls, answer_budget, elsewhere, moved)
        metadata = Metadata(cluster_id, membership, topics, view, open_log, clock, defaults)
        admin = TopicAdmin(membership, topics, view, open_log, defaults)
        configs = Configs(membership, topics, view, defaults)
        offsets = Offsets(view, open_log)
        describe = Describe(membership, view, open_log, meta, clock)
        producer_ids = ProducerIds(meta, clock)
        groups = Groups(coordinator, membership, view, entropy)
        group_offsets = GroupOffsets(coordinator, view)
        self._handlers: dict[str, Handler] = {
            "Produce": produce.produce,
            "Fetch": fetch.fetch,
            "ListOffsets": offsets.list_offsets,
            "OffsetForLeaderEpoch": offsets.offset_for_leader_epoch,
            "Metadata": metadata.metadata,
            "DescribeCluster": metadata.describe_cluster,
            "DescribeTopicPartitions": metadata.describe_topic_partitions,
            "ApiVersions": _api_versions,
            "CreateTopics": admin.create_topics,
            "DeleteTopics": admin.delete_topics,
            "CreatePartitions": admin.create_partitions,
            "DeleteRecords": admin.delete_records,
            "DescribeConfigs": configs.describe_configs,
            "AlterConfigs": configs.alter_configs,
            "IncrementalAlterConfigs": configs.incremental_alter_configs,
            "DescribeLogDirs": describe.describe_log_dirs,
            "DescribeProducers": describe.describe_producers,
            "InitProducerId": producer_ids.init_producer_id,
            "FindCoordinator": groups.find_coordinator,
            "JoinGroup": groups.join_group,
            "SyncGroup": groups.sync_group,
            "Heartbeat": groups.heartbeat,
            "LeaveGroup": groups.leave_group,
            "ListGroups": groups.list_groups,
            "DescribeGroups": groups.describe_groups,
            "DeleteGroups": groups.delete_groups,
            "ConsumerGroupHeartbeat": groups.consumer_group_heartbeat,
            "ConsumerGroupDescribe": groups.consumer_group_describe,
            "OffsetCommit": group_offsets.offset_commit,
            "OffsetFetch": group_offsets.offset_fetch,
            "OffsetDelete": group_offsets.offset_delete,
        }
        assert self._handlers.keys() == {api.name for api in APIS.values()}, "what is advertised is answered"

    @property
    def sent(self) -> Sent:
        """What fetches have brought."""
        return self._fetch.sent

    async def handle(self, request: Request, client: Client) -> Answer:
        return await self._handlers[request.api.name](request, client)

    def end_waits(self) -> None:
        """Answer at once what only waits for more to come."""
        self.polls.end()

    async def close(self) -> None:
        await self._tasks.close()


async def _api_versions(_request: Request, _client: Client) -> Answer:
    return api_versions()
