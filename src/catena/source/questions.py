"""What a query asks a node that plans for it, and what it is told: JSON, in both directions. Pure.

The options go as they were given, so that both sides read them by the same rules. A plan comes with links, by which
whoever has them reads the objects until they expire, without any credentials.
"""

from __future__ import annotations

import msgspec

from catena.source.offsets import StreamOffsets
from catena.source.splitting import Split

PLAN_PATH = "/v1/read/plan"

LOCAL_OPTIONS = ("data", "config", "node", "token")
"""They say how to get at the log, and are not sent."""


class PlanBatch(msgspec.Struct, frozen=True, tag="batch"):
    pass


class InitialOffsets(msgspec.Struct, frozen=True, tag="initial"):
    pass


class Tails(msgspec.Struct, frozen=True, tag="tails"):
    pass


class LatestOffsets(msgspec.Struct, frozen=True, tag="latest"):
    start: StreamOffsets
    max_offsets: int | None = None
    target: StreamOffsets | None = None


class PlanStream(msgspec.Struct, frozen=True, tag="stream"):
    start: StreamOffsets
    end: StreamOffsets


class Question(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    is_stream: bool
    options: dict[str, str]
    ask: PlanBatch | InitialOffsets | Tails | LatestOffsets | PlanStream


class Answer(msgspec.Struct, frozen=True):
    offsets: StreamOffsets | None = None
    tails: StreamOffsets | None = None
    splits: list[Split] = []
    links: dict[str, str] = {}
    """From keys of objects to addresses, which may be relative to the node."""
    warnings: list[str] = []


class Trouble(msgspec.Struct, frozen=True):
    """Instead of an answer."""

    message: str
    error: str = ""
    """The name in `catena.errors`."""
