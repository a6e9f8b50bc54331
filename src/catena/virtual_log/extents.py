"""Where the bytes of a log are, for those who read objects themselves: queries and tables.

Whoever has the extents of a range can read it without the meta store and without a node, on any machine that reaches
the object store. What is tiered, merged or compacted meanwhile stays for `pipeline.vacuum.longest_job_ms`; an object
that is gone got out of use before that, or was trimmed, and vacuumed: then extents are to be found anew.
"""

from __future__ import annotations

from catena.errors import Contended, Corrupt, ObjectMissing, OffsetOutOfRange, StaleView
from catena.loglets.base import Extent
from catena.types import Offset
from catena.virtual_log.log import MAX_HOPS, VirtualLog

PAGE = 1000


async def find_extents(log: VirtualLog, start: Offset, end: Offset) -> list[Extent]:
    """Extents that hold [start, end) and follow each other without a gap; of the first and the last, more may be there.

    Raises OffsetOutOfRange unless all of it is in the log, and StoreRefused if some of it is in no object.
    """
    tail = await log.tail()
    chain = await log.refresh()
    found: list[Extent] = []
    following, hops = start, 0
    while following < end:
        link = chain.link_at(following)
        if following < chain.start or end > tail or link is None:
            raise OffsetOutOfRange(max(following, end - 1) if end > tail else following, chain.start, tail)
        try:
            more = await log.loglet(link).extents(following, end if link.end is None else min(end, link.end), PAGE)
        except (StaleView, ObjectMissing) as error:
            # The chain may have moved the bytes elsewhere.
            if hops and (await log.refresh()).link_at(following) == link:
                raise error if isinstance(error, ObjectMissing) else Corrupt(f"{log.tp}: {error}") from error
            more = []
        if not more:
            hops += 1
            if hops == MAX_HOPS:
                raise Contended(f"{log.tp}: the chain changes all the time")
            chain = await log.refresh()
            continue
        hops = 0
        found += more
        following = more[-1].end
    return found
