"""Finish the writes of applications that died, and forget those that are long over.

An intent is a decision that anyone may carry out (`virtual_log.intents`). Who published it and died leaves it open; if
nobody comes back as the same application, its records stay out of the logs and its blobs in the store. So what is open
for `finish_after_ms` is finished here, in the same way as by the application itself (`adopting`): or abandoned, if
nobody has confirmed it and its blobs are so old that vacuum may have taken some.

**A driver that is still at it** is not disturbed, and need not be dead: the age only saves work. Two that append the
same runs are told so by the log, as two attempts of an application are.

**Heads** of applications that have written nothing for `keep_ms` are deleted. Until then a version that is done is not
written again.

A crash at any step leaves what there was, or what the application itself would have left there: the next run goes on.
One application stops no other, also if its head can't be read.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from dataclasses import dataclass, field

from catena.errors import CatenaError, Corrupt
from catena.node import Node
from catena.pipeline.settings import WritesSettings
from catena.runtime import Entropy
from catena.source.adopting import GRACES, Adopter
from catena.virtual_log.intents import Intents, readable_heads

log = logging.getLogger(__name__)


@dataclass
class WritesReport:
    applications: int = 0
    open: int = 0
    """Young ones, which are left to those who have begun them."""
    finished: int = 0
    abandoned: int = 0
    """Or another was faster."""
    forgotten: int = 0
    failures: dict[str, CatenaError] = field(default_factory=dict)
    """By application."""


async def finish_writes(
    node: Node,
    entropy: Entropy,
    settings: WritesSettings,
    grace_ms: int,
    should_stop: Callable[[], bool] = lambda: False,
) -> WritesReport:
    """`grace_ms`: vacuum's."""
    report = WritesReport()
    intents = Intents(node.meta, node.clock, entropy)
    async for app, head in readable_heads(node.meta):
        if should_stop():
            break
        report.applications += 1
        try:
            if isinstance(head, Corrupt):
                raise head
            if head.open is not None:
                before_ms = node.clock.now_ms() - settings.finish_after_ms
                done = await Adopter(node, entropy, app, grace_ms // GRACES).finish_open(before_ms)
                report.open += done is None
                report.finished += done is True
                report.abandoned += done is False
            report.forgotten += await intents.forget(app, settings.keep_ms)
        except CatenaError as error:
            log.warning("a write of %r could not be finished: %s", app, error)
            report.failures[app] = error
    return report
