"""Every message of every version that is advertised, and Hypothesis strategies for their values."""

from __future__ import annotations

from functools import cache
from typing import Any, NamedTuple

from hypothesis import strategies as st

from catena.types import Buffer
from catena.wire.apis import APIS, Api
from catena.wire.codes import Code
from catena.wire.fields import Field, fields_of
from catena.wire.reader import read_message
from catena.wire.schema import NO_ID, Message
from catena.wire.writer import write_message


class Case(NamedTuple):
    api: Api
    version: int
    message: type[Message]

    @property
    def flexible(self) -> bool:
        return self.api.is_flexible(self.version)

    def __str__(self) -> str:
        return f"{self.message.__name__}-v{self.version}"

    def write(self, message: Message) -> bytes:
        return b"".join(write_message(message, self.version, self.flexible, []))

    def read(self, data: Buffer) -> tuple[Any, int]:
        return read_message(self.message, self.version, self.flexible, memoryview(data), 0)


REQUESTS = [Case(api, v, api.request) for api in APIS.values() for v in range(api.first, api.last + 1)]
RESPONSES = [Case(api, v, api.response) for api in APIS.values() for v in range(api.first, api.last + 1)]
CASES = [*REQUESTS, *RESPONSES]

BITS = {"b": 8, "h": 16, "i": 32, "q": 64}
END_OF_TIME = 253_402_300_799
"""The last second that Python's datetime knows. It stands for some numbers in kio, which rounds their milliseconds."""

texts = st.text(st.characters(exclude_categories=["Cs"]), max_size=8) | st.sampled_from(["é" * 70, "x" * 300])
blobs = st.binary(max_size=16) | st.sampled_from([b"y" * 127, b"z" * 20_000])
ids = st.just(NO_ID) | st.binary(min_size=16, max_size=16).map(bytes.hex)


@cache
def messages(message: type[Message], version: int) -> st.SearchStrategy[Any]:
    """Fields that this version lacks have their defaults."""
    return st.builds(message, **{field.name: _field(field, version) for field in fields_of(message, version)})


def _field(field: Field, version: int) -> st.SearchStrategy[Any]:
    values = _value(field, version)
    if field.is_array:
        values = st.lists(values, max_size=20 if field.nested is None else 3)
    return st.none() | values if field.is_nullable else values


def _value(field: Field, version: int) -> st.SearchStrategy[Any]:
    if field.nested is not None:
        return messages(field.nested, version)
    if field.name.endswith("error_code"):
        return st.sampled_from([int(code) for code in Code])
    if field.kind == "q" and field.name.endswith(("_ms", "timestamp")):
        return st.just(-1) | st.integers(0, END_OF_TIME).map(lambda seconds: seconds * 1000)
    if field.kind in BITS:
        limit = 1 << BITS[field.kind] - 1
        return st.integers(-limit, limit - 1)
    others: dict[str, st.SearchStrategy[Any]] = {
        "?": st.booleans(),
        "uuid": ids,
        "string": texts,
        "bytes": blobs,
        "records": blobs.map(lambda blob: [blob]),
    }
    return others[field.kind]
