"""A process that has tasks at work on Spark, to be ended by the tests. It says who its JVM and its worker are."""

from __future__ import annotations

import asyncio
import signal
import sys
from pathlib import Path

from catena.config import Settings
from catena.pipeline.spark.work import open_spark_work
from catena.store_spec import StoreSpec
from tests.clients.waiting import until
from tests.pipeline.deeds import parent_of, run_deed


def worker_of(folder: Path) -> int | None:
    started = folder / "objects" / "started" / "1"
    return int(started.read_text()) if started.exists() else None


async def main(folder: Path) -> None:
    run = asyncio.current_task()
    assert run is not None
    for number in (signal.SIGTERM, signal.SIGINT):
        asyncio.get_running_loop().add_signal_handler(number, run.cancel)
    async with open_spark_work(StoreSpec.of(Settings(data=str(folder))), "local[1]", run=run_deed) as work:
        running = asyncio.create_task(work.run("wait", [b"started/1"], lambda *_: None))
        worker = await asyncio.to_thread(until, lambda: worker_of(folder), "the task has started")
        print(parent_of(parent_of(worker)), worker, flush=True)
        await running


if __name__ == "__main__":
    try:
        asyncio.run(main(Path(sys.argv[1])))
    except asyncio.CancelledError:
        sys.exit(7)
