"""Writers for one version of a message, compiled from its class; record batches are passed on as they are."""

from __future__ import annotations

import struct
from collections.abc import Callable
from functools import cache
from typing import Any, TypeAlias

from catena.types import Buffer
from catena.wire.code import Code
from catena.wire.fields import Field, fields_of, is_number, runs_of_numbers
from catena.wire.schema import Message

Writer: TypeAlias = Callable[[bytearray, Any, list[Buffer]], bytearray]
"""Appends to the bytearray; where it has to pass buffers on it appends to the list and goes on with a new one."""

SMALL = [bytes([n]) for n in range(128)]


@cache
def writer(message: type[Message], version: int, flexible: bool) -> Writer:
    fields = fields_of(message, version)
    code = _WriterCode(version, flexible)
    code.message([field for field in fields if field.tag is None], [f for f in fields if f.tag is not None])
    write: Writer = code.build("write", f"write {message.__name__} v{version}")
    return write


def uvarint(value: int) -> bytes:
    if value < 0x80:
        return SMALL[value]
    out = bytearray()
    while value >= 0x80:
        out.append(value & 0x7F | 0x80)
        value >>= 7
    out.append(value)
    return bytes(out)


class _WriterCode(Code):
    def message(self, fields: list[Field], tagged: list[Field]) -> None:
        self.names |= {"SMALL": SMALL, "uvarint": uvarint}
        self.line(0, "def write(out, m, parts):")
        for run in runs_of_numbers(fields):
            if len(run) > 1 or is_number(run[0]):
                pack = self.name("pack", struct.Struct(">" + "".join(field.kind for field in run)).pack)
                self.line(1, f"out += {pack}({', '.join(f'm.{field.name}' for field in run)})")
            else:
                self._value(1, run[0], f"m.{run[0].name}")
        if self.flexible:
            self._tags(tagged)
        self.line(1, "return out")

    def _value(self, depth: int, field: Field, source: str) -> None:
        if field.is_array:
            self._array(depth, field, source)
        elif field.kind == "message":
            self._nested(depth, field, source)
        elif field.kind == "uuid":
            self.line(depth, f"out += {self.name('fromhex', bytes.fromhex)}({source})")
        elif is_number(field):
            self.line(depth, f"out += {self.name('pack', struct.Struct('>' + field.kind).pack)}({source})")
        else:
            self._blob(depth, field, source)

    def _length(self, depth: int, short: bool, value: str) -> None:
        """`value` is -1 for null."""
        if self.flexible:
            self.line(depth, f"n = {value} + 1")
            self.line(depth, "out += SMALL[n] if n < 128 else uvarint(n)")
        else:
            self.line(depth, f"out += {self.name('pack', struct.Struct('>h' if short else '>i').pack)}({value})")

    def _null(self, depth: int, field: Field, source: str, short: bool) -> int:
        if not field.is_nullable:
            return depth
        self.line(depth, f"if {source} is None:")
        self._length(depth + 1, short, "-1")
        self.line(depth, "else:")
        return depth + 1

    def _blob(self, depth: int, field: Field, source: str) -> None:
        short = field.kind == "string"
        depth = self._null(depth, field, source, short)
        match field.kind:
            case "string":
                self.line(depth, f"b = {source}.encode()")
                self._length(depth, short, "len(b)")
                self.line(depth, "out += b")
            case "bytes":
                self._length(depth, short, f"len({source})")
                self.line(depth, f"out += {source}")
            case _:
                self._length(depth, short, f"sum(map(len, {source}))")
                self.line(depth, f"if {source}:")
                self.line(depth + 1, "parts.append(out)")
                self.line(depth + 1, f"parts.extend({source})")
                self.line(depth + 1, "out = bytearray()")

    def _array(self, depth: int, field: Field, source: str) -> None:
        item = field._replace(is_array=False, is_nullable=False)
        depth = self._null(depth, field, source, False)
        self._length(depth, False, f"len({source})")
        if is_number(item):
            pack = self.name("pack", struct.pack)
            self.line(depth, f"out += {pack}(f'>{{len({source})}}{item.kind}', *{source})")
            return
        self.line(depth, f"for i_{field.name} in {source}:")
        self._value(depth + 1, item, f"i_{field.name}")

    def _nested(self, depth: int, field: Field, source: str) -> None:
        assert field.nested is not None
        write = self.name("write_", writer(field.nested, self.version, self.flexible))
        if field.is_nullable:
            self.line(depth, f"if {source} is None: out += b'\\xff'")
            self.line(depth, "else:")
            depth += 1
            self.line(depth, "out += b'\\x01'")
        self.line(depth, f"out = {write}(out, {source}, parts)")

    def _tags(self, tagged: list[Field]) -> None:
        if not tagged:
            self.line(1, "out += b'\\0'")
            return
        self.line(1, "whole, tags = out, []")
        for field in sorted(tagged, key=lambda field: field.tag or 0):
            self.line(1, f"if m.{field.name} != {self.name('default', field.default)}:")
            self.line(2, "out = bytearray()")
            self._value(2, field, f"m.{field.name}")
            self.line(2, f"tags.append(({field.tag}, out))")
        self.line(1, "out = whole")
        self.line(1, "out += uvarint(len(tags))")
        self.line(1, "for tag, value in tags:")
        self.line(2, "out += uvarint(tag) + uvarint(len(value)) + value")
