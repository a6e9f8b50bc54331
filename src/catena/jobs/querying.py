"""SQL over topics, composed: see `catena.queries`."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TypeVar

from catena.config import Settings
from catena.node import Node
from catena.queries.duck import Answer, DuckQueries
from catena.runtime import Disk, SystemClock, SystemEntropy
from catena.stores import open_stores
from catena.tables.storage import Storage, TableOpener

T = TypeVar("T")


async def query(settings: Settings, sql: str, show: Callable[[Answer], T], skips: bool = False) -> T:
    """What `show` makes of the answer, on a thread; it is read while it is shown."""
    clock, entropy = SystemClock(), SystemEntropy()
    storage = Storage.of(settings)
    async with open_stores(settings, clock, entropy) as stores:
        node = await Node.start(settings, stores.meta, stores.objects, clock, entropy)
        disk = Disk()
        opener = TableOpener(storage, stores.objects, disk, clock, entropy)
        try:
            queries = DuckQueries(node, stores.objects, storage, opener, disk, skips)
            with TemporaryDirectory(prefix="catena-sql-") as folder, queries.connect(Path(folder)) as connection:
                return await queries.run(connection, sql, show)
        finally:
            await opener.close()
            disk.close()
            await node.close()
