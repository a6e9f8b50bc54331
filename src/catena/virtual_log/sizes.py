"""How large a log is, about: the sizes of some of its runs, times how many more there are.

Exact where its runs are few; else the bytes for a record of the oldest `SAMPLED_RUNS` runs, times its records.
"""

from __future__ import annotations

from catena.types import Offset
from catena.virtual_log.log import VirtualLog

SAMPLED_RUNS = 100


async def estimated_size(log: VirtualLog, tail: Offset) -> int:
    """In bytes, up to `tail`. Raises StoreRefused if its records are in the memory of another node."""
    start = (await log.chain()).start
    runs = await log.runs(start, SAMPLED_RUNS)
    size = sum(run.size for run in runs)
    counted = runs[-1].end - start if runs else 0
    return size if counted >= tail - start else size * (tail - start) // max(counted, 1)
