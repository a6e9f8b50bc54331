"""A classic group with its clients, driven by hand: what the shell would do, without any I/O."""

from __future__ import annotations

import struct
from collections.abc import Iterable

import msgspec

from catena.groups.base import Effect, GroupError, GroupSettings, Persist, Reply, Response
from catena.groups.classic import ClassicGroup
from catena.groups.classic_values import (
    ClassicSnapshot,
    HeartbeatRequest,
    JoinRequest,
    JoinResponse,
    LeaveResponse,
    LeavingMember,
    Protocol,
    SyncRequest,
    SyncResponse,
)

SETTINGS = GroupSettings(initial_rebalance_delay_s=0.0)


def subscription(*topics: str, tail: bytes = b"") -> bytes:
    body = b"".join(struct.pack(">h", len(topic)) + topic.encode() for topic in topics)
    return struct.pack(">hi", 1, len(topics)) + body + tail


RANGE = (Protocol("range", subscription("t")),)


class World:
    def __init__(self, settings: GroupSettings = SETTINGS) -> None:
        self.settings = settings
        self.group = ClassicGroup("g", settings)
        self.now = 100.0
        self.replies: dict[int, Response] = {}
        self.effects: list[Effect] = []
        self.stored: bytes | None = None
        self._last = 0

    # Sending

    def join(
        self,
        member_id: str = "",
        instance_id: str | None = None,
        protocols: tuple[Protocol, ...] = RANGE,
        *,
        client_id: str = "c",
        protocol_type: str = "consumer",
        session_timeout_ms: int = 10_000,
        rebalance_timeout_ms: int = 60_000,
        known: bool = False,
        skip: bool = False,
    ) -> int:
        self._last += 1
        request = JoinRequest(
            member_id=member_id,
            instance_id=instance_id,
            client_id=client_id,
            client_host="/127.0.0.1",
            session_timeout_ms=session_timeout_ms,
            rebalance_timeout_ms=rebalance_timeout_ms,
            protocol_type=protocol_type,
            protocols=protocols,
            require_known_member_id=known,
            can_skip_assignment=skip,
            fresh_hex=f"{self._last:04x}",
        )
        self.take(self.group.join(self.now, self._last, request))
        return self._last

    def sync(
        self,
        member_id: str,
        generation: int | None = None,
        assignments: Iterable[tuple[str, bytes]] = (),
        *,
        instance_id: str | None = None,
        protocol_type: str | None = None,
        protocol: str | None = None,
    ) -> int:
        self._last += 1
        request = SyncRequest(
            member_id=member_id,
            generation=self.group.generation if generation is None else generation,
            instance_id=instance_id,
            protocol_type=protocol_type,
            protocol=protocol,
            assignments=tuple(assignments),
        )
        self.take(self.group.sync(self.now, self._last, request))
        return self._last

    def heartbeat(self, member_id: str, generation: int | None = None, instance_id: str | None = None) -> GroupError:
        self._last += 1
        number = self.group.generation if generation is None else generation
        request = HeartbeatRequest(member_id=member_id, generation=number, instance_id=instance_id)
        self.take(self.group.heartbeat(self.now, self._last, request))
        return self.replies[self._last].error

    def leave(self, *members: tuple[str, str | None]) -> LeaveResponse:
        self._last += 1
        leaving = tuple(LeavingMember(member_id=member_id, instance_id=instance) for member_id, instance in members)
        self.take(self.group.leave(self.now, self._last, leaving))
        response = self.replies[self._last]
        assert isinstance(response, LeaveResponse)
        return response

    def wait(self, seconds: float) -> None:
        """Let time pass, with a tick at every deadline, as the shell does."""
        end = self.now + seconds
        while (deadline := self.group.next_deadline()) is not None and deadline <= end:
            self.now = max(self.now, deadline)
            self.take(self.group.tick(self.now))
        self.now = end

    def failover(self) -> None:
        assert self.stored is not None
        snapshot = msgspec.json.decode(self.stored, type=ClassicSnapshot)
        self.group = ClassicGroup.restore("g", snapshot, self.now, self.settings)

    # Receiving

    def take(self, effects: list[Effect]) -> None:
        self.effects = effects
        for effect in effects:
            if isinstance(effect, Persist):
                self.stored = self.group.snapshot()
            else:
                assert isinstance(effect, Reply)
                assert effect.ticket not in self.replies, "a ticket was answered twice"
                self.replies[effect.ticket] = effect.response

    def joined(self, ticket: int) -> JoinResponse:
        response = self.replies[ticket]
        assert isinstance(response, JoinResponse)
        return response

    def synced(self, ticket: int) -> SyncResponse:
        response = self.replies[ticket]
        assert isinstance(response, SyncResponse)
        return response

    def waits(self, ticket: int) -> bool:
        return ticket not in self.replies

    # Groups that are where a test begins

    def stable(self, size: int = 2, *, static: bool = False, protocols: tuple[Protocol, ...] = RANGE) -> list[str]:
        """A stable group whose first member leads; member i was assigned b"i"."""
        ids: list[str] = []
        for i in range(size):
            ticket = self.join(instance_id=f"i{i}" if static else None, protocols=protocols)
            for member_id in ids:
                self.join(member_id, instance_id=self.instance(member_id), protocols=protocols)
            ids.append(self.joined(ticket).member_id)
        for i, member_id in enumerate(ids):
            if i:
                self.sync(member_id)
        self.sync(ids[0], assignments=[(member_id, str(i).encode()) for i, member_id in enumerate(ids)])
        assert self.group.describe().state == "Stable"
        return ids

    def instance(self, member_id: str) -> str | None:
        return next((m.instance_id for m in self.group.describe().members if m.member_id == member_id), None)
