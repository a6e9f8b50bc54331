"""Names for every write that jobs make, and one process's way to the store that uses them. See `steps`.

What becomes of a job is named by who does it: `tier` if it is the process that began it, `recover` if it is another.
"""

from __future__ import annotations

import msgspec

from catena.meta.base import Session
from catena.types import ANY, Expect, Version
from catena.virtual_log.chain import Chain
from sim.loop import PROCESS, Process
from sim.steps import kind_of
from sim.stores import FaultyMeta, ObservedMeta, Wire

CLAIM = "compactor-claim"
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
RECOVER_STEPS = ("chain:recover abandon", "chain:recover finish")
VACUUM_STEPS = ("blob:delete",)
PIPELINE_STEPS = (
    *TIER_STEPS,
    *RECOVER_STEPS,
    *VACUUM_STEPS,
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


class PipelineMeta(FaultyMeta):
    """A FaultyMeta that knows who began which job, and may let everyone have the claim of a partition."""

    def __init__(
        self,
        inner: ObservedMeta,
        can_transact: bool,
        wire: Wire,
        begun: dict[str, Process | None],
        claims: bool,
    ) -> None:
        super().__init__(inner, can_transact, wire)
        self._begun = begun
        self._claims = claims

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
