"""Values become columns; whatever is in a bad one is told, and stops nobody."""

from __future__ import annotations

import base64
import datetime
import io
import json
import uuid
from decimal import Decimal
from typing import Any

import fastavro
import pyarrow as pa
import pytest
from google.protobuf import descriptor_pb2
from hypothesis import given
from hypothesis import strategies as st

from catena.errors import ConfigError
from catena.tables.columns import READ, evolved, typed
from catena.tables.values import Decoder, ValueSpec, decoder_of
from catena.tables.values.proto_text import parse_proto
from catena.tables.values.protobuf import ProtobufSchema
from catena.tables.values.rows import convert

JSON = {
    "type": "object",
    "properties": {
        "n": {"type": "integer"},
        "x": {"type": ["number", "null"]},
        "s": {"type": "string"},
        "at": {"type": "string", "format": "date-time"},
        "d": {"type": "string", "format": "date"},
        "b": {"type": "string", "contentEncoding": "base64"},
        "lines": {"type": "array", "items": {"type": "object", "properties": {"sku": {"type": "string"}, "any": {}}}},
        "free": {"type": "object"},
        "key": {"type": "boolean"},
        "tree": {"$ref": "#/$defs/tree"},
    },
    "$defs": {"tree": {"properties": {"name": {"type": "string"}, "next": {"$ref": "#/$defs/tree"}}}},
}
AVRO = {
    "type": "record",
    "name": "Order",
    "namespace": "shop",
    "fields": [
        {"name": "id", "type": "long"},
        {"name": "note", "type": ["null", "string"], "default": None},
        {"name": "price", "type": {"type": "bytes", "logicalType": "decimal", "precision": 10, "scale": 2}},
        {"name": "at", "type": {"type": "long", "logicalType": "timestamp-millis"}},
        {"name": "tags", "type": {"type": "map", "values": ["null", "int"]}},
        {
            "name": "lines",
            "type": {
                "type": "array",
                "items": {
                    "type": "record",
                    "name": "Line",
                    "fields": [
                        {"name": "sku", "type": {"type": "string", "logicalType": "uuid"}},
                        {"name": "kind", "type": {"type": "enum", "name": "Kind", "symbols": ["A", "B"]}},
                    ],
                },
            },
        },
        {"name": "mixed", "type": ["null", "int", "string"]},
        {"name": "parent", "type": ["null", "Order"], "default": None},
        {"name": "first", "type": ["null", "Line"], "default": None},
    ],
}
ORDER = {
    "id": 5,
    "note": "x",
    "price": Decimal("12.34"),
    "at": datetime.datetime(2026, 1, 1, tzinfo=datetime.UTC),
    "tags": {"a": 1, "b": None},
    "lines": [{"sku": str(uuid.UUID(int=5)), "kind": "B"}],
    "mixed": 7,
    "parent": None,
    "first": None,
}
PROTO = """
syntax = "proto3";  // a comment
package shop;
import "google/protobuf/timestamp.proto";
import "google/protobuf/wrappers.proto";
import public "google/protobuf/duration.proto";
option java_package = "shop";
/* another
   comment */
enum Kind { option allow_alias = true; A = 0; B = 1 [deprecated = true]; C = 1; reserved 5; }
message Order {
  reserved 100 to 200, 300;
  int64 id = 1;
  optional string note = 2 [deprecated = true];
  repeated Line lines = 3;
  map<string, int32> tags = 4;
  google.protobuf.Timestamp at = 5;
  oneof pay { option (x) = 1; string card = 6; Line cash = 7; }
  Kind kind = 8;
  uint64 big = 9;
  google.protobuf.Int32Value wrapped = 10;
  Order parent = 11;
  google.protobuf.Duration took = 12;
  map<int32, Line> by_number = 13;
  bool day = 14;;
  message Line { string sku = 1; enum Size { S = 0; } Size size = 2; }
}
message Other { string name = 1; }
service Shop { rpc Buy (Order) returns (Order) { option (x) = {a: 1}; } }
"""


def framed(number: int, body: bytes, between: bytes = b"") -> bytes:
    return b"\0" + number.to_bytes(4, "big") + between + body


def as_avro(value: Any, schema: Any = AVRO) -> bytes:
    out = io.BytesIO()
    fastavro.schemaless_writer(out, fastavro.parse_schema(schema), value)
    return out.getvalue()


def decoded(decoder: Decoder, *values: bytes | None) -> tuple[list[dict[str, Any] | None], dict[int, str]]:
    """Rows, None for a bad one, and the reasons."""
    found = decoder.decode(pa.array(values, pa.binary()))
    assert all(len(column) == len(values) for column in found.columns.values())
    assert {name: column.type for name, column in found.columns.items()} == {f.name: f.type for f in decoder.fields}
    rows = [{name: column[place].as_py() for name, column in found.columns.items()} for place in range(len(values))]
    return [None if place in found.reasons else row for place, row in enumerate(rows)], dict(found.reasons)


class TestJson:
    decoder = decoder_of(ValueSpec("json", json.dumps(JSON)))

    def test_types(self) -> None:
        value = {
            "n": 1,
            "x": 2,
            "s": "é",
            "at": "2026-01-01T10:00:00+01:00",
            "d": "2026-01-02",
            "b": "aGk=",
            "lines": [{"sku": "a", "any": {"z": [1]}}, None],
            "free": {"p": 1},
            "key": True,
            "tree": {"name": "a", "next": {"name": "b"}},
            "unknown": 5,
        }
        (row, empty, null), reasons = decoded(self.decoder, json.dumps(value).encode(), b"{}", None)
        assert not reasons
        assert row == {
            "n": 1,
            "x": 2.0,
            "s": "é",
            "at": datetime.datetime(2026, 1, 1, 9, tzinfo=datetime.UTC),
            "d": datetime.date(2026, 1, 2),
            "b": b"hi",
            "lines": [{"sku": "a", "any": '{"z":[1]}'}, None],
            "free": '{"p":1}',
            "key": True,
            "tree": {"name": "a", "next": '{"name":"b"}'},
        }
        assert empty == null == dict.fromkeys(row)

    @pytest.mark.parametrize("name", ["é", "größe", "名前", "😀 x", "naïve_and_long_field"])
    @pytest.mark.parametrize("is_escaped", [False, True])
    def test_names_that_are_not_ascii(self, name: str, is_escaped: bool) -> None:
        inner = {"type": "object", "properties": {name: {"type": "string"}, "any": {}}}
        fields = {name: {"type": "integer"}, "in": inner, "list": {"type": "array", "items": inner}}
        decoder = decoder_of(ValueSpec("json", json.dumps({"properties": fields}, ensure_ascii=is_escaped)))
        value = {name: 7, "in": {name: "a"}, "list": [{name: "b", "any": 1}, None]}
        (row,), reasons = decoded(decoder, json.dumps(value, ensure_ascii=is_escaped).encode())
        assert (reasons, list((row or {}).values())) == (
            {},
            [7, {name: "a", "any": None}, [{name: "b", "any": "1"}, None]],
        )

    @pytest.mark.parametrize(
        ("value", "reason"),
        [
            (b"nope", "malformed"),
            (b"", "truncated"),
            (b"\xff\xfe", "malformed"),
            (b"[1]", "Expected `object`"),
            (b'{"n": "1"}', "at `$.n`"),
            (b'{"n": 9223372036854775808}', "9223372036854775807"),
            (b'{"at": "yesterday"}', "at `$.at`"),
            (b'{"lines": [{"sku": 5}]}', "at `$.lines[0].sku`"),
            (b'{"free": ' + b"[" * 100_000, "it is nested too deeply"),
        ],
    )
    def test_bad_values(self, value: bytes, reason: str) -> None:
        rows, reasons = decoded(self.decoder, b'{"n": 1}', value, b'{"n": 2}')
        assert reason in reasons[1]
        assert [row and row["n"] for row in rows] == [1, None, 2]

    def test_schemas_by_id(self) -> None:
        newer = json.dumps({"properties": {"n": {"type": "string"}, "new": {"type": "integer"}}})
        older = json.dumps({"properties": {"n": {"type": "integer"}}})
        decoder = decoder_of(ValueSpec("json", older, {6: older, 7: newer}))
        rows, reasons = decoded(
            decoder,
            framed(6, b'{"n": 1}'),
            framed(7, b'{"new": 5}'),
            framed(7, b'{"n": "12"}'),
            framed(8, b'{"n": 3}'),
            framed(7, b""),
            b'{"n": 1}',
        )
        assert rows[:2] == [{"n": 1, "new": None}, {"n": None, "new": 5}]
        assert "column n is int64 by another schema: it is string" in reasons[2], "a text is no number"
        assert reasons[3] == "schema id 8 is not in table.schemas"
        assert reasons[5] == "it names no schema"
        assert reasons.keys() == {2, 3, 4, 5}

    @pytest.mark.parametrize(
        ("schema", "reason"),
        [
            ("", "need a schema"),
            ("{", "no JSON object"),
            ("[]", "no JSON object"),
            ('{"type": "string"}', "object with properties"),
            ('{"properties": {"a": {"$ref": "#/nowhere"}}}', "leads nowhere"),
            (json.dumps({"properties": {'a"b': {}}}), "name that can't be read"),
        ],
    )
    def test_schemas_that_make_no_sense(self, schema: str, reason: str) -> None:
        with pytest.raises(ConfigError, match=f"topic config table.value.schema: .*{reason}"):
            decoder_of(ValueSpec("json", schema))


class TestAvro:
    decoder = decoder_of(ValueSpec("avro", json.dumps(AVRO)))

    def test_types(self) -> None:
        (row, same), reasons = decoded(self.decoder, as_avro(ORDER), framed(9, as_avro(ORDER)))
        assert not reasons
        assert row == same
        assert row == {
            **ORDER,
            "mixed": "7",
            "tags": [("a", 1), ("b", None)],
            "lines": [{"sku": "00000000-0000-0000-0000-000000000005", "kind": "B"}],
        }

    def test_bad_values(self) -> None:
        good = as_avro(ORDER)
        rows, reasons = decoded(self.decoder, b"", good[:-1], good + b"x", b"\xff" * 30, good)
        assert [row is None for row in rows] == [True, True, True, True, False]
        assert "1 bytes are left over" in reasons[2]

    def test_ids_only(self) -> None:
        newer = {
            "type": "record",
            "name": "Order",
            "fields": [{"name": "id", "type": "int"}, {"name": "n", "type": "int"}],
        }
        schemas = {1: json.dumps({**newer, "fields": [{"name": "id", "type": "long"}]}), 2: json.dumps(newer)}
        decoder = decoder_of(ValueSpec("avro", "", schemas))
        older = {**newer, "fields": [{"name": "id", "type": "long"}]}
        rows, reasons = decoded(
            decoder,
            framed(2, as_avro({"id": 1, "n": 2}, newer)),
            framed(1, as_avro({"id": 1 << 40}, older)),
            framed(3, b"\2"),
            b"\2",
        )
        assert rows == [{"id": 1, "n": 2}, {"id": 1 << 40, "n": None}, None, None]
        assert reasons == {2: "schema id 3 is not in table.schemas", 3: "it names no schema"}

    def test_a_value_that_makes_sense_in_two_ways(self) -> None:
        schema = {"type": "record", "name": "r", "fields": [{"name": name, "type": "string"} for name in "abcde"]}
        body = as_avro({"a": "x", "b": "ab", "c": "cc", "d": "Ann", "e": "Smith"}, schema)
        in_two_ways = framed(2 * len(body), body)
        by_own = decoder_of(ValueSpec("avro", json.dumps(schema)))
        (row, plain), reasons = decoded(by_own, in_two_ways, body)
        assert (row, plain and plain["e"]) == (None, "Smith")
        assert "with and without the id" in reasons[0]
        by_id = decoder_of(ValueSpec("avro", "", {2 * len(body): json.dumps(schema)}))
        assert decoded(by_id, in_two_ways) == ([plain], {})

    def test_a_value_that_is_no_record(self) -> None:
        rows, _ = decoded(decoder_of(ValueSpec("avro", '"string"')), as_avro("x", "string"))
        assert rows == [{"value": "x"}]

    @pytest.mark.parametrize(
        "schema",
        [
            "{",
            '{"type": "record"}',
            '"nothing"',
            '{"type": "record", "name": "A", "fields": []}',
            '{"type": "bytes", "logicalType": "decimal"}',
            '{"type": "bytes", "logicalType": "decimal", "precision": "x"}',
            '{"type": "array"}',
        ],
    )
    def test_schemas_that_make_no_sense(self, schema: str) -> None:
        with pytest.raises(ConfigError, match=r"table\.value\.schema"):
            decoder_of(ValueSpec("avro", schema))


class TestProtobuf:
    decoder = decoder_of(ValueSpec("protobuf", PROTO))

    def order(self) -> bytes:
        schema = ProtobufSchema(PROTO)
        message = schema.new_message()
        message.id, message.note, message.kind, message.big, message.card = 5, "", 1, 2**64 - 1, "c"
        message.lines.add(sku="s")
        message.tags["a"] = 1
        message.at.seconds, message.at.nanos = 1_700_000_000, 5_000
        message.wrapped.value = 3
        message.parent.id = 6
        message.took.seconds = 2
        message.by_number[3].sku = "z"
        return bytes(message.SerializeToString())

    def test_types(self) -> None:
        (row, empty), reasons = decoded(self.decoder, self.order(), b"")
        assert not reasons
        assert row == {
            "id": 5,
            "note": "",
            "lines": [{"sku": "s", "size": "S"}],
            "tags": [("a", 1)],
            "at": datetime.datetime(2023, 11, 14, 22, 13, 20, 5, tzinfo=datetime.UTC),
            "card": "c",
            "cash": None,
            "kind": "B",
            "big": Decimal(2**64 - 1),
            "wrapped": 3,
            "parent": b"\x08\x06",
            "took": 2_000_000,
            "by_number": [(3, {"sku": "z", "size": "S"})],
            "day": False,
        }
        assert empty is not None
        assert (empty["id"], empty["note"], empty["lines"], empty["parent"]) == (0, None, [], None)

    def test_frames(self) -> None:
        body = self.order()
        rows, reasons = decoded(
            self.decoder,
            framed(7, body, b"\0"),
            framed(7, body, b"\2\0"),
            framed(7, body, b"\2\2"),
            framed(7, b"", b"\xff"),
            framed(7, b"", b"\x42" + b"\0" * 33),
            body[:-1],
        )
        assert [row and row["id"] for row in rows] == [5, 5, None, None, None, None]
        assert "the message at [1]" in reasons[2]
        assert "cut short" in reasons[3]
        assert "by 33 indexes" in reasons[4]

    def test_descriptors_of_protoc(self) -> None:
        found = descriptor_pb2.FileDescriptorSet(file=[parse_proto(PROTO)])
        spec = ValueSpec("protobuf", base64.b64encode(found.SerializeToString()).decode())
        assert [f.name for f in decoder_of(spec).fields] == [f.name for f in self.decoder.fields]

    @pytest.mark.parametrize(
        ("schema", "reason"),
        [
            ("message {", "ends within"),
            ("message A { string a = x; }", "line 1 .* no number"),
            ("\nmessage A { Nothing a = 1; }", "do not fit together"),
            ('import "other.proto"; message A { }', "not known here"),
            ("enum A { X = 0; }", "no message"),
            ("what", "can't be here"),
            ("message A { @ }", "line 1 is no .proto"),
            ("message A { optional group B = 1 { } }", "groups"),
            ('edition = "2023";', "not known here"),
            ("message A { }", "no field"),
            ("enum E { A = x; } message M { E e = 1; }", "ValueError"),
            ("message M { int32 a = 99999999999; }", "makes no sense"),
        ],
    )
    def test_schemas_that_make_no_sense(self, schema: str, reason: str) -> None:
        with pytest.raises(ConfigError, match=f"topic config table.value.schema: .*{reason}"):
            decoder_of(ValueSpec("protobuf", schema))


def nested(depth: int) -> bytes:
    return b'{"x":' + b'{"a":' * depth + b"1" + b"}" * depth + b"}"


@pytest.mark.parametrize(
    ("kind", "schema", "bad"),
    [
        # The last is too deep for every Python, those before for some of the steps of some.
        ("json", '{"properties": {"x": {}}}', [nested(depth) for depth in (*range(900, 1001, 5), 200_000)]),
        ("protobuf", "message M { required int32 a = 1; optional M m = 2; }", [b"\x08\x01\x12\x00", b""]),
    ],
)
def test_values_on_which_libraries_stumble(kind: Any, schema: str, bad: list[bytes]) -> None:
    found = decoder_of(ValueSpec(kind, schema)).decode(pa.array(bad, pa.binary()))
    assert found.reasons
    assert all(found.reasons.values())


def test_an_avro_record_without_fields_is_text() -> None:
    fields = [{"name": "a", "type": "long"}, {"name": "e", "type": {"type": "record", "name": "E", "fields": []}}]
    decoder = decoder_of(ValueSpec("avro", json.dumps({"type": "record", "name": "r", "fields": fields})))
    assert decoded(decoder, b"\x02") == ([{"a": 1, "e": "{}"}], {})


@pytest.mark.parametrize(
    ("kind", "schema"), [("json", json.dumps(JSON)), ("avro", json.dumps(AVRO)), ("protobuf", PROTO)]
)
def test_nothing_in_a_value_raises(kind: Any, schema: str) -> None:
    decoder = decoder_of(ValueSpec(kind, schema, {1: schema}))

    @given(st.lists(st.one_of(st.none(), st.binary(max_size=60), st.binary(max_size=40).map(lambda b: framed(1, b)))))
    def check(values: list[bytes | None]) -> None:
        rows, reasons = decoded(decoder, *values)
        assert all((row is None) == (place in reasons) for place, row in enumerate(rows))

    check()


def test_schemas_whose_fields_differ() -> None:
    """By case only, within a struct, and by width: all are there, and by their own names."""
    inner = {"type": "object", "properties": {"a": {"type": "integer"}}}
    more = {"type": "object", "properties": {"b b": {"type": "string"}, "a": {"type": "number"}}}
    schemas = {
        1: json.dumps({"properties": {"Foo": {}, "x": inner, "l": {"type": "array", "items": inner}}}),
        2: json.dumps({"properties": {"foo": {}, "x": more, "l": {"type": "array", "items": more}}}),
    }
    decoder = decoder_of(ValueSpec("json", "", schemas))
    assert [field.name for field in decoder.fields] == ["Foo", "x", "l", "foo"]
    rows, reasons = decoded(
        decoder,
        framed(1, b'{"Foo": 1, "x": {"a": 1}, "l": [{"a": 2}, null]}'),
        framed(2, b'{"foo": 2, "x": {"b b": "s"}, "l": [{"b b": "t"}]}'),
        framed(2, b'{"x": {"a": 0.5}}'),
    )
    assert rows[:2] == [
        {"Foo": "1", "x": {"a": 1, "b b": None}, "l": [{"a": 2, "b b": None}, None], "foo": None},
        {"Foo": None, "x": {"a": None, "b b": "s"}, "l": [{"a": None, "b b": "t"}], "foo": "2"},
    ]
    assert reasons.keys() == {2}
    assert "x.a is double" in reasons[2] or "a is double, not int64" in reasons[2]


def batch_of(*values: bytes | None) -> pa.RecordBatch:
    count = len(values)
    columns = [
        pa.array([1] * count, pa.int32()),
        pa.array(range(count), pa.int64()),
        pa.array([0] * count, pa.timestamp("us", "UTC")),
        pa.array([0] * count, pa.int32()),
        pa.nulls(count, typed([]).field("_catena").type.field("headers").type),
        pa.array([b"k"] * count, pa.binary()),
        pa.array(values, pa.binary()),
    ]
    return pa.RecordBatch.from_arrays(columns, list(READ))


def test_rows_of_a_table_whose_columns_have_other_types() -> None:
    decoder = decoder_of(ValueSpec("json", '{"properties": {"n": {"type": "string"}, "more": {"type": "integer"}}}'))
    table = typed([pa.field("n", pa.int64()), pa.field("gone", pa.string())])
    found = convert(batch_of(b'{"n": null}', b'{"n": "5"}', None, b"bad", b'{"more": 1}'), decoder, table)
    assert found.rows["n"].to_pylist() == [None] * 3
    assert found.rows["gone"].to_pylist() == [None] * 3
    assert [row["offset"] for row in found.rows["_catena"].to_pylist()] == [0, 2, 4]
    letters = found.dead_letters.to_pylist()
    assert [(each["_catena"]["offset"], each["value"], each["key"]) for each in letters] == [
        (1, b'{"n": "5"}', b"k"),
        (3, b"bad", b"k"),
    ]
    assert "column n is int64 in the table" in letters[0]["reason"]


def test_fields_go_to_the_columns_that_hold_them() -> None:
    inner = {"type": "object", "properties": {"a b": {"type": "integer"}, "a_b": {"type": "integer"}}}
    schema = {"properties": {"a_b": {"type": "integer"}, "key": {"type": "string"}, "x": inner}}
    decoder = decoder_of(ValueSpec("json", json.dumps(schema)))
    first = typed([pa.field("a b", pa.int64()), pa.field("x", pa.struct([pa.field("a b", pa.int64())]))])
    value = b'{"a_b": 1, "key": "k", "x": {"a b": 2, "a_b": 3}}'
    found = convert(batch_of(value, b'{"x": {}}', b"{}"), decoder, evolved(first, decoder.fields))
    assert [{name: row[name] for name in ("a_b", "a_b_", "key_", "x")} for row in found.rows.to_pylist()] == [
        {"a_b": None, "a_b_": 1, "key_": "k", "x": {"a_b": 2, "a_b_": 3}},
        {"a_b": None, "a_b_": None, "key_": None, "x": {"a_b": None, "a_b_": None}},
        {"a_b": None, "a_b_": None, "key_": None, "x": None},
    ]
    late = convert(batch_of(value, b'{"x": {"a b": 5}}'), decoder, first)
    assert late.rows["x"].to_pylist() == [{"a_b": 5}]
    assert "the column has no field a_b" in late.dead_letters["reason"][0].as_py(), "it is nobody else's"
