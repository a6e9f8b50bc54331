"""What fits a column comes in as it was; what does not is told, and nothing is changed or dropped on the way."""

from __future__ import annotations

import datetime
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from catena.tables.naming import labelled
from catena.tables.values.fitting import as_now, fit

A = pa.struct([("a", pa.int64())])
AB = pa.struct([("a", pa.int64()), ("b", pa.int64())])
UTC, PLAIN = pa.timestamp("us", "UTC"), pa.timestamp("us")
TIME = datetime.datetime(2026, 1, 1, 5, tzinfo=datetime.UTC)


@pytest.mark.parametrize(
    ("found", "wanted", "values", "expected"),
    [
        (pa.int32(), pa.int64(), [5, None], [5, None]),
        (pa.int64(), pa.float64(), [2**53, -5], [2.0**53, -5.0]),
        (pa.float32(), pa.float64(), [0.5], [0.5]),
        (pa.timestamp("ms", "UTC"), UTC, [TIME], [TIME]),
        (pa.string(), pa.large_string(), ["x"], ["x"]),
        (A, AB, [{"a": 1}, None], [{"a": 1, "b": None}, None]),
        (AB, A, [{"a": 1, "b": None}], [{"a": 1}]),
        (pa.struct([("b", pa.int32()), ("a", pa.int32())]), AB, [{"b": 1, "a": 2}], [{"a": 2, "b": 1}]),
        (pa.list_(A), pa.list_(AB), [[{"a": 1}, None], []], [[{"a": 1, "b": None}, None], []]),
        (pa.map_(pa.string(), pa.int32()), pa.map_(pa.string(), pa.int64()), [[("k", 1)]], [[("k", 1)]]),
        (pa.map_(pa.string(), A), pa.map_(pa.string(), AB), [[("k", {"a": 1})]], [[("k", {"a": 1, "b": None})]]),
        (pa.string(), pa.int64(), [None, None], [None, None]),
    ],
)
def test_what_fits(found: pa.DataType, wanted: pa.DataType, values: list[Any], expected: list[Any]) -> None:
    fitted = fit(pa.array(values, found), wanted)
    assert (fitted.column.type, fitted.column.to_pylist(), fitted.reasons) == (wanted, expected, {})


@pytest.mark.parametrize(
    ("found", "wanted", "value", "reason"),
    [
        (pa.string(), pa.int64(), "12", "it is string, not int64"),
        (pa.string(), pa.bool_(), "yes", "it is string"),
        (pa.int64(), pa.bool_(), 5, "it is int64"),
        (pa.int64(), pa.string(), 5, "it is int64"),
        (pa.int64(), pa.int32(), 5, "it is int64"),
        (pa.int64(), pa.float64(), 2**53 + 1, "is not exact as double"),
        (pa.int64(), UTC, 1_700_000_000_000, "it is int64"),
        (pa.int64(), pa.date32(), 5, "it is int64"),
        (pa.float64(), pa.float32(), 0.1, "it is double"),
        (pa.float64(), pa.int64(), 2.0, "it is double"),
        (pa.bool_(), pa.int64(), True, "it is bool"),
        (pa.binary(), pa.string(), b"x", "it is binary"),
        (pa.binary(), A, b"x", "it is binary"),
        (UTC, pa.date32(), TIME, "not date32"),
        (UTC, PLAIN, TIME, "not timestamp[us]"),
        (A, pa.string(), {"a": 1}, "not string"),
        (AB, A, {"a": 1, "b": 2}, "the column has no field b"),
        (pa.struct([("x", AB)]), pa.struct([("x", A)]), {"x": {"a": 1, "b": 2}}, "the column has no field x.b"),
        (pa.list_(AB), pa.list_(A), [{"a": 1, "b": 2}], "the column has no field []"),
        (pa.map_(pa.string(), AB), pa.map_(pa.string(), A), [("k", {"a": 1, "b": 2})], "the column has no field {}"),
        (pa.struct([("a", pa.string())]), A, {"a": "1"}, "a is string, not int64"),
        (pa.list_(pa.int64()), pa.int64(), [1], "is list"),
    ],
)
def test_what_does_not(found: pa.DataType, wanted: pa.DataType, value: Any, reason: str) -> None:
    fitted = fit(pa.array([None, value, None], found), wanted)
    assert (fitted.column.type, fitted.column.to_pylist()) == (wanted, [None] * 3)
    assert fitted.reasons.keys() == {1}
    assert reason in fitted.reasons[1]


def test_a_time_that_python_does_not_know() -> None:
    column = pa.array([2**62, 0], pa.int64()).cast(UTC)
    fitted = fit(column, PLAIN)
    assert fitted.reasons.keys() == {0, 1}


@given(st.lists(st.one_of(st.none(), st.integers(-(2**63), 2**63 - 1))))
def test_integers_as_doubles(values: list[int | None]) -> None:
    fitted = fit(pa.array(values, pa.int64()), pa.float64())
    for place, value in enumerate(values):
        exact = value is None or abs(value) <= 2**53
        assert (place not in fitted.reasons) == exact
        assert fitted.column[place].as_py() == (value if exact else None)


def held(name: str, field: str, kind: pa.DataType) -> pa.Field:
    return labelled(pa.field(name, kind), field)


def test_fields_go_where_they_are_held() -> None:
    found = pa.struct([("a b", pa.int32()), ("a_b", pa.string())])
    wanted = pa.struct([held("a_b", "a b", pa.int64()), held("a_b_", "a_b", pa.string()), held("c", "c", pa.bool_())])
    values = [{"a b": 1, "a_b": "x"}, None, {"a b": None, "a_b": "y"}]
    made = [{"a_b": 1, "a_b_": "x", "c": None}, None, {"a_b": None, "a_b_": "y", "c": None}]
    assert fit(pa.array(values, found), wanted) == (pa.array(made, wanted), {})
    lists = fit(pa.array([values, None, []], pa.list_(found)), pa.list_(wanted))
    assert (lists.column.to_pylist(), lists.reasons) == ([made, None, []], {})
    maps = fit(pa.array([[("k", values[0])], None, []], pa.map_(pa.string(), found)), pa.map_(pa.string(), wanted))
    assert (maps.column.to_pylist(), maps.reasons) == ([[("k", made[0])], None, []], {})
    swapped = pa.struct([held("a b", "a_b", pa.string()), held("a_b", "a b", pa.int32())])
    assert fit(pa.array(values, found), swapped).column.to_pylist()[0] == {"a b": "x", "a_b": 1}


def test_parts_of_columns_and_what_lies_under_nulls() -> None:
    """Places are those of the part, and what nobody sees is not looked at."""
    column = pa.array([[{"a": 9, "b": 9}], [{"a": 1, "b": None}], None, [{"a": 2, "b": 3}], []], pa.list_(AB))
    fitted = fit(column.slice(1), pa.list_(A))
    assert (fitted.column.to_pylist(), list(fitted.reasons)) == ([[{"a": 1}], None, None, []], [2])
    hidden = pa.ListArray.from_arrays(
        pa.array([0, 1, 2], pa.int32()),
        pa.array([{"a": 1, "b": 5}, {"a": 2, "b": None}], AB),
        mask=pa.array([True, False]),
    )
    assert fit(hidden, pa.list_(A)) == (pa.array([None, [{"a": 2}]], pa.list_(A)), {})
    maps = pa.array([[("x", 1)], [("y", 2**60)], None, [("z", 3)]], pa.map_(pa.string(), pa.int64()))
    fitted = fit(maps.slice(1), pa.map_(pa.string(), pa.float64()))
    assert (fitted.column.to_pylist(), list(fitted.reasons)) == ([None, None, [("z", 3.0)]], [0])
    keys = fit(pa.array([[("x", 1)], []], pa.map_(pa.string(), pa.int64())), pa.map_(pa.int64(), pa.int64()))
    assert (keys.column.to_pylist(), list(keys.reasons)) == ([None, []], [0])


def test_a_column_of_an_old_file() -> None:
    old = pa.array([{"a_b": 1}, None], pa.struct([("a_b", pa.int64())]))
    now = pa.struct([held("a_b", "a b", pa.int64()), held("c", "a_b", pa.int64())])
    found = as_now(old, now)
    assert (found.type, found.to_pylist()) == (now, [{"a_b": 1, "c": None}, None])
    assert as_now(pa.array([1], pa.int64()), pa.int32()).to_pylist() == [1], "as it was before"


@given(
    st.lists(st.none() | st.lists(st.none() | st.tuples(st.none() | st.integers(0, 9), st.none() | st.integers(0, 9))))
)
def test_lists_of_structs_as_their_values_are(rows: list[Any]) -> None:
    values = [None if row is None else [None if x is None else {"a": x[0], "b": x[1]} for x in row] for row in rows]
    bad = {n for n, row in enumerate(rows) if row and any(x is not None and x[1] is not None for x in row)}
    fitted = fit(pa.array(values, pa.list_(AB)), pa.list_(A))
    assert fitted.reasons.keys() == bad
    assert fitted.column.to_pylist() == [
        None if n in bad or row is None else [None if x is None else {"a": x[0]} for x in row]
        for n, row in enumerate(rows)
    ]
