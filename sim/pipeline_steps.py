"""Names for every write that jobs make, and for what vacuum reads, and one process's way to the store that uses them.

See `steps`. What becomes of a job is named by who does it: `tier` if it is the process that began it, `recover` if
it is another.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable

import msgspec

from catena.meta.base import SCAN_LIMIT, Record, Session
from catena.types import ANY, Expect, Version
from catena.virtual_log.chain import Chain
from sim.loop import PROCESS, Process
from sim.steps import kind_of
from sim.stores import FaultyMeta, ObservedMeta, Wire

CLAIM = "compactor-claim"
VACUUM = "driver-v"
"""What the names of processes begin with that vacuum."""
TIER_STEPS = (
    "chain:tier abandon",
    "chain:tier begin",
    "chain:tier finish",
    "compaction:delete",
    "compaction:deleting",
    "compaction:updating",
    "compaction:writing",
    "compactor-claim:create",
    "compactor-claim:delete",
    "index:delete range",
    "manifest:put",
    "segment:put",
)
LAST_TIER_STEPS = ("chain:tier finish", "compaction:updating", "manifest:put")
"""A job that sleeps here has all its segments, and may still commit."""
RECOVER_STEPS = ("chain:recover abandon", "chain:recover finish")
VACUUM_STEPS = ("blob:delete",)
FORGET_STEPS = ("deleted:forget", "partition:delete range")
READ_STEPS = ("vacuum:read chain", "vacuum:read control", "vacuum:read index")
"""Vacuum goes by the order in which it reads these, whatever happens in between."""
PIPELINE_STEPS = (
    *TIER_STEPS,
    *RECOVER_STEPS,
    *VACUUM_STEPS,
    *FORGET_STEPS,
    *READ_STEPS,
    "blob:put",
    "chain:intent",
    "chain:open",
    "chain:trim",
    "control:append",
    "index:create",
    "transact:append",
)
"""Those that a long run must hit."""

_chain = msgspec.json.Decoder(Chain)


async def at_once() -> None:
    """Without lingering."""


class PipelineMeta(FaultyMeta):
    """A FaultyMeta that knows who began which job, and may let everyone have the claim of a partition."""

    def __init__(
        self,
        inner: ObservedMeta,
        can_transact: bool,
        wire: Wire,
        begun: dict[str, Process | None],
        claims: bool,
        linger: Callable[[], Awaitable[None]] = at_once,
    ) -> None:
        """`linger` is waited for after each read that has a name."""
        super().__init__(inner, can_transact, wire)
        self._linger = linger
        self._begun = begun
        self._claims = claims

    async def get(self, key: str) -> Record | None:
        record = await super().get(key)
        if self._name_read(key):
            await self._linger()
        return record

    async def scan(self, start: str, end: str, limit: int = SCAN_LIMIT) -> list[Record]:
        records = await super().scan(start, end, limit)
        if self._name_read(start):
            await self._linger()
        return records

    async def put(
        self, key: str, value: bytes, expect: Version | Expect = ANY, ephemeral: Session | None = None
    ) -> Version:
        return await super().put(self._own(key), value, expect, ephemeral)

    async def delete(self, key: str, expect: Version | Expect = ANY) -> None:
        await super().delete(self._own(key), expect)

    def _own(self, key: str) -> str:
        """The claim that this process is told about."""
        if self._claims or kind_of(key) != CLAIM:
            return key
        return f"{key}/{''.join(char if char.isalnum() else '-' for char in str(PROCESS.get()))}"

    def _name_read(self, key: str) -> str:
        process = PROCESS.get()
        step = f"vacuum:read {kind_of(key)}"
        return step if process is not None and process.name.startswith(VACUUM) and step in READ_STEPS else ""

    def _name_put(self, key: str, value: bytes) -> str:
        step = super()._name_put(key, value)
        if step == "chain:tier begin":
            self._begun[_chain.decode(value).tiering or ""] = PROCESS.get()
        elif step in ("chain:tier finish", "chain:tier abandon"):
            old = self._value(key)
            job = _chain.decode(old).tiering if old is not None else None
            if self._begun.get(job or "") is not PROCESS.get():
                return step.replace("tier", "recover")
        return step
