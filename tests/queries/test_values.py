"""Values that Python has, and some that it has not."""

from __future__ import annotations

import datetime

import pyarrow as pa

from catena.queries.values import values_of

FAR = 1 << 62


def test_times_that_no_calendar_has_are_numbers() -> None:
    times = pa.array([0, None, FAR], pa.timestamp("us", "UTC"))
    assert values_of(times) == [0, None, FAR]
    assert values_of(times[:2]) == [datetime.datetime(1970, 1, 1, tzinfo=datetime.UTC), None]
    assert values_of(pa.array([1 << 30], pa.date32())) == [1 << 30]


def test_within_others() -> None:
    times = pa.array([FAR, 1], pa.timestamp("us"))
    rows = pa.StructArray.from_arrays([times, pa.array(["a", "b"])], ["t", "s"], mask=pa.array([False, True]))
    assert values_of(rows) == [{"t": FAR, "s": "a"}, None]
    assert values_of(pa.array([[FAR], None], pa.list_(pa.timestamp("us")))) == [[FAR], None]
    assert values_of(pa.array([1, None])) == [1, None]
