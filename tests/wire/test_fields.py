from __future__ import annotations

import random
from typing import Annotated

import msgspec
import pytest

from catena.wire.fields import Default, Field, defaults_of, fields_of, is_number, least_size
from catena.wire.schema import (
    NO_ID,
    Bool,
    Bytes,
    Int16,
    Int32,
    Int64,
    Message,
    Records,
    String,
    Uuid,
    nullable,
    since,
    tagged,
    until,
)
from tests.wire.fuzz import random_message
from tests.wire.messages import CASES, Case


class Inner(Message):
    offset: Int64 = 0
    flag: Annotated[Bool, since(2)] = False


class Outer(Message):
    old: Annotated[Int16, until(1)] = 5
    middle: Annotated[Int32, since(1, 2)] = 6
    name: Annotated[String | None, nullable(2)] = ""
    inner: Inner = msgspec.field(default_factory=Inner)
    maybe: Annotated[Inner | None, since(3), nullable()] = None
    inners: Annotated[list[Inner] | None, nullable(1)] = msgspec.field(default_factory=list)
    numbers: list[Int32] = msgspec.field(default_factory=list)
    id: Uuid = NO_ID
    blob: Bytes = b""
    records: Annotated[Records | None, nullable()] = ()
    extra: Annotated[String | None, tagged(4, 3), nullable()] = None


def field(version: int, name: str) -> Field:
    (found,) = (field for field in fields_of(Outer, version) if field.name == name)
    return found


def test_each_version_has_its_fields_in_order() -> None:
    always = ["name", "inner", "inners", "numbers", "id", "blob", "records"]
    names = [[field.name for field in fields_of(Outer, version)] for version in range(4)]
    assert names[0] == ["old", *always]
    assert names[1] == ["old", "middle", *always]
    assert names[2] == ["middle", *always]
    assert names[3] == ["name", "inner", "maybe", *always[2:], "extra"]


def test_what_a_field_is() -> None:
    assert field(0, "old") == Field("old", "h", None, False, False, None)
    assert field(0, "name") == Field("name", "string", None, False, False, None)
    assert field(2, "name") == Field("name", "string", None, False, True, None)
    assert field(0, "inner") == Field("inner", "message", Inner, False, False, None)
    assert field(3, "maybe") == Field("maybe", "message", Inner, False, True, None)
    assert field(0, "inners") == Field("inners", "message", Inner, True, False, None)
    assert field(1, "inners") == Field("inners", "message", Inner, True, True, None)
    assert field(0, "numbers") == Field("numbers", "i", None, True, False, None)
    assert field(0, "records") == Field("records", "records", None, False, True, None)
    assert field(3, "extra") == Field("extra", "string", None, False, True, 4)


def test_numbers() -> None:
    assert [each.name for each in fields_of(Outer, 1) if is_number(each)] == ["old", "middle"]


def test_defaults_of_every_field_in_the_order_of_the_class() -> None:
    defaults = defaults_of(Outer)
    assert tuple(defaults) == Outer.__struct_fields__
    assert defaults["old"] == Default(5, None)
    assert defaults["maybe"] == Default(None, None)
    assert defaults["inner"].factory is Inner
    assert defaults["inners"].factory is list
    assert {name: default.make() for name, default in defaults.items()} == msgspec.structs.asdict(Outer())


def test_least_size() -> None:
    assert least_size(Inner, 0, False) == 8
    assert least_size(Inner, 2, True) == 8 + 1 + 1
    assert least_size(Outer, 0, False) == 2 + 2 + 8 + 4 + 4 + 16 + 4 + 4
    assert least_size(Outer, 3, True) == 1 + 10 + 1 + 1 + 1 + 16 + 1 + 1 + 1


@pytest.mark.parametrize("case", CASES, ids=str)
def test_no_message_is_smaller_than_its_least_size(case: Case) -> None:
    least = least_size(case.message, case.version, case.flexible)
    sizes = [len(case.write(random_message(random.Random(seed), case.message, case.version))) for seed in range(20)]
    assert least <= min(*sizes, len(case.write(case.message())))
