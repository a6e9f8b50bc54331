"""What a history may not contain. Pure: a history goes in, the violations come out, in O(n log n).

Names of the leaderless log's TLA+ invariants are used where one is meant: S1 NoOffsetDuplicates, S2 MonotonicOffsets,
S3 FencedRejectsAppends, S7 no overlapping ranges, S8 NoReaderError. Those over stored state are in `invariants`.

The placement of a log is what all reads together say: which batch stands at which offset. From it follow the rest:
an acked batch stands where its ack says, one whose outcome is unknown at most once, a failed one nowhere; offsets are
handed out in an order that respects real time; a tail counts all that was known before it was asked for, and nothing
that was appended after it was told.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections import defaultdict
from collections.abc import Iterator, Sequence
from itertools import pairwise
from typing import NamedTuple, TypeVar

from sim.history import (
    NEVER,
    Append,
    Call,
    Delete,
    FindTime,
    History,
    LogId,
    Outcome,
    Read,
    Reconfigure,
    Seal,
    Seen,
    Start,
    Tail,
    Trim,
)


class Violation(NamedTuple):
    rule: str
    what: str

    def __str__(self) -> str:
        return f"{self.rule}: {self.what}"


C = TypeVar("C", bound=Call)


class LogHistory:
    """The calls on one log, by kind, and where its batches stand."""

    def __init__(self, log: LogId, calls: Sequence[Call], appends: dict[int, Append]) -> None:
        self.log = log
        self.calls = calls
        self.all_appends = appends
        self.appends = self.of(Append)
        self.reads = self.of(Read)
        self.deleted_at = min((call.returned for call in self.of(Delete)), default=NEVER)
        self.delete_began = min((call.invoked for call in self.of(Delete)), default=NEVER)
        self.placed: dict[int, Seen] = {}
        """By offset: the batch that starts there."""

    def of(self, kind: type[C]) -> list[C]:
        return [call for call in self.calls if isinstance(call, kind)]

    def acked(self) -> list[Append]:
        return [append for append in self.appends if append.outcome is Outcome.OK]


def check(history: History) -> list[Violation]:
    appends = {call.batch: call for call in history.calls if isinstance(call, Append)}
    by_log: dict[LogId, list[Call]] = defaultdict(list)
    topics: dict[str, list[Delete]] = defaultdict(list)
    for call in history.calls:
        if isinstance(call, Delete):
            topics[call.log.topic_id].append(call)
        else:
            by_log[call.log].append(call)
    violations: list[Violation] = []
    for log, calls in by_log.items():
        part = LogHistory(log, [*calls, *topics[log.topic_id]], appends)
        for rule in RULES:
            violations.extend(rule(part))
    return violations


def readers_agree(part: LogHistory) -> Iterator[Violation]:
    """S1 over what was read: one batch for each offset, whole, never two that overlap; fills in `placed`."""
    for read in part.reads:
        for seen in read.seen:
            before = part.placed.setdefault(seen.offset, seen)
            if before != seen:
                yield Violation(
                    "S1 readers disagree", f"{part.log} at {seen.offset}: {before} and {seen} ({read.client})"
                )
    order = sorted(part.placed.values())
    for left, right in pairwise(order):
        if left.end > right.offset:
            yield Violation("S7 overlap", f"{part.log}: {left} and {right}")


def reads_are_contiguous(part: LogHistory) -> Iterator[Violation]:
    """A read starts with the batch that holds what was asked for, and leaves no gap."""
    for read in part.reads:
        if not read.seen:
            continue
        first = read.seen[0]
        if not first.offset <= read.offset < first.end:
            yield Violation("wrong offset read", f"{part.log}: asked {read.offset}, got {first} ({read.client})")
        for left, right in pairwise(read.seen):
            if left.end != right.offset:
                yield Violation("gap in a read", f"{part.log}: {left} then {right} ({read.client})")


def batches_are_what_was_appended(part: LogHistory) -> Iterator[Violation]:
    """Nothing changed, nothing twice, nothing that failed, nothing of another log."""
    places: dict[int, int] = {}
    for seen in part.placed.values():
        append = part.all_appends.get(seen.batch)
        if append is None:
            yield Violation("changed or made up", f"{part.log} at {seen.offset}: bytes that nobody appended")
            continue
        if append.log != part.log:
            yield Violation("wrong log", f"{part.log} at {seen.offset}: batch {seen.batch} of {append.log}")
        if append.outcome is Outcome.FAILED:
            yield Violation("failed append in the log", f"{part.log}: batch {seen.batch} stands at {seen.offset}")
        if append.count != seen.count:
            yield Violation("changed or made up", f"{part.log}: batch {seen.batch} has {seen.count} records")
        other = places.setdefault(seen.batch, seen.offset)
        if other != seen.offset:
            yield Violation("duplicated", f"{part.log}: batch {seen.batch} stands at {other} and {seen.offset}")


def acked_batches_stand(part: LogHistory) -> Iterator[Violation]:
    """S1 and S2 over acks: no two share an offset, and where an acked offset was read, it holds the acked batch."""
    acked = sorted(part.acked(), key=lambda append: append.offset)
    for left, right in pairwise(acked):
        if left.end > right.offset:
            yield Violation(
                "S1 two acks at one offset",
                f"{part.log}: batch {left.batch} at {left.offset} and batch {right.batch} at {right.offset}",
            )
    order = sorted(part.placed)
    for append in acked:
        at = bisect_right(order, append.offset) - 1
        for seen in (part.placed[offset] for offset in order[max(at, 0) : at + 2]):
            if seen.offset < append.end and append.offset < seen.end and seen.batch != append.batch:
                yield Violation(
                    "acked record lost", f"{part.log}: batch {append.batch} at {append.offset} reads {seen}"
                )


def nothing_acked_is_missing(part: LogHistory) -> Iterator[Violation]:
    """After healing every node reads the log from its start to its tail, without a gap, and all acks are in it."""
    if part.delete_began != NEVER:
        return
    finals: dict[str, list[Read]] = defaultdict(list)
    for read in part.reads:
        if read.final:
            finals[read.client].append(read)
    for client, reads in finals.items():
        seen = [seen for read in reads for seen in read.seen]
        for left, right in pairwise(seen):
            if left.end != right.offset:
                yield Violation("gap in the log", f"{part.log} as {client} reads it: {left} then {right}")
        start, tail = reads[0].offset, (seen[-1].end if seen else reads[0].offset)
        batches = {each.batch for each in seen}
        for append in part.acked():
            if append.offset >= start and append.batch not in batches:
                yield Violation(
                    "acked record lost",
                    f"{part.log}: batch {append.batch}, acked at {append.offset} to {append.client}, is not "
                    f"in [{start}, {tail}) as {client} reads it",
                )


def real_time_order(part: LogHistory) -> Iterator[Violation]:
    """No batch stands behind one that was appended only after it was acked, read or counted."""
    known: list[tuple[int, int]] = [(append.end, append.returned) for append in part.acked()]
    known += [(read.seen[-1].end, read.returned) for read in part.reads if read.seen]
    known += [(tail.tail, tail.returned) for tail in part.of(Tail) if tail.outcome is Outcome.OK]
    known += [(seal.tail, seal.returned) for seal in part.of(Seal) if seal.outcome is Outcome.OK]
    known.sort()
    ends = [end for end, _ in known]
    earliest = [NEVER] * (len(known) + 1)
    for at in range(len(known) - 1, -1, -1):
        earliest[at] = min(earliest[at + 1], known[at][1])
    for offset, append in _where_they_stand(part):
        if earliest[bisect_right(ends, offset)] < append.invoked:
            yield Violation(
                "reordered", f"{part.log}: batch {append.batch} stands at {offset}, taken before it was appended"
            )


def producer_order(part: LogHistory) -> Iterator[Violation]:
    """Batches of one producer stand in the order of their sequence numbers, epoch by epoch."""
    by_producer: dict[int, list[tuple[int, int, int]]] = defaultdict(list)
    for offset, append in _where_they_stand(part):
        if append.stamp is not None:
            by_producer[append.stamp.producer_id].append((append.stamp.epoch, append.stamp.sequence, offset))
    for producer_id, stamps in by_producer.items():
        stamps.sort()
        for left, right in pairwise(stamps):
            if left[2] >= right[2]:
                yield Violation("producer reordered", f"{part.log}: producer {producer_id}: {left} then {right}")


def calls_keep_their_order(part: LogHistory) -> Iterator[Violation]:
    """Appends that were called on one node one after the other stand in that order, whatever became of each."""
    by_pipeline: dict[int, list[tuple[int, int, int]]] = defaultdict(list)
    for offset, append in _where_they_stand(part):
        if append.pipeline:
            by_pipeline[append.pipeline].append((append.invoked, offset, append.batch))
    for calls in by_pipeline.values():
        for (_, left, first), (_, right, second) in pairwise(sorted(calls)):
            if left >= right:
                yield Violation(
                    "call order", f"{part.log}: batch {first} at {left} was called before batch {second} at {right}"
                )


def tails_are_linearizable(part: LogHistory) -> Iterator[Violation]:
    """A tail is at least what anyone knew when it was asked for, and counts nothing that was appended after it."""
    known = _KnownEnds(part)
    order = sorted(_where_they_stand(part), key=lambda placed: placed[0])
    offsets = [offset for offset, _ in order]
    latest_invoked = [-1]
    for _, append in order:
        latest_invoked.append(max(latest_invoked[-1], append.invoked))
    for call, value in _tails(part):
        if value < known.before(call.invoked):
            yield Violation(
                "tail not linearizable",
                f"{part.log}: {call.client} was told {value} at {call.returned}, but {known.before(call.invoked)} "
                f"was known before {call.invoked}",
            )
        if latest_invoked[bisect_left(offsets, value)] > call.returned:
            yield Violation("tail from the future", f"{part.log}: {value} told to {call.client} at {call.returned}")


def reads_never_go_back(part: LogHistory) -> Iterator[Violation]:
    """Nothing at an offset, or an offset that is out of range, only where nobody had seen anything before."""
    known = _KnownEnds(part)
    trims = sorted((trim.invoked, trim.offset) for trim in part.of(Trim))
    for read in part.reads:
        if read.outcome is not Outcome.OK or read.seen:
            continue
        if read.returned > part.delete_began:
            continue
        end = known.before(read.invoked)
        trimmed = max((offset for invoked, offset in trims if invoked < read.returned), default=0)
        if read.out_of_range is None:
            if read.offset < end:
                yield Violation(
                    "reader went back", f"{part.log}: {read.client} got nothing at {read.offset}, but {end} was known"
                )
            continue
        start, tail = read.out_of_range
        if start > trimmed or not (read.offset < start or read.offset > tail):
            yield Violation(
                "S8 reader error", f"{part.log}: {read.client} at {read.offset}: out of range [{start}, {tail}]"
            )
        elif tail < end:
            yield Violation("tail not linearizable", f"{part.log}: out of range says {tail}, but {end} was known")


def no_unexpected_error(part: LogHistory) -> Iterator[Violation]:
    """S8: no reader meets a missing object, a gap, or bytes that don't decode. Nor does any call fail out of place."""
    for call in part.calls:
        if call.error and part.delete_began == NEVER:
            rule = "S8 reader error" if isinstance(call, Read) else "unexpected error"
            yield Violation(rule, f"{part.log}: {type(call).__name__} of {call.client}: {call.error}")


def sealed_takes_no_appends(part: LogHistory) -> Iterator[Violation]:
    """S3: once a seal has returned, nothing is acked until somebody tries to reopen the log."""
    reopens = sorted(part.of(Reconfigure), key=lambda call: call.invoked)
    seals = sorted((seal for seal in part.of(Seal) if seal.outcome is Outcome.OK), key=lambda seal: seal.returned)
    returned = [seal.returned for seal in seals]
    for append in part.acked():
        at = bisect_left(returned, append.invoked) - 1
        if at < 0:
            continue
        seal = seals[at]
        if not any(reopen.invoked < append.returned and reopen.returned > seal.invoked for reopen in reopens):
            yield Violation(
                "S3 fenced log took an append", f"{part.log}: batch {append.batch} at {append.offset} after {seal.tail}"
            )


def starts_only_grow(part: LogHistory) -> Iterator[Violation]:
    """The start is where some trim that began before put it, and not before one that had returned."""
    trims = part.of(Trim)
    for call in part.of(Start):
        if call.outcome is not Outcome.OK:
            continue
        floor = max(
            (trim.offset for trim in trims if trim.outcome is Outcome.OK and trim.returned < call.invoked), default=0
        )
        ceiling = max((trim.offset for trim in trims if trim.invoked < call.returned), default=0)
        if not floor <= call.start <= ceiling:
            yield Violation("start went back", f"{part.log}: {call.start} is not in [{floor}, {ceiling}]")


def times_are_found(part: LogHistory) -> Iterator[Violation]:
    """A lookup by time gives the first record, at or after the start, that is as late; none only if none was known."""
    order = sorted(_where_they_stand(part), key=lambda placed: placed[0])
    trims = part.of(Trim)
    for call in part.of(FindTime):
        if call.outcome is not Outcome.OK or part.delete_began != NEVER:
            continue
        start = max((trim.offset for trim in trims if trim.invoked < call.returned), default=0)
        known = [
            max(offset, start)
            for offset, append in order
            if append.timestamp_ms >= call.timestamp_ms
            and append.returned < call.invoked
            and offset + append.count > start
        ]
        if known and (call.offset is None or call.offset > known[0]):
            yield Violation("time not found", f"{part.log}: {call.timestamp_ms} is at {known[0]}, not at {call.offset}")
        if call.offset is None:
            continue
        for offset, append in order:
            if offset <= call.offset < offset + append.count and append.timestamp_ms < call.timestamp_ms:
                yield Violation("time not found", f"{part.log}: {call.offset} is before {call.timestamp_ms}")


def deleted_stays_deleted(part: LogHistory) -> Iterator[Violation]:
    """No append is acked that began after the delete of its topic had returned."""
    for append in part.acked():
        if append.invoked > part.deleted_at:
            yield Violation("deleted topic took an append", f"{part.log}: batch {append.batch} at {append.offset}")


RULES = (
    readers_agree,
    reads_are_contiguous,
    batches_are_what_was_appended,
    acked_batches_stand,
    nothing_acked_is_missing,
    real_time_order,
    producer_order,
    calls_keep_their_order,
    tails_are_linearizable,
    reads_never_go_back,
    no_unexpected_error,
    sealed_takes_no_appends,
    starts_only_grow,
    times_are_found,
    deleted_stays_deleted,
)
"""In order: `readers_agree` finds the placement that the later rules use."""


class _KnownEnds:
    """How far the log was known to reach at each tick, by anyone's ack, read or tail."""

    def __init__(self, part: LogHistory) -> None:
        told = [(append.returned, append.end) for append in part.acked()]
        told += [(read.returned, read.seen[-1].end) for read in part.reads if read.seen]
        told += [(call.returned, value) for call, value in _tails(part)]
        told.sort()
        self._ticks = [tick for tick, _ in told]
        self._ends = [0]
        for _, end in told:
            self._ends.append(max(self._ends[-1], end))

    def before(self, tick: int) -> int:
        return self._ends[bisect_left(self._ticks, tick)]


def _tails(part: LogHistory) -> Iterator[tuple[Call, int]]:
    """Every answer that says where the log ends."""
    for call in part.calls:
        if call.outcome is Outcome.OK:
            if isinstance(call, (Tail, Seal)):
                yield call, call.tail
            elif isinstance(call, Read) and call.out_of_range is not None and call.offset > call.out_of_range[1]:
                yield call, call.out_of_range[1]


def _where_they_stand(part: LogHistory) -> list[tuple[int, Append]]:
    """Every batch whose offset is known, by its ack or because it was read."""
    places = {append.batch: append.offset for append in part.acked()}
    for seen in part.placed.values():
        places.setdefault(seen.batch, seen.offset)
    return [(offset, part.all_appends[batch]) for batch, offset in places.items() if batch in part.all_appends]
