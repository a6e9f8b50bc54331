from __future__ import annotations

import inspect
import traceback

import pytest

from catena.wire.source import Source


def halver() -> Source:
    source = Source()
    with source.block("def halve(value):"):
        with source.block("if value % 2:"):
            source.line(f"raise {source.name('Odd', ArithmeticError)}(value)")
        source.line("return value // 2")
    return source


def test_what_is_written_is_run() -> None:
    halve = halver().build("halve", "halve")
    assert halve(8) == 4
    with pytest.raises(ArithmeticError):
        halve(3)


def test_what_was_made_can_be_looked_at() -> None:
    halve = halver().build("halve", "halve")
    assert inspect.getsource(halve).splitlines() == [
        "def halve(value):",
        "    if value % 2:",
        "        raise Odd_0(value)",
        "    return value // 2",
    ]
    with pytest.raises(ArithmeticError) as caught:
        halve(1)
    assert "raise Odd_0(value)" in "".join(traceback.format_exception(caught.value))


def test_names_are_never_given_twice() -> None:
    source = Source()
    names = [source.name("pack", value) for value in (1, 1, 2)]
    assert len(set(names)) == 3
    assert [source.names[name] for name in names] == [1, 1, 2]
