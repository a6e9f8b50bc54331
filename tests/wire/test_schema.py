from __future__ import annotations

from collections.abc import Iterator

import msgspec
import pytest

from catena.wire.apis import APIS
from catena.wire.fields import fields_of
from catena.wire.schema import LAST, Message, Nullable, Tag, Versions, nullable, since, tagged, until


def test_markers() -> None:
    assert since(3) == Versions(3, LAST)
    assert since(3, 5) == Versions(3, 5)
    assert until(5) == Versions(0, 5)
    assert nullable() == Nullable(0)
    assert nullable(2) == Nullable(2)
    assert tagged(1) == Tag(1, 0)
    assert tagged(1, 9) == Tag(1, 9)


def classes(message: type[Message]) -> Iterator[type[Message]]:
    yield message
    for version in range(20):
        for field in fields_of(message, version):
            if field.nested is not None:
                yield from classes(field.nested)


ALL = sorted({each for api in APIS.values() for top in (api.request, api.response) for each in classes(top)}, key=str)


@pytest.mark.parametrize("message", ALL, ids=lambda message: f"{message.__module__.split('.')[-1]}.{message.__name__}")
def test_no_two_messages_share_what_can_be_changed(message: type[Message]) -> None:
    one, other = message(), message()
    for name in message.__struct_fields__:
        value = getattr(one, name)
        if isinstance(value, list | msgspec.Struct):
            assert value is not getattr(other, name), name
        else:
            assert isinstance(value, int | str | bytes | tuple | None), name
