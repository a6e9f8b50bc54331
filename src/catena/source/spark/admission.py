"""A stream reader that keeps to Spark's limits and ends where Trigger.AvailableNow says. Spark has both from 4.2 on."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from pyspark.sql.streaming.datasource import ReadAllAvailable, ReadLimit, ReadMaxRows, SupportsTriggerAvailableNow

from catena.errors import ConfigError
from catena.source import offsets
from catena.source.offsets import StreamOffsets
from catena.source.options import SourceOptions
from catena.source.spark.readers import StreamReader


class AdmittingStreamReader(StreamReader, SupportsTriggerAvailableNow):  # type: ignore[misc]
    def __init__(self, options: SourceOptions, columns: Sequence[str]) -> None:
        super().__init__(options, columns)
        self._max_offsets = options.max_offsets_per_trigger
        self._target: StreamOffsets | None = None
        self._tails: StreamOffsets | None = None

    def getDefaultReadLimit(self) -> ReadLimit:
        return ReadAllAvailable() if self._max_offsets is None else ReadMaxRows(self._max_offsets)

    # Spark looks at the number of parameters.
    def latestOffset(self, start: dict[str, Any], limit: ReadLimit) -> dict[str, Any]:  # type: ignore[override]
        first, most = offsets.decode(start), _most(limit)
        latest = self.process.ask(lambda planner: planner.latest_offsets(first, most, self._target))
        self._tails = latest.tails
        return offsets.encode(latest.end)

    def prepareForTriggerAvailableNow(self) -> None:
        self._target = self.process.ask(lambda planner: planner.tails())

    def reportLatestOffset(self) -> dict[str, Any] | None:
        """As seen when the last batch was planned: shown as the stream's lag."""
        return None if self._tails is None else offsets.encode(self._tails)


def _most(limit: ReadLimit) -> int | None:
    match limit:
        case ReadAllAvailable():
            return None
        case ReadMaxRows():
            return int(limit.max_rows)
        case _:
            raise ConfigError(f"Spark asks for a limit that this source does not have: {limit}")
