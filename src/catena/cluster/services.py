"""Services beside the nodes: those of the pipeline, for as long as they run, and where they tell of themselves.

A service is an ephemeral record under an id that it drew, as a node is one under its own (`membership`): gone a
session's time-to-live after the process has died, and at once when it ends. It decides nothing; `catena cost` asks
those that it finds. So a store that does not take it is logged, and the service does its work all the same.

Crash before the record is written: nobody finds the service. After that: it goes with its session. A write of unknown
outcome is made again: nobody else writes this key. A session that is lost is followed by another within `EVERY_S`.
"""

from __future__ import annotations

import logging

import msgspec

from catena.cluster.view import Address
from catena.errors import CatenaError, Corrupt, SessionExpired
from catena.meta import keys
from catena.meta.base import SCAN_LIMIT, MetaStore, Session
from catena.runtime import Clock, Entropy, Tasks
from catena.types import ANY

log = logging.getLogger(__name__)

SESSION_TTL_MS = 120_000
"""Long, because in object storage each renewal of a session costs a request."""
EVERY_S = 30.0


class ServiceRecord(msgspec.Struct, frozen=True):
    """Stored as `llog/services/{id}`. Fields of newer versions are passed over."""

    http: Address
    version: str
    started_at_ms: int


class Announcement:
    """Made by `announce`; lasts until `close`."""

    def __init__(self, meta: MetaStore, clock: Clock, service_id: str, record: ServiceRecord) -> None:
        self._meta = meta
        self._clock = clock
        self._key = keys.service(service_id)
        self._value = msgspec.json.encode(record)
        self._session: Session | None = None
        self._is_written = False
        """With the session that there is."""
        self._in_trouble = False
        self._tasks = Tasks("announcement")

    async def start(self) -> None:
        await self._try()
        self._tasks.spawn("stay announced", self._run())

    async def close(self) -> None:
        await self._tasks.close()
        if self._session is not None:
            try:
                await self._session.close()
            except CatenaError as error:
                log.warning("the record of this service stays until its session expires: %s", error)

    async def _run(self) -> None:
        while True:
            await self._clock.sleep(EVERY_S)
            await self._try()

    async def _try(self) -> None:
        try:
            await self._write()
            self._in_trouble = False
        except CatenaError as error:
            if not self._in_trouble:  # not again with each try
                log.warning("others can't find this service: %s: %s", type(error).__name__, error)
            self._in_trouble = True

    async def _write(self) -> None:
        if self._session is None or not self._session.alive:
            self._is_written = False
            self._session = await self._meta.session(SESSION_TTL_MS)
        if not self._is_written:
            try:
                await self._meta.put(self._key, self._value, ANY, self._session)
            except SessionExpired:
                self._session = None
                raise
            self._is_written = True


async def announce(meta: MetaStore, clock: Clock, entropy: Entropy, http: Address, version: str) -> Announcement:
    """So that others find this process, at `http`, until the announcement is closed."""
    made = Announcement(meta, clock, entropy.hex_id(), ServiceRecord(http, version, clock.now_ms()))
    await made.start()
    return made


async def find_services(meta: MetaStore) -> list[ServiceRecord]:
    """Those that run, or did a moment ago. Raises Corrupt if a record can't be read."""
    found = []
    for record in await meta.scan(keys.SERVICES, keys.after(keys.SERVICES), SCAN_LIMIT):
        try:
            found.append(msgspec.json.decode(record.value, type=ServiceRecord))
        except msgspec.MsgspecError as error:
            raise Corrupt(f"meta record {record.key} can't be read: {error}") from error
    return found
