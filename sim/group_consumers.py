"""Members of consumer groups: heartbeats with epochs, partitions that are given up first and taken then.

A member holds a partition from when it was told until it has given it up, or must know that it was taken from it: it
was fenced; its session, counted from its last heartbeat that was answered, is over; or the time that it was given to
give something up has passed, and no answer yet to a heartbeat that says it has. At no moment may two members hold the
same partition.
"""

from __future__ import annotations

from catena.wire.codes import Code
from catena.wire.messages.consumer_group_heartbeat import (
    ConsumerGroupHeartbeatRequest,
    ConsumerGroupHeartbeatResponse,
    TopicPartitions,
)
from sim.checker import Violation
from sim.group_cluster import GroupWorld
from sim.group_history import Beat, Slot
from sim.group_members import Member
from sim.history import Outcome

JOINING, LEAVING, LEAVING_FOR_NOW = 0, -1, -2
SOONER_S = 0.1


class ConsumerMember(Member):
    def __init__(self, world: GroupWorld, name: str, group: str, others: list[ConsumerMember]) -> None:
        """`others` are all members of the group, this one included."""
        super().__init__(world, name, group)
        self.member = f"{name}-1"
        self.epoch = JOINING
        self.former_epoch = JOINING
        self.target: tuple[Slot, ...] = ()
        """What it was told last; it gives up what is not in it when it gets round to it."""
        self._others = others
        self._incarnation = 1
        self._sent_in_full = False
        self._sent_held: tuple[Slot, ...] = ()
        self._heard_s = float("-inf")
        """When the last heartbeat was sent that was answered."""
        self._give_up_by = float("inf")
        self._interval_s = SOONER_S

    @property
    def round(self) -> int | None:
        return None if self.epoch == JOINING else self.epoch

    def holds(self, slot: Slot) -> bool:
        """Whether it holds it now, as far as it can know."""
        sure_until = min(self._heard_s + self.world.scenario.session_s, self._give_up_by)
        return slot in self.held and self.world.loop.time() < sure_until

    async def live(self) -> None:
        await self.sleep(0.5)
        while self.alive and not self.world.ending:
            await self._beat()
            await self.sleep(self._interval_s / 2 if self.machine is not None else 0.4)
            await self._act()

    async def _act(self) -> None:
        if not self.is_well and self.draws(0.1):
            await self._falter()
            return
        if self.held != self.target and (self.is_well or self.draws(0.6)):
            self._take(self.target)
            self._interval_s = SOONER_S
        if self.epoch > JOINING and self.draws(0.4):
            await self.commit_own()
        if 0 < self.former_epoch < self.epoch and self.draws(0.15):
            await self.commit(self.some_slots(), self.member, self.former_epoch)

    async def commit_own(self) -> bool:
        code = await self.commit(list(self.held) or self.some_slots(), self.member, self.epoch)
        if code == Code.UNKNOWN_MEMBER_ID:
            self._lose_all()
        return code == Code.NONE

    async def _beat(self) -> None:
        in_full = self.epoch == JOINING or not self._sent_in_full
        held, unchanged = self.held, not in_full and self.held == self._sent_held
        sent_s = self.world.loop.time()
        ask = Beat(self.group, self.name, member=self.member)
        self.history.begin(ask, f"beat {self.member} at {self.epoch} with {' '.join(map(str, self.held))}")
        body = ConsumerGroupHeartbeatRequest(
            group_id=self.group,
            member_id=self.member,
            member_epoch=self.epoch,
            instance_id=self.instance,
            rebalance_timeout_ms=int(self.world.scenario.rebalance_s * 1000) if in_full else -1,
            subscribed_topic_names=list(self.world.topics) if in_full else None,
            topic_partitions=None if unchanged else self._owned(),
        )
        answer = await self.ask(body, 1)
        self._interval_s = SOONER_S
        if not isinstance(answer, ConsumerGroupHeartbeatResponse):
            self._sent_in_full = False
            self.history.end(ask, Outcome.UNKNOWN, "no answer")
        elif answer.error_code != Code.NONE:
            self._sent_in_full = False
            self.history.end(ask, Outcome.FAILED, Code(answer.error_code).name)
            self._heed_member(answer.error_code)
        else:
            self._sent_in_full, self._sent_held = True, held
            self._hear(ask, answer, sent_s)

    def _hear(self, ask: Beat, answer: ConsumerGroupHeartbeatResponse, sent_s: float) -> None:
        if self.epoch > JOINING and answer.member_epoch != self.epoch:
            self.former_epoch = self.epoch
        self.epoch = ask.epoch = answer.member_epoch
        if not self.rounds or self.rounds[-1] != self.epoch:
            self.rounds.append(self.epoch)
        self._interval_s = answer.heartbeat_interval_ms / 1000
        heard_before_s, self._heard_s = self._heard_s, sent_s
        if answer.assignment is not None:
            by_id = self.world.slots_by_id()
            self.target = tuple(
                sorted(
                    by_id[topic.topic_id, number]
                    for topic in answer.assignment.topic_partitions
                    for number in topic.partitions
                )
            )
        self.history.end(ask, Outcome.OK, f"{self.epoch} {' '.join(map(str, self.target))}")
        if set(self.held) <= set(self.target):
            self._give_up_by = float("inf")
            self._take(self.target)
        elif self._give_up_by == float("inf"):
            # The answer that said so first may have been lost.
            self._give_up_by = max(heard_before_s, 0.0) + self.world.scenario.rebalance_s
        self._check_alone()

    def _take(self, slots: tuple[Slot, ...]) -> None:
        if self.held != slots:
            self.history.note(f"{self.name} {self.group} holds {' '.join(map(str, slots)) or 'nothing'}")
        self.held = slots
        self._check_alone()

    def _check_alone(self) -> None:
        for slot in self.held:
            if not self.holds(slot):
                return
            for other in self._others:
                if other is not self and other.holds(slot):
                    what = f"{slot} is held by {self.member} and by {other.member}, at {self.world.loop.time():.3f} s"
                    self.world.violations.append(Violation("two owners", f"{self.group}: {what}"))

    async def _leave(self) -> None:
        self._take(())
        body = ConsumerGroupHeartbeatRequest(
            group_id=self.group,
            member_id=self.member,
            member_epoch=LEAVING if self.instance is None else LEAVING_FOR_NOW,
            instance_id=self.instance,
            topic_partitions=None,
        )
        answer = await self.ask(body, 1)
        told = isinstance(answer, ConsumerGroupHeartbeatResponse)
        self.history.note(f"{self.name} {self.group} left: {'answered' if told else 'no answer'}")
        self._lose_all()

    async def _restart(self) -> None:
        await self._leave()
        self._incarnation += 1
        self.member = f"{self.name}-{self._incarnation}"

    def _heed_member(self, code: int) -> None:
        self.heed(code)
        if code in (Code.UNKNOWN_MEMBER_ID, Code.FENCED_MEMBER_EPOCH, Code.GROUP_ID_NOT_FOUND):
            self._lose_all()
        elif code in (Code.FENCED_INSTANCE_ID, Code.UNRELEASED_INSTANCE_ID):
            self._lose_all()
            self._interval_s = 1.0

    def _lose_all(self) -> None:
        self.target = ()
        self._take(())
        self._give_up_by = float("inf")
        self.epoch = self.former_epoch = JOINING
        self._sent_in_full = False

    def _owned(self) -> list[TopicPartitions]:
        by_topic: dict[str, list[int]] = {}
        for slot in self.held:
            by_topic.setdefault(slot.topic, []).append(slot.partition)
        return [
            TopicPartitions(topic_id=self.world.topics[topic].topic_id, partitions=numbers)
            for topic, numbers in by_topic.items()
        ]
