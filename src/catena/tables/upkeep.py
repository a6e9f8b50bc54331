"""Keeps a table tidy: drops old days, makes large files of small ones, forgets old states, deletes what nobody needs.

    drop days      a commit that removes files                          the table's own retention
    compact        tasks write, a commit swaps files                    refused if one of them is gone meanwhile
    expire         states that are older than asked for
    orphans        list -> raise the fence -> look what is in use -> delete the rest of the list

**Dead letters** are brought in by the table's commit, which names a list of their files. So the fence of the table is
raised before theirs: no driver that planned before can name files any more that are to be deleted. Files of the list
that the table names by then are in use, whether or not they are in the table of dead letters yet.

A crash leaves at each step what the next run does, or files for its last step. It may run beside drivers that build: no
record is touched, so their progress is not, either. Orphans are looked for when some are older than the grace: raising
the fence makes drivers at work plan anew.
"""

from __future__ import annotations

import logging
import re
from collections.abc import Sequence
from datetime import UTC, datetime
from itertools import groupby

import msgspec

from catena.errors import CatenaError, StaleView
from catena.pipeline.settings import TablesSettings
from catena.tables.building import Driver, run_tasks
from catena.tables.columns import DAY
from catena.tables.committer import Change, Committer, DataFile, OpenTable, TableState
from catena.tables.dead_letters import list_key, waiting_files
from catena.tables.report import UpkeepReport
from catena.tables.settings import TableConfig
from catena.tables.tasks import REWRITE
from catena.tables.tasks.rewrite import RewritePlan
from catena.tables.tasks.rows import FilesSpec
from catena.virtual_log.topics import TopicRecord

log = logging.getLogger(__name__)

MAX_FILES = 1000
"""That one task makes into one."""
MAX_DELETED = 1000
"""With one call."""
_DATA_FILE = re.compile(rf"{DAY}=[0-9]{{4}}-[0-9]{{2}}-[0-9]{{2}}/[0-9a-f]{{32}}\.parquet")
_LIST = re.compile(r"_catena/dead-letters/([0-9a-f]{16})\.json")


class TableUpkeep:
    """Of a topic's table and its dead letters."""

    def __init__(self, driver: Driver, topic: TopicRecord, config: TableConfig, settings: TablesSettings) -> None:
        self._driver = driver
        self._topic = topic
        self._config = config
        self._settings = settings

    async def run(self) -> list[UpkeepReport]:
        """Whatever goes wrong is in the reports: one table stops no other."""
        try:
            opened = await self._driver.opener.open(self._topic, self._config.format)
        except CatenaError as failed:
            return [UpkeepReport(table=self._topic.name, error=f"{type(failed).__name__}: {failed}")]
        except Exception as failed:
            log.exception("the table of topic %s could not be opened", self._topic.name)
            return [UpkeepReport(table=self._topic.name, error=f"{type(failed).__name__}: {failed}")]
        reports = []
        for table, prefix in ((opened.table, opened.prefix), (opened.letters, opened.letters_prefix)):
            if self._driver.should_stop():
                break
            report = await self._keep_up(opened, table, prefix)
            if report is not None:
                reports.append(report)
        return reports

    async def _keep_up(self, opened: OpenTable, table: Committer, prefix: str) -> UpkeepReport | None:
        dropped = compacted = into = expired = orphans = 0
        error = ""
        try:
            state = await self._load(table)
            if state is None:
                return None
            dropped, state = await self._drop_days(table, state)
            compacted, into, state = await self._compact(table, prefix, state)
            expired = await table.expire(self._driver.clock.now_ms() - self._settings.keep_states_ms)
            orphans = await self._delete_orphans(opened, table, prefix)
        except StaleView:
            pass  # others are at it: the next run comes back to it
        except CatenaError as failed:
            error = f"{type(failed).__name__}: {failed}"
        except Exception as failed:
            log.exception("table %s could not be kept up", table.uri)
            error = f"{type(failed).__name__}: {failed}"
        return UpkeepReport(
            table=table.uri,
            compacted=compacted,
            compacted_into=into,
            dropped=dropped,
            expired=expired,
            orphans=orphans,
            error=error,
        )

    async def _load(self, table: Committer) -> TableState | None:
        return self._driver.opener.own(self._topic, self._config.format, await table.load())

    async def _drop_days(self, table: Committer, state: TableState) -> tuple[int, TableState]:
        if self._config.retention_ms is None:
            return 0, state
        first = first_day_kept(self._driver.clock.now_ms(), self._config.retention_ms)
        old = [file for file in await table.files() if file.day < first]
        if not old:
            return 0, state
        return len(old), await table.commit(state, Change(removed=old))

    async def _compact(self, table: Committer, prefix: str, state: TableState) -> tuple[int, int, TableState]:
        target = self._config.target_file_bytes
        groups = choose_small(await table.files(), target, self._settings.small_files)
        if not groups:
            return 0, 0, state
        spec = FilesSpec.of(prefix, table.file_schema(state), table.has_day, 2 * target)
        plans = [msgspec.msgpack.encode(RewritePlan(tuple(files), spec)) for files in groups]
        results = await run_tasks(self._driver, REWRITE, plans)
        made = [file for result in results for file in msgspec.msgpack.decode(result, type=list[DataFile])]
        removed = [file for files in groups for file in files]
        state = await table.commit(state, Change(added=made, removed=removed))
        return len(removed), len(made), state

    async def _delete_orphans(self, opened: OpenTable, table: Committer, prefix: str) -> int:
        cutoff_ms = self._driver.clock.now_ms() - self._settings.grace_ms
        files: list[str] = []
        lists: list[int] = []
        async for info in self._driver.objects.list(f"{prefix}/"):
            path = info.key.removeprefix(f"{prefix}/")
            if info.modified_ms >= cutoff_ms:
                continue
            if _DATA_FILE.fullmatch(path):
                files.append(path)
            elif found := _LIST.fullmatch(path):
                lists.append(int(found[1], 16))
        if not await self._has_orphans(opened, table, files, lists):
            return 0
        if table is opened.letters:
            await self._raise_fence(opened.table)
        state = await self._raise_fence(table)
        if state is None:
            return 0
        # Loaded after the fence: whatever was planned before it is in there by now, or can't come in any more.
        used = await self._in_use(opened, table, files)
        keys = [f"{prefix}/{path}" for path in files if path not in used]
        keys += [list_key(prefix, number) for number in lists if number != state.guards.letters]
        for start in range(0, len(keys), MAX_DELETED):
            await self._driver.objects.delete(keys[start : start + MAX_DELETED])
        return len(keys)

    async def _has_orphans(
        self, opened: OpenTable, table: Committer, files: Sequence[str], lists: Sequence[int]
    ) -> bool:
        state = await self._load(table)
        if state is None:
            return False
        used = await self._in_use(opened, table, files)
        return len(used) < len(files) or any(number != state.guards.letters for number in lists)

    async def _in_use(self, opened: OpenTable, table: Committer, files: Sequence[str]) -> set[str]:
        """What is still to come is looked for first: once it is not, it is in the table."""
        waiting: set[str] = set()
        if table is opened.letters and (main := await self._load(opened.table)) is not None:
            waiting = await waiting_files(self._driver.objects, opened.prefix, main, table)
        return waiting & set(files) | await table.in_use(files)

    async def _raise_fence(self, table: Committer) -> TableState | None:
        state = await self._load(table)
        return None if state is None else await table.commit(state, Change(fence=state.guards.fence + 1))


def first_day_kept(now_ms: int, retention_ms: int) -> str:
    """A day goes when all of it is older than asked for."""
    try:
        return datetime.fromtimestamp((now_ms - retention_ms) / 1000, UTC).date().isoformat()
    except (OverflowError, ValueError, OSError):
        return ""  # from before the calendar: all days are kept


def choose_small(files: Sequence[DataFile], target_bytes: int, at_least: int) -> list[list[DataFile]]:
    """Files of a day that are to become one: neighbours by offset, up to the target together; fewer than asked for only
    if they fill it."""
    small = sorted(
        (file for file in files if file.bytes * 2 < target_bytes),
        key=lambda file: (file.day, file.span.offset if file.span else (0, 0), file.path),
    )
    groups: list[list[DataFile]] = []
    for _, of_day in groupby(small, key=lambda file: file.day):
        taken: list[DataFile] = []
        size = 0
        for file in of_day:
            if taken and (size + file.bytes > target_bytes or len(taken) == MAX_FILES):
                groups.append(taken)
                taken, size = [], 0
            taken.append(file)
            size += file.bytes
        if len(taken) >= at_least:
            groups.append(taken)
    return [group for group in groups if len(group) > 1]
