"""What members of both protocols have in common: they live, falter, commit what they read, and die."""

from __future__ import annotations

from abc import ABC, abstractmethod

from sim.group_clients import GroupClient
from sim.group_cluster import GroupWorld
from sim.group_history import Slot


class Member(GroupClient, ABC):
    def __init__(self, world: GroupWorld, name: str, group: str) -> None:
        super().__init__(world, name, group)
        self.instance = f"i{name}" if self.draws(world.scenario.statics) else None
        self.held: tuple[Slot, ...] = ()
        """The partitions that it reads."""
        self.alive = True
        self.rounds: list[int] = []
        """The generations or epochs that it has reached, one after the other."""

    @property
    @abstractmethod
    def round(self) -> int | None:
        """The generation or epoch that it is in; None: in none."""

    @property
    def is_well(self) -> bool:
        """Whether it does nothing that costs a rebalance."""
        return self.world.healed or self.world.scenario.incident is not None

    @abstractmethod
    async def live(self) -> None:
        """Until it dies or the run ends."""

    @abstractmethod
    async def commit_own(self) -> bool:
        """Commit offsets of what it holds; whether that was acked."""

    @abstractmethod
    async def _leave(self) -> None: ...

    @abstractmethod
    async def _restart(self) -> None:
        """Come back as one that has forgotten all but its instance id."""

    async def _falter(self) -> None:
        kind = self.random.choice(("sleep", "sleep", "leave", "die", "restart"))
        self.history.note(f"{self.name} {self.group}: {kind}")
        if kind == "sleep":
            await self.sleep(self.world.scenario.session_s)
        elif kind == "leave":
            await self._leave()
            await self.sleep(1.0)
        elif kind == "restart":
            await self._restart()
        else:
            self.alive = False
