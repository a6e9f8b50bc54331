"""Writers for one version of a message, compiled from its class.

What is written is gathered in a list and joined once; record batches are passed on as they are, between what was
joined before and after them. As in `reader`, the messages inside of a message are written out in place, and
neighbouring numbers are packed by one call. In the code

    put, out            appends to what is gathered, and the list of it
    parts               the buffers that are done
    v3                  the third message
    a, n                the value that is written, and its length

The code believes what it is given; where a value can't be written, `write_message` finds out which one it was.
"""

from __future__ import annotations

import struct
from collections.abc import Callable
from functools import cache
from typing import Any, TypeAlias

from catena.types import Buffer
from catena.wire.fields import Field, defaults_of, fields_of, is_number
from catena.wire.schema import MAX_STRING_BYTES, Message
from catena.wire.source import Source

Writer: TypeAlias = Callable[[Any, list[Buffer], list[Buffer]], None]
"""Appends to the second; where it has to pass buffers on, that is joined, emptied, and put into the third with them."""

SHORT_LENGTH = [bytes([n + 1]) for n in range(127)]
"""The compact length n, at place n."""
join = bytearray().join
"""To a bytearray, since what is in front of the first bytes is known last."""
UNROLLED = 4
"""Arrays of fewer numbers are written with no call that takes a variable number of arguments: those are slow."""


class Unwritable(ValueError):
    """A message that has no bytes in this version, such as one with a string that is too long: a mistake of ours."""


def write_message(message: Message, version: int, flexible: bool, before: list[Buffer]) -> list[Buffer]:
    """The buffers of a message, with these bytes in front; the first buffer can be changed. Raises Unwritable."""
    parts: list[Buffer] = []
    try:
        writer(type(message), version, flexible)(message, before, parts)
        parts.append(join(before))
    except (struct.error, AttributeError, TypeError, ValueError) as error:
        trouble = _trouble(message, version) or str(error)
        raise Unwritable(f"{type(message).__name__} v{version}: {trouble}") from error
    return parts


@cache
def writer(message: type[Message], version: int, flexible: bool) -> Writer:
    source = _WriterSource(version, flexible)
    with source.block("def write(v1, out, parts):"):
        source.line("put = out.append")
        source.message(message)
    write: Writer = source.build("write", f"write {message.__name__} v{version}")
    return write


@cache
def tags_writer(message: type[Message], version: int) -> Callable[[Any], bytes]:
    """Writes the tagged fields that differ from their defaults."""
    source = _WriterSource(version, True)
    with source.block("def write_tags(v1):"):
        source.tagged_fields(message)
    write: Callable[[Any], bytes] = source.build("write_tags", f"write tags of {message.__name__} v{version}")
    return write


def uvarint(value: int) -> bytes:
    out = bytearray()
    while value >= 0x80:
        out.append(value & 0x7F | 0x80)
        value >>= 7
    out.append(value)
    return bytes(out)


def string_length(value: int) -> bytes:
    if value > MAX_STRING_BYTES + 1:
        raise ValueError(f"a string has {value - 1} bytes; it may have {MAX_STRING_BYTES}")
    return uvarint(value)


def id_bytes(digits: str) -> bytes:
    value = bytes.fromhex(digits)
    if len(value) != 16:
        raise ValueError(f"an id has 32 digits, not {len(digits)}")
    return value


class _WriterSource(Source):
    def __init__(self, version: int, flexible: bool) -> None:
        super().__init__()
        self._version, self._flexible = version, flexible
        self._messages = 1
        self._run: list[tuple[str, str]] = []
        """Formats and values of what is packed together, by the next `_pack`."""
        self.names |= {
            "SHORT_LENGTH": SHORT_LENGTH,
            "join": join,
            "uvarint": uvarint,
            "string_length": string_length,
            "id_bytes": id_bytes,
        }

    def message(self, message: type[Message]) -> None:
        """Writes the message that has the last name that was given away."""
        this = f"v{self._messages}"
        fields = fields_of(message, self._version)
        plain = [field for field in fields if field.tag is None]
        tagged = [field for field in fields if field.tag is not None]
        # The last byte of most messages says that there are no tagged fields: it is packed with what is before it.
        no_tags = "x" if self._flexible and not tagged else ""
        for field in plain:
            if field is plain[-1] and field.is_array and len(field.kind) == 1 and not field.is_nullable:
                self._value(field, f"{this}.{field.name}", after=no_tags)
                no_tags = ""
            else:
                self._value(field, f"{this}.{field.name}")
        if no_tags:
            self._run.append((no_tags, ""))
        self._pack()
        if self._flexible and tagged:
            defaults = [(field, self._default(message, field)) for field in tagged]
            unset = " and ".join(f"{this}.{field.name} == {default}" for field, default in defaults)
            write = self.name("write_tags", tags_writer(message, self._version))
            self.line(f"put(b'\\0' if {unset} else {write}({this}))")

    def tagged_fields(self, message: type[Message]) -> None:
        self.line("count, tags, parts = 0, b'', []")
        fields = [field for field in fields_of(message, self._version) if field.tag is not None]
        for field in sorted(fields, key=lambda field: field.tag or 0):
            assert field.kind != "records", f"{field.name}: record batches can't be passed on from within a tag"
            with self.block(f"if v1.{field.name} != {self._default(message, field)}:"):
                self.line("out = []")
                self.line("put = out.append")
                self._value(field, f"v1.{field.name}")
                self._pack()
                self.line("a = b''.join(out)")
                self.line("count += 1")
                self.line(f"tags += {uvarint(field.tag or 0)!r} + uvarint(len(a)) + a")
        self.line("return uvarint(count) + tags")

    def _default(self, message: type[Message], field: Field) -> str:
        return self.name("default", defaults_of(message)[field.name].make())

    def _pack(self) -> None:
        form = struct.Struct(">" + "".join(form for form, _ in self._run))
        values = [value for _, value in self._run if value]
        if all(value.isdecimal() for value in values):
            if form.size:
                self.line(f"put({form.pack(*map(int, values))!r})")
        else:
            self.line(f"put({self.name('pack', form.pack)}({', '.join(values)}))")
        self._run = []

    def _value(self, field: Field, value: str, after: str = "") -> None:
        """`after` is a format that is packed behind an array of numbers."""
        if is_number(field):
            self._run.append((_form_of(field), value))
        elif field.kind == "uuid" and not field.is_array:
            self._run.append(("16s", f"id_bytes({value})"))
        elif not field.is_nullable:
            self.line(f"a = {value}")
            self._present(field, after)
        else:
            self.line(f"a = {value}")
            run = self._run
            with self.block("if a is None:"):
                self._run = [*run, self._null(field)]
                self._pack()
            with self.block("else:"):
                self._run = run
                self._present(field, after)
                self._pack()

    def _null(self, field: Field) -> tuple[str, str]:
        if field.nested is not None and not field.is_array:
            return "b", "-1"
        return ("B", "0") if self._flexible else (_long_length(field), "-1")

    def _present(self, field: Field, after: str) -> None:
        if field.is_array:
            self._array(field, after)
        elif field.nested is not None:
            if field.is_nullable:
                self._run.append(("b", "1"))
            self._messages += 1
            self.line(f"v{self._messages} = a")
            self.message(field.nested)
        elif field.kind == "records":
            self.line("n = sum(map(len, a))")
            self._length(field)
            with self.block("if n:"):
                self.line("parts.append(join(out))")
                self.line("parts.extend(a)")
                self.line("out.clear()")
        else:
            if field.kind == "string":
                self.line("a = a.encode()")
            self.line("n = len(a)")
            self._length(field)
            self.line("put(a)")

    def _length(self, field: Field) -> None:
        """Writes n, together with the run."""
        if not self._flexible:
            self._run.append((_long_length(field), "n"))
            self._pack()
            return
        run = self._run
        with self.block(f"if n < {len(SHORT_LENGTH)}:"):
            self._run = [*run, ("B", "n + 1")]
            if run:
                self._pack()
            else:
                self.line("put(SHORT_LENGTH[n])")
        with self.block("else:"):
            self._run = run
            self._pack()
            self.line(f"put({'string_length' if _is_string(field) else 'uvarint'}(n + 1))")
        self._run = []

    def _array(self, field: Field, after: str) -> None:
        item = field._replace(is_array=False, is_nullable=False)
        self.line("n = len(a)")
        if is_number(item):
            self._numbers(field, after)
            return
        self._length(field)
        if item.nested is not None:
            self._messages += 1
            with self.block(f"for v{self._messages} in a:"):
                self.message(item.nested)
            return
        with self.block("for item in a:"):
            self._value(item, "item")
            self._pack()

    def _numbers(self, field: Field, after: str) -> None:
        """A few numbers are packed together with the run and their count: most arrays are the replicas of something."""
        run, form = self._run, _form_of(field)
        for n in range(UNROLLED):
            with self.block(f"{'elif' if n else 'if'} n == {n}:"):
                count = ("B", str(n + 1)) if self._flexible else ("i", str(n))
                self._run = [*run, count, *((form, f"a[{i}]") for i in range(n)), (after, "")]
                self._pack()
        with self.block("else:"):
            self._run = run
            self._length(field)
            self.line(f"put({self.name('pack', struct.pack)}(f'>{{n}}{form}{after}', *a))")
        self._run = []


def _form_of(field: Field) -> str:
    """Of a number; not "?", which takes None for False."""
    return "B" if field.kind == "?" else field.kind


def _is_string(field: Field) -> bool:
    return field.kind == "string" and not field.is_array


def _long_length(field: Field) -> str:
    return "h" if _is_string(field) else "i"


def _trouble(message: Message, version: int) -> str | None:
    """Which value can't be written; None if each can by itself."""
    for field in fields_of(type(message), version):
        value = getattr(message, field.name)
        trouble = _trouble_of_array(field, value, version) if field.is_array else _trouble_of(field, value, version)
        if trouble is not None:
            return field.name + trouble
    return None


def _trouble_of_array(field: Field, value: Any, version: int) -> str | None:
    if value is None and field.is_nullable:
        return None
    if not isinstance(value, list | tuple):
        return _is_a(value)
    item = field._replace(is_array=False, is_nullable=False)
    troubles = ((place, _trouble_of(item, each, version)) for place, each in enumerate(value))
    return next((f"[{place}]{trouble}" for place, trouble in troubles if trouble is not None), None)


def _trouble_of(field: Field, value: Any, version: int) -> str | None:
    if value is None and field.is_nullable:
        return None
    if field.nested is not None:
        if not isinstance(value, field.nested):
            return _is_a(value)
        inner = _trouble(value, version)
        return None if inner is None else f".{inner}"
    kinds: dict[str, Any] = {"string": str, "uuid": str, "bytes": Buffer, "records": list | tuple}
    if not isinstance(value, kinds.get(field.kind, int | float)):
        return _is_a(value)
    try:
        if field.kind == "string" and len(value.encode()) > MAX_STRING_BYTES:
            return f" has {len(value.encode())} bytes; a string may have {MAX_STRING_BYTES}"
        if field.kind == "uuid":
            id_bytes(value)
        elif field.kind == "records":
            join(value)
        elif is_number(field):
            struct.pack(">" + field.kind, value)
    except (struct.error, TypeError, ValueError) as error:
        return f" can't be written: {error}"
    return None


def _is_a(value: Any) -> str:
    return " is None" if value is None else f" is of type {type(value).__name__}"
