"""Do clients, brokers and the log tell the same story? Pure: what each of them says goes in, findings come out.

    acked by clients  <=  counted by brokers, in the log  <=  acked + what nobody knows

An `error` means that the run shows something that must not be, or that it can't be trusted. A `note` is something to
know when its figures are read.
"""

from __future__ import annotations

from typing import Any, Literal

import msgspec

RATE_KEPT = 0.97
GROWTH_SHARE = 0.25
GROWTH_BYTES = 64 << 20
"""Memory that a node has at the end more than in the middle, beyond which it is told."""


LATE_MS, LATE_SHARE = 50.0, 0.25
"""Beyond which, and beyond which share of the latency, it is told that hammers were late."""


class Finding(msgspec.Struct, frozen=True):
    severity: Literal["error", "note"]
    message: str


class Memory(msgspec.Struct, frozen=True):
    """Resident bytes of a process: means over a quarter of the run."""

    middle: int
    end: int
    most: int


class Story(msgspec.Struct, frozen=True):
    """What is known after a run. Counts are records."""

    due: int
    acked: int
    failed: int
    unknown: int
    dropped: int
    unanswered: int
    read: dict[str, int]
    """By each kind of consumers: each reads everything."""
    in_log: int | None
    """Offsets that the logs have grown by; None: they could not be asked."""
    brokers: int | None
    """Records that nodes have counted; None: they do not say."""
    brokers_complete: bool
    """Whether no node has died, which loses its last counts."""
    rate_share: float | None
    """Of the rate that was asked for, how much was acked; None: none was asked for."""
    verified: dict[str, Any] | None
    unverified: str
    """Why there is nothing verified, where there should be."""
    audit: dict[str, Any] | None
    memory: dict[str, Memory]
    """Of nodes that lived throughout."""
    dead_hammers: dict[str, str]
    dead_nodes: tuple[str, ...]
    """That are not there at the end, and which nobody ended on purpose."""
    late_ms: float | None
    """The p99 of how late hammers got to what was due."""
    produce_ms: float | None
    """The p99 of latencies, which have that in them."""
    capacity_limit: str
    """Why what was found is not the cluster's capacity; empty: it is, or none was searched for."""
    failed_events: tuple[str, ...]
    missing: tuple[str, ...]
    """Files that the run directory should have."""
    interrupted: bool


def reconcile(story: Story) -> list[Finding]:
    found = [*_clients(story), *_brokers(story), *_log(story), *_read_back(story), *_stack(story)]
    return [*(each for each in found if each.severity == "error"), *(each for each in found if each.severity == "note")]


def _clients(story: Story) -> list[Finding]:
    found = []
    if story.interrupted:
        found.append(Finding("note", "the run was interrupted: it is shorter than the scenario says"))
    for name, words in story.dead_hammers.items():
        found.append(Finding("error", f"hammer {name} died: {words}"))
    for count, what in (
        (story.failed, "were refused: they are not in the log"),
        (story.unknown, "have an unknown outcome: they may be in the log"),
        (story.dropped, "were dropped by hammers, whose backlog was full or which never got to them"),
        (story.unanswered, "were not answered before their hammer ended: they may be in the log"),
    ):
        if count:
            found.append(Finding("note", f"{count:,} of {story.due:,} records {what}"))
    if story.rate_share is not None and story.rate_share < RATE_KEPT and not story.interrupted:
        found.append(Finding("note", f"only {story.rate_share:.1%} of the rate was reached"))
    if story.late_ms is not None and story.late_ms > max(LATE_MS, LATE_SHARE * (story.produce_ms or 0.0)):
        found.append(
            Finding(
                "note",
                f"hammers were late themselves, {story.late_ms:,.0f} ms at p99, and latencies have that in them: "
                "they want more CPU, or more processes",
            )
        )
    if story.capacity_limit:
        found.append(Finding("note", f"what was found is not the limit of the cluster: {story.capacity_limit}"))
    if not story.acked:
        found.append(Finding("error", "nothing was acked"))
    for kind, read in story.read.items():
        if read < story.acked:
            found.append(Finding("error", f"{story.acked - read:,} acked records did not come to {kind} in time"))
        elif story.in_log is not None and read > story.in_log:
            found.append(
                Finding("note", f"{kind} got {read - story.in_log:,} records more than the log has: some twice")
            )
    return found


def _brokers(story: Story) -> list[Finding]:
    if story.brokers is None:
        return [Finding("note", "nodes do not say how many records they took: not reconciled with their metrics")]
    if story.brokers < story.acked:
        short = f"nodes counted {story.acked - story.brokers:,} records less than clients saw acked"
        if story.brokers_complete:
            return [Finding("error", short)]
        return [Finding("note", f"{short}: what a killed node counted after its last sample is not known")]
    most = story.acked + story.unknown + story.unanswered
    if story.brokers > most:
        return [Finding("error", f"nodes counted {story.brokers - most:,} records more than clients can have sent")]
    return []


def _log(story: Story) -> list[Finding]:
    if story.in_log is None:
        return [Finding("error", "the logs could not be asked for their tails")]
    if story.in_log < story.acked:
        return [Finding("error", f"{story.acked - story.in_log:,} acked records are not in the log")]
    extra = story.in_log - story.acked
    unsure = story.unknown + story.unanswered
    if extra > unsure:
        return [Finding("error", f"the log has {extra - unsure:,} records more than can have been sent")]
    return [Finding("note", f"{extra:,} of {unsure:,} records of unknown outcome are in the log")] if unsure else []


def _read_back(story: Story) -> list[Finding]:
    found = [Finding("error", story.unverified)] if story.unverified else []
    if story.verified is not None:
        for kind in ("lost", "duplicated", "moved", "misplaced", "unexpected", "damaged", "reordered", "unread"):
            if count := story.verified.get(kind, 0):
                found.append(Finding("error", f"{count:,} records were {kind} when they were read back"))
        if story.verified.get("acked", 0) + story.verified.get("lost", 0) != story.acked:
            found.append(Finding("error", "hammers' ledgers and their lines do not agree on what was acked"))
    if story.audit is not None and not story.audit.get("ok"):
        found.append(Finding("error", f"the audit is not clean: {story.audit.get('message', 'see summary.json')}"))
    return found


def _stack(story: Story) -> list[Finding]:
    found = [
        Finding("error", f"{name} is not there any more, and nobody ended it on purpose") for name in story.dead_nodes
    ]
    found += [Finding("error", f"event: {words}") for words in story.failed_events]
    found += [Finding("error", f"{name} is missing in the run directory") for name in story.missing]
    for name, memory in story.memory.items():
        growth = memory.end - memory.middle
        if growth > GROWTH_BYTES and growth > memory.middle * GROWTH_SHARE:
            found.append(
                Finding(
                    "note",
                    f"the memory of {name} grew from {memory.middle / 1e6:,.0f} MB in the middle of the run "
                    f"to {memory.end / 1e6:,.0f} MB at its end",
                )
            )
    return found
