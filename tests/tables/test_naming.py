"""Each field of values has a column of its own, and keeps it, whoever comes when."""

from __future__ import annotations

from collections.abc import Sequence

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from catena.tables.columns import RAW, evolved, typed, value_fields
from catena.tables.naming import additions, bare, field_of, grown, is_bare, labelled, source_of, within


def fields(*names: str, kind: pa.DataType | None = None) -> list[pa.Field]:
    return [pa.field(name, kind or pa.int64()) for name in names]


def columns_of(*generations: Sequence[pa.Field]) -> dict[str, str]:
    """The column of each field, in the end."""
    schema = typed([])
    for each in generations:
        schema = evolved(schema, each)
    return {source_of(column): column.name for column in value_fields(schema)}


def test_names_that_tables_take() -> None:
    names = ["größe", "名", "É", "é", "a", "A", "Key", "day", "a b", "a.b", "", "_catena"]
    assert columns_of(fields(*names)) == {
        "größe": "größe",
        "名": "名",
        "É": "É",
        "é": "é_",
        "a": "a",
        "A": "A_",
        "Key": "Key_",
        "day": "day_",
        "a b": "a_b",
        "a.b": "a_b_",
        "": "_",
        "_catena": "_catena_",
    }


@pytest.mark.parametrize(
    ("generations", "expected"),
    [
        ([["a b"], ["a_b"]], {"a b": "a_b", "a_b": "a_b_"}),
        ([["a_b"], ["a b"]], {"a_b": "a_b", "a b": "a_b_"}),
        ([["a b"], ["a_b", "a b"], ["a_b"]], {"a b": "a_b", "a_b": "a_b_"}),
        ([["Foo"], ["foo"], ["FOO", "Foo"]], {"Foo": "Foo", "foo": "foo_", "FOO": "FOO__"}),
        ([["key"], ["key_"], ["Key"]], {"key": "key_", "key_": "key__", "Key": "Key___"}),
    ],
)
def test_who_came_first_keeps_the_name(generations: list[list[str]], expected: dict[str, str]) -> None:
    assert columns_of(*(fields(*each) for each in generations)) == expected
    for kind in (pa.struct, lambda each: pa.list_(pa.struct(each)), lambda each: pa.map_(pa.string(), pa.struct(each))):
        inner = [[pa.field("x", kind(fields(*each)))] for each in generations]
        schema = typed([])
        for each in inner:
            schema = evolved(schema, each)
        found = schema.field("x").type
        while not pa.types.is_struct(found):
            found = within(found)[-1].type
        nested = {source_of(column): column.name.removesuffix("_") for column in found}
        assert nested.keys() == expected.keys()
        assert len({column.name.lower() for column in found}) == len(expected)


@given(st.lists(st.lists(st.sampled_from(["a b", "a_b", "A_b", "a_b_", "a.b", "key", "KEY", "Key_", "day", "", "_"]))))
def test_a_field_never_changes_its_column(generations: list[list[str]]) -> None:
    schema, known = typed([]), dict[str, str]()
    for names in generations:
        schema = evolved(schema, fields(*dict.fromkeys(names)))
        found = {source_of(column): column.name for column in value_fields(schema)}
        assert known.items() <= found.items()
        assert set(names) <= found.keys()
        assert len({name.lower() for name in schema.names}) == len(schema.names)
        known = found


def test_columns_that_say_nothing_are_taken_by_who_would_have_their_name() -> None:
    before = pa.schema([*RAW, *fields("a_b", "a_b_", "Key_", "mine")])
    after = evolved(before, fields("a b", "a_b", "Key", "a.b"))
    assert {field_of(column): column.name for column in after if field_of(column) is not None} == {
        "a b": "a_b",
        "a_b": "a_b_",
        "Key": "Key_",
        "a.b": "a_b__",
    }
    assert after.names == ["_catena", "key", "value", "a_b", "a_b_", "Key_", "mine", "a_b__", "day"]
    within_it = grown([pa.field("x", pa.struct(fields("a b")))], [pa.field("x", pa.struct(fields("a b", "c d")))])
    assert [column.name for column in within_it[0].type] == ["a b", "c_d"], "what is there stays as it is called"


def test_columns_keep_their_types_and_get_fields() -> None:
    old = typed([pa.field("n", pa.int64()), pa.field("x", pa.struct(fields("a")))])
    wanted = [
        pa.field("n", pa.string()),
        pa.field("x", pa.struct([*fields("b"), pa.field("a", pa.string())])),
        pa.field("x2", pa.list_(pa.field("element", pa.struct(fields("b"))))),
    ]
    new = evolved(old, wanted)
    assert new.field("n").type == pa.int64()
    assert new.field("x").type == pa.struct([("a", pa.int64()), ("b", pa.int64())])
    assert [path for path, _ in additions(old, new)] == [("x", "b"), ("x2",)]
    deeper = evolved(new, [pa.field("x2", pa.list_(pa.struct([pa.field("c", pa.map_(pa.string(), pa.int32()))])))])
    assert [path for path, _ in additions(new, deeper)] == [("x2", "element", "c")]
    again = evolved(deeper, wanted)
    assert again.equals(deeper, check_metadata=True)
    assert list(additions(deeper, again)) == []


def test_other_metadata_stays() -> None:
    column = pa.field("a", pa.int64(), metadata={"PARQUET:field_id": "7"})
    (found,) = grown([column], fields("a"))
    assert found.metadata == {b"PARQUET:field_id": b"7", b"catena.field": b"a"}


def test_types_with_nothing_said_of_them() -> None:
    inner = pa.struct([labelled(pa.field("a_b", pa.int64()), "a b")])
    for kind in (inner, pa.list_(pa.field("element", inner)), pa.large_list(inner), pa.map_(pa.string(), inner)):
        assert not is_bare(kind)
        assert is_bare(bare(kind))
        assert bare(kind).equals(kind)
