"""A consumer group with its clients, driven by hand: what the shell would do, without any I/O."""

from __future__ import annotations

import msgspec

from catena.groups.base import Effect, GroupError, GroupSettings, Persist
from catena.groups.consumer import ConsumerGroup
from catena.groups.consumer_member import to_assignment
from catena.groups.consumer_values import (
    Assignment,
    ConsumerHeartbeatRequest,
    ConsumerHeartbeatResponse,
    ConsumerSnapshot,
    TopicInfo,
)
from catena.types import TopicId

SETTINGS = GroupSettings(assignment_pause_per_member_s=0.0)


def topic_id(name: str) -> TopicId:
    return TopicId(name.encode().hex().rjust(32, "0"))


def topics(**partitions: int) -> dict[str, TopicInfo]:
    return {name: TopicInfo(topic_id(name), count) for name, count in partitions.items()}


T = topic_id("t")


class World:
    def __init__(self, settings: GroupSettings = SETTINGS, **partitions: int) -> None:
        self.settings = settings
        self.topics = topics(**(partitions or {"t": 4}))
        self.group = ConsumerGroup("g", settings, self.topics)
        self.now = 100.0
        self.stored: bytes | None = None
        self.effects: list[Effect] = []
        self._last = 0

    def send(self, member_id: str, epoch: int, **fields: object) -> ConsumerHeartbeatResponse:
        self._last += 1
        values: dict[str, object] = {"fresh_id": f"fresh{self._last}", "client_id": "c", "client_host": "/h"}
        values |= {"member_id": member_id, "member_epoch": epoch} | fields
        request = msgspec.convert(values, ConsumerHeartbeatRequest)
        *before, reply = self.take(self.group.heartbeat(self.now, self._last, request))
        assert before in ([], [Persist()])
        assert not isinstance(reply, Persist)
        assert reply.ticket == self._last
        assert isinstance(reply.response, ConsumerHeartbeatResponse)
        return reply.response

    def join(self, member_id: str, *names: str, **fields: object) -> ConsumerHeartbeatResponse:
        defaults: dict[str, object] = {"rebalance_timeout_ms": 60_000, "owned": {}, "topic_names": names or ("t",)}
        return self.send(member_id, 0, **(defaults | fields))

    def take(self, effects: list[Effect]) -> list[Effect]:
        self.effects = effects
        if Persist() in effects:
            self.stored = self.group.snapshot()
        return effects

    def wait(self, seconds: float) -> None:
        end = self.now + seconds
        while (deadline := self.group.next_deadline()) is not None and deadline <= end:
            self.now = max(self.now, deadline)
            self.take(self.group.tick(self.now))
        self.now = end

    def set_topics(self, **partitions: int) -> None:
        self.topics = topics(**partitions)
        self.take(self.group.topics_changed(self.now, self.topics))

    def failover(self) -> None:
        assert self.stored is not None
        snapshot = msgspec.json.decode(self.stored, type=ConsumerSnapshot)
        self.group = ConsumerGroup.restore("g", snapshot, self.now, self.settings, self.topics)

    @property
    def state(self) -> str:
        return self.group.describe().state

    def two(self) -> tuple[Client, Client]:
        """A stable group of two, with two partitions each."""
        a, b = Client(self, "a"), Client(self, "b")
        settle(a, b)
        assert self.state == "Stable"
        assert len(a.owned) == len(b.owned) == 2
        return a, b


class Client:
    """A member that does what it is told: it joins, then gives up and takes over what the answers say."""

    def __init__(self, world: World, member_id: str, *names: str, **fields: object) -> None:
        self.world = world
        self.member_id = member_id
        self.owned: set[tuple[TopicId, int]] = set()
        self._acked: set[tuple[TopicId, int]] = set()
        response = world.join(member_id, *names, **fields)
        assert response.error is GroupError.NONE
        self.epoch = response.member_epoch
        self._obey(response)

    def beat(self, **fields: object) -> ConsumerHeartbeatResponse:
        """Owned partitions are sent when they are not those that were sent last, as real clients do."""
        owned: Assignment | None = None if self.owned == self._acked else to_assignment(self.owned)
        response = self.world.send(self.member_id, self.epoch, owned=owned, **fields)
        if response.error is GroupError.NONE:
            self._acked = set(self.owned)
            self.epoch = response.member_epoch
            self._obey(response)
        return response

    def _obey(self, response: ConsumerHeartbeatResponse) -> None:
        if response.assignment is not None:
            self.owned = {(topic, p) for topic, partitions in response.assignment.items() for p in partitions}


def settle(*clients: Client) -> None:
    for _ in range(4):
        for client in clients:
            client.beat()
