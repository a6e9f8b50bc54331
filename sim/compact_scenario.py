"""What one seed of the compaction scenario turns on: that of the pipeline scenario, on a topic that is compacted."""

from __future__ import annotations

from dataclasses import dataclass, fields, replace

from catena.pipeline.settings import CompactSettings
from sim import pipeline_scenario
from sim.loop import Chance
from sim.pipeline_scenario import PipelineScenario

LONG_MS = 1_800_000
MARGIN_S = 300.0
"""For the skew of clocks, and for nodes that go by what they saw a moment ago."""


@dataclass(frozen=True)
class CompactScenario(PipelineScenario):
    configs: tuple[tuple[str, str], ...]
    """Of the topic."""
    mark_kept_s: float
    """How long marks of deleted keys stay, surely."""
    compact: CompactSettings
    nonsense: float
    """Share of batches that can't be decoded, though their CRC is right."""
    own_keys: float
    """Share of records whose keys are those of one burst."""


def draw(seed: int) -> CompactScenario:
    random = Chance(f"compact scenario {seed}")
    drawn = pipeline_scenario.draw(seed)
    marks_ms = random.choice((0, LONG_MS, LONG_MS))
    log = replace(
        drawn,
        kind="diskless",
        kinds=("diskless",),
        partitions=1,
        batches_per_writer=random.randint(2, 4),
        plain_writers=random.randint(1, 2),
        readers=random.randint(1, 2),
        drivers=random.choice((1, 2, 2, 3)),
        bursts=random.choice((1, 2, 2, 3)),
        # A job asks so much of the stores that such as often refuse let none get anywhere.
        meta=replace(drawn.meta, refused=drawn.meta.refused * random.choice((0.0, 0.0, 0.1))),
        objects=replace(drawn.objects, refused=drawn.objects.refused * random.choice((0.0, 0.1, 1.0))),
    )
    return CompactScenario(
        **{field.name: getattr(log, field.name) for field in fields(PipelineScenario)},
        configs=(
            ("cleanup.policy", "compact"),
            ("delete.retention.ms", str(marks_ms)),
            ("min.cleanable.dirty.ratio", random.choice(("0", "0", "0.3"))),
        ),
        mark_kept_s=max(0.0, marks_ms / 1000 - MARGIN_S),
        compact=CompactSettings(
            group_bytes=random.choice((1, 900, 2000, 1 << 20)),
            group_records=random.choice((4, 1000)),
            bucket_records=random.choice((2, 7, 1000)),
        ),
        nonsense=random.choice((0.0, 0.0, 0.1)),
        own_keys=random.choice((0.0, 0.5)),
    )
