"""What became of the lines that were produced: acked with which offsets, failed, or not sent."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, NamedTuple

from catena.cli.output import count

RANGES_SHOWN = 4


class Failure(NamedTuple):
    source: str
    first_line: int
    last_line: int
    records: int
    """Fewer than there are lines where these were spread over partitions."""
    partition: int | None
    unknown: bool
    """Whether the records may be in the log all the same."""
    reason: str


class Summary:
    def __init__(self) -> None:
        self.offsets: dict[int, list[range]] = {}
        """By partition, in ascending order, adjacent ranges joined."""
        self.acked = 0
        self.acked_bytes = 0
        self.read_up_to: tuple[str, int] | None = None
        """Source and number of the last line that was read."""
        self.interrupted = False
        self._failures: list[Failure] = []

    @property
    def failed(self) -> bool:
        return bool(self._failures)

    @property
    def failures(self) -> list[Failure]:
        """In the order of the lines; neighbours that failed together are joined."""
        joined: list[Failure] = []
        for failure in sorted(self._failures, key=lambda failure: (failure.source, failure.first_line)):
            if joined and (both := _joined(joined[-1], failure)) is not None:
                joined[-1] = both
            else:
                joined.append(failure)
        return joined

    def ack(self, partition: int, offsets: range, size: int) -> None:
        self.acked += len(offsets)
        self.acked_bytes += size
        ranges = self.offsets.setdefault(partition, [])
        if ranges and ranges[-1].stop == offsets.start:
            ranges[-1] = range(ranges[-1].start, offsets.stop)
        else:
            ranges.append(offsets)

    def fail(self, failure: Failure) -> None:
        self._failures.append(failure)

    def as_fields(self) -> dict[str, Any]:
        return {
            "acked": self.acked,
            "partitions": [
                {
                    "partition": partition,
                    "records": sum(map(len, ranges)),
                    "offsets": [{"first": each.start, "last": each.stop - 1} for each in ranges],
                }
                for partition, ranges in sorted(self.offsets.items())
            ],
            "failed": [failure._asdict() for failure in self.failures],
            "interrupted": self.interrupted,
            "read_up_to": dict(zip(("source", "line"), self.read_up_to, strict=True)) if self.read_up_to else None,
        }

    def as_text(self) -> Iterator[str]:
        yield f"{count(self.acked, 'record')} acked"
        for partition, ranges in sorted(self.offsets.items()):
            shown = ", ".join(f"{each.start:,} to {each.stop - 1:,}" for each in ranges[:RANGES_SHOWN])
            if len(ranges) > RANGES_SHOWN:
                shown += f", and {count(len(ranges) - RANGES_SHOWN, 'more range')} up to {ranges[-1].stop - 1:,}"
            yield f"  partition {partition}: {count(sum(map(len, ranges)), 'record')}, offsets {shown}"
        for failure in self.failures:
            yield "  " + _describe(failure)
        if self.failed or self.interrupted:
            why = "interrupted" if self.interrupted else "stopped at the failure"
            source, line = self.read_up_to or ("the input", 0)
            yield f"  {why}: nothing after line {line:,} of {source} was sent"


def _joined(one: Failure, next_one: Failure) -> Failure | None:
    """None if they do not belong together; lines that were spread over partitions are told apart."""
    whole = all(each.records == each.last_line - each.first_line + 1 for each in (one, next_one))
    if not whole or one.last_line + 1 != next_one.first_line:
        return None
    if (one.source, one.unknown, one.reason) != (next_one.source, next_one.unknown, next_one.reason):
        return None
    partition = one.partition if one.partition == next_one.partition else None
    return one._replace(last_line=next_one.last_line, records=one.records + next_one.records, partition=partition)


def _describe(failure: Failure) -> str:
    source, first, last, records, partition, unknown, reason = failure
    lines = f"line {first:,}" if first == last else f"lines {first:,} to {last:,}"
    some = f" ({count(records, 'record')} of partition {partition})" if records < last - first + 1 else ""
    outcome = "may or may not be in the log" if unknown else "failed"
    return f"{lines} of {source}{some} {outcome}: {reason}"
