"""Finish what applications have begun to write; see `catena.source.finishing`."""

from __future__ import annotations

from collections.abc import Callable

from catena.config import Settings
from catena.node import Node
from catena.pipeline.site import Site
from catena.source.finishing import WritesReport, finish_writes


async def finish_writes_on(
    site: Site, settings: Settings, should_stop: Callable[[], bool] = lambda: False
) -> WritesReport:
    node = await Node.start(settings, site.meta, site.objects, site.clock, site.entropy)
    await node.incarnation.start(raise_now=False)
    try:
        pipeline = settings.pipeline
        return await finish_writes(node, site.entropy, pipeline.writes, pipeline.vacuum.grace_ms, should_stop)
    finally:
        try:
            await node.close()
        finally:
            await node.incarnation.close()
