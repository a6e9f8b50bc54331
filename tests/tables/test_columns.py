"""Columns that every table has."""

from __future__ import annotations

import datetime

import pyarrow as pa
from hypothesis import example, given
from hypothesis import strategies as st

from catena.tables.columns import RAW, READ, days_of, evolved, typed, value_fields

DAY_US = 86_400_000_000


def batch_at(*microseconds: int) -> pa.RecordBatch:
    times = pa.array(microseconds, pa.int64()).view(pa.timestamp("us", "UTC"))
    count = len(microseconds)
    return pa.RecordBatch.from_arrays([times if name == "timestamp" else pa.nulls(count) for name in READ], list(READ))


@given(st.integers(-(2**63) // 1000 * 1000 + 1000, 2**63 - 1))
@example(0)
@example(-1)
@example(DAY_US * 365_000 - 1)
@example(DAY_US * 365_000)
@example(2**63 - 1)
@example(-(2**63) + 1000)
def test_the_day_of_a_time(microseconds: int) -> None:
    first, last = datetime.date(1, 1, 1), datetime.date(9999, 12, 31)
    day = microseconds // DAY_US
    epoch = datetime.date(1970, 1, 1)
    wanted = max(min(day, (last - epoch).days), (first - epoch).days)
    assert days_of(batch_at(microseconds)).cast(pa.int32()).to_pylist() == [wanted]


def test_more_columns() -> None:
    fields = [pa.field("value", pa.string()), pa.field("new", pa.int64())]
    more = evolved(RAW, fields)
    assert more.names == ["_catena", "key", "value", "new", "day"]
    assert more.field("value").type == pa.binary(), "what is there keeps its type"
    assert evolved(more, fields).equals(more, check_metadata=True)
    assert [field.name for field in value_fields(more)] == ["value", "new"]
    assert typed(fields).names == more.names
