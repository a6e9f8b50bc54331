"""The classes that Spark starts with, kept ready in a file: a session opens in 2 s instead of 7.

    python -m catena.pipeline.spark

makes the file, which takes half a minute, and shows whether Spark works here. It is what JVMs call a class data archive
or, since Java 25, an ahead-of-time cache. It belongs to the virtual environment and goes with it. The JVM looks whether
it fits, and goes without if it does not. Where there is none, all works the same, only later.
"""

from __future__ import annotations

import os
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from catena.errors import ConfigError
from catena.objects.base import ObjectStore
from catena.objects.counted import CountedObjects
from catena.objects.memory import MemoryObjects
from catena.pipeline.spark.java import class_archive, find_java
from catena.pipeline.spark.session import check_pyspark
from catena.pipeline.spark.work import open_spark_work
from catena.pipeline.work import TaskFailed
from catena.runtime import Clock, Entropy, SystemClock, SystemEntropy

PLANS = [b"a", b"few", b"tasks"]


async def make_archive() -> str:
    """What there is now, in a sentence. One that is there already stays."""
    check_pyspark()
    import pyspark

    java = find_java(os.environ)
    archive = class_archive(java, pyspark.__version__)
    if archive is not None and not archive.file.exists():
        # Under a name of its own at first: nobody uses half of it, and two that write don't meet.
        part = archive.file.with_suffix(f".{SystemEntropy().hex_id()}")
        part.parent.mkdir(parents=True, exist_ok=True)
        try:
            await _run_tasks({"spark.driver.extraJavaOptions": f'"{archive.write}{part}"'})
            if part.exists():
                os.replace(part, archive.file)
        finally:
            part.unlink(missing_ok=True)
    seconds = await _run_tasks({})
    return f"Spark {pyspark.__version__} works, on Java {java.version}: a session with a few tasks took {seconds:.1f} s"


async def _run_tasks(options: dict[str, str]) -> float:
    clock = SystemClock()
    started = clock.monotonic()
    async with open_spark_work(no_objects, options=options) as work:
        for result in await work.run("probe", PLANS, lambda *_: None):
            if isinstance(result, TaskFailed):
                raise ConfigError(f"Spark's workers can't do tasks of Catena: {result.error}")
    return clock.monotonic() - started


@asynccontextmanager
async def no_objects(clock: Clock, _: Entropy) -> AsyncIterator[tuple[ObjectStore, CountedObjects]]:
    counted = CountedObjects(MemoryObjects(clock), clock)
    yield counted, counted
