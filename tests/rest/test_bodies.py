"""JSON to requests: what is wrong is said, with its place."""

from __future__ import annotations

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from catena.rest.bodies import MAX_RECORDS, ConsumeRequest, InvalidBody, ProduceRequest, decode

PRODUCE = msgspec.json.Decoder(ProduceRequest)
CONSUME = msgspec.json.Decoder(ConsumeRequest)
JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner, max_size=3),
    max_leaves=10,
)


def produce(records: str, topic: str = '"t"', partition: str = "0") -> bytes:
    body = f'{{"topic_partitions": [{{"topic": {topic}, "partition": {partition}, "records": {records}}}]}}'
    return body.encode()


@pytest.mark.parametrize(
    ("body", "at", "words"),
    [
        (b"", "", "ends too early, at byte 0"),
        (b"{", "", "ends too early, at byte 1"),
        (rb'{"topic_partitions": [{"topic": "\ud800"}]}', "", "half a surrogate pair"),
        (b'{"topic_partitions": [}', "", "byte 22"),
        (b"\xff", "", ""),
        (b'{"topic_partitions": [{"topic": "\xff"}]}', "", ""),
        (b"[" * 100_000, "", "Expected `object`, got `array`"),
        (b"[]", "", "Expected `object`, got `array`"),
        (b"{}", "", "topic_partitions"),
        (b'{"topic_partitions": []}', "topic_partitions", ">= 1"),
        (b'{"topic_partitions": 1}', "topic_partitions", "array"),
        (b'{"topic_partitions": [1]}', "topic_partitions[0]", "object"),
        (b'{"topic_partitions": [{}], "more": 1}', "topic_partitions[0]", "topic"),
        (produce("[]"), "topic_partitions[0].records", ">= 1"),
        (produce("[" + '"",' * MAX_RECORDS + '""]'), "topic_partitions[0].records", "<= 100000"),
        (produce("null"), "topic_partitions[0].records", "array"),
        (produce('["a"]', topic='""'), "topic_partitions[0].topic", ">= 1"),
        (produce('["a"]', topic="1"), "topic_partitions[0].topic", "str"),
        (produce('["a"]', partition="-1"), "topic_partitions[0].partition", ">= 0"),
        (produce('["a"]', partition='"0"'), "topic_partitions[0].partition", "int"),
        (produce('["a"]', partition="true"), "topic_partitions[0].partition", "int"),
        (produce('["a"]', partition=str(2**31)), "topic_partitions[0].partition", "<="),
        (produce('["a", "b", "c", 1]'), "topic_partitions[0].records[3]", "str"),
        (produce('["a", null]'), "topic_partitions[0].records[1]", "str"),
        (produce('[{"base64": "A"}]'), "topic_partitions[0].records[0].base64", "base64"),
        (produce('[{"base64": "A==="}]'), "topic_partitions[0].records[0].base64", "base64"),
        (produce('[{"base64": "AA=A"}]'), "topic_partitions[0].records[0].base64", "base64"),
        (produce('[{"base64": "AAE"}]'), "topic_partitions[0].records[0].base64", "base64"),
        (produce('[{"base64": "A A="}]'), "topic_partitions[0].records[0].base64", "base64"),
        (produce('[{"base64": 1}]'), "topic_partitions[0].records[0].base64", "bytes"),
        (produce('[{"base46": ""}]'), "topic_partitions[0].records[0]", "base46"),
        (produce('[{"value": "a", "timestamp": -1}]'), "topic_partitions[0].records[0].timestamp", ">= 0"),
        (produce('[{"value": "a", "headers": {}}]'), "topic_partitions[0].records[0].headers", "array"),
    ],
    ids=lambda part: str(part)[:80],
)
def test_what_is_wrong_and_where(body: bytes, at: str, words: str) -> None:
    with pytest.raises(InvalidBody) as caught:
        decode(PRODUCE, body)
    assert caught.value.at == at
    assert words in str(caught.value)
    assert str(caught.value).startswith(f"{at}: " if at else "")


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("max_wait_ms", -1),
        ("max_wait_ms", 300_001),
        ("min_bytes", -1),
        ("max_bytes", "1"),
        ("details", 1),
        ("max_wait", 1),
    ],
)
def test_controls_of_consume_are_bounded(field: str, value: object) -> None:
    body = {"topic_partitions": [{"topic": "t", "partition": 0, "fetch_offset": 0}], field: value}
    with pytest.raises(InvalidBody):
        decode(CONSUME, msgspec.json.encode(body))


@pytest.mark.parametrize("decoder", [PRODUCE, CONSUME], ids=["produce", "consume"])
@given(body=st.binary() | JSON.map(msgspec.json.encode))
def test_garbage_is_refused(decoder: msgspec.json.Decoder[object], body: bytes) -> None:
    with pytest.raises(InvalidBody):
        decode(decoder, body)


@pytest.mark.parametrize("number", ["7.0", "7e0", "0.7E+1"])
def test_integers_may_be_written_as_json_has_them(number: str) -> None:
    assert decode(PRODUCE, produce('["a", {"base64": "AAE="}]', partition=number)).topic_partitions[0].partition == 7


@pytest.mark.parametrize("number", ["7.5", "1e400", "-1.0", "1e300"])
def test_others_are_no_integers(number: str) -> None:
    with pytest.raises(InvalidBody):
        decode(PRODUCE, produce('["a"]', partition=number))
