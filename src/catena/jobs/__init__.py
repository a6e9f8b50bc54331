"""The composition root of the pipeline: settings in, reports out. What nodes have in `node.py`, jobs have here."""

from catena.jobs.auditing import audit
from catena.jobs.compacting import compact
from catena.jobs.opening import EVERYTHING, MAX_OFFSET, OpenWork, Which, find_places, on_spark, open_site
from catena.jobs.service import Running, open_service
from catena.jobs.tabling import has_tables, tables
from catena.jobs.tiering import compact_once, tier
from catena.jobs.trimming import RetentionReport, retention
from catena.jobs.vacuuming import vacuum
from catena.pipeline.report import CompactRunReport

__all__ = [
    "EVERYTHING",
    "MAX_OFFSET",
    "CompactRunReport",
    "OpenWork",
    "RetentionReport",
    "Running",
    "Which",
    "audit",
    "compact",
    "compact_once",
    "find_places",
    "has_tables",
    "on_spark",
    "open_service",
    "open_site",
    "retention",
    "tables",
    "tier",
    "vacuum",
]
