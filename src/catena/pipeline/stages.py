"""How long the steps of tiering take, for metrics."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Literal, TypeAlias, get_args

import msgspec

from catena.runtime import Clock

Stage: TypeAlias = Literal["plan", "recover", "begin", "tasks", "commit"]
"""`tasks` is once for each group of partitions, the others are for each partition."""


class StageTime(msgspec.Struct):
    count: int = 0
    seconds: float = 0.0
    """All together. Partitions are worked on side by side, so these may be more than have passed."""


class Stages:
    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self.times: dict[Stage, StageTime] = {stage: StageTime() for stage in get_args(Stage)}

    @contextmanager
    def timing(self, stage: Stage) -> Iterator[None]:
        """What fails took its time, too."""
        began = self._clock.monotonic()
        try:
            yield
        finally:
            time = self.times[stage]
            time.count += 1
            time.seconds += self._clock.monotonic() - began
