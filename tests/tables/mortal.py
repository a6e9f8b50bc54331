"""A driver in a process of its own, which builds and tidies a table until it is killed."""

from __future__ import annotations

import asyncio
import sys
from pathlib import Path

from tests.tables.world import opened_world


async def main(folder: Path) -> None:
    async with opened_world(folder) as world:
        print("ready", flush=True)
        while True:
            report = await world.build(world.driver(max_records=20))
            assert not report.error, report.error
            for kept in await world.keep_up(small_files=3):
                assert not kept.error, kept.error


if __name__ == "__main__":
    asyncio.run(main(Path(sys.argv[1])))
