"""Readers for one version of a message, compiled from its class.

Nothing in a request is believed: a length is held against the bytes that are left before anything is made of it, and
an array's length against what its elements need at the least, so a request can't cost more memory than it has bytes
(times the size of a small object). Whatever is wrong with the bytes ends in a WireError, and in nothing else.

A message becomes straight-line code: neighbouring numbers are unpacked by one call of `struct`, nested messages by one
call each, and record batches are slices of the request.
"""

from __future__ import annotations

import struct
from collections.abc import Callable
from functools import cache
from typing import Any, TypeAlias

import msgspec

from catena.wire.code import Code
from catena.wire.fields import Field, fields_of, is_number, least_size_of_field, runs_of_numbers
from catena.wire.schema import Message

Reader: TypeAlias = Callable[[memoryview, int], tuple[Any, int]]


class WireError(Exception):
    """The bytes are not a request of the version that they claim to be."""


def read_message(message: type[Message], version: int, flexible: bool, data: memoryview, at: int) -> tuple[Any, int]:
    """The message at this place and where it ends. Raises WireError, whatever the bytes are."""
    try:
        return reader(message, version, flexible)(data, at)
    except WireError as error:
        raise WireError(f"{message.__name__} v{version}: {error}") from None
    except (struct.error, IndexError):
        raise WireError(f"{message.__name__} v{version}: it ends too early, after {len(data)} bytes") from None
    except UnicodeDecodeError as error:
        raise WireError(f"{message.__name__} v{version}: a string is not UTF-8: {error.reason}") from None


@cache
def reader(message: type[Message], version: int, flexible: bool) -> Reader:
    fields = fields_of(message, version)
    code = _ReaderCode(version, flexible)
    code.message(message, [field for field in fields if field.tag is None], [f for f in fields if f.tag is not None])
    read: Reader = code.build("read", f"read {message.__name__} v{version}")
    return read


def read_uvarint(data: memoryview, at: int) -> tuple[int, int]:
    value = shift = 0
    for _ in range(5):
        byte = data[at]
        at += 1
        value |= (byte & 0x7F) << shift
        if byte < 0x80:
            if value >= 1 << 32:
                break
            return value, at
        shift += 7
    raise WireError("a length or tag has more than 32 bits")


class _ReaderCode(Code):
    def message(self, message: type[Message], fields: list[Field], tagged: list[Field]) -> None:
        self.names |= {
            "WireError": WireError,
            "read_uvarint": read_uvarint,
            "skip_tags": skip_tags,
            "Message": message,
        }
        self.line(0, "def read(data, at):")
        self.line(1, "end = len(data)")
        for run in runs_of_numbers(fields):
            if len(run) > 1 or is_number(run[0]):
                self._numbers(run)
            else:
                self._value(1, run[0])
        if self.flexible:
            self._tags(tagged)
        arguments = [f"{field.name}=v_{field.name}" for field in (*fields, *(tagged if self.flexible else []))]
        self.line(1, f"return Message({', '.join(arguments)}), at")

    def _numbers(self, run: list[Field]) -> None:
        form = struct.Struct(">" + "".join(field.kind for field in run))
        names = "".join(f"v_{field.name}, " for field in run)
        self.line(1, f"{names}= {self.name('unpack', form.unpack_from)}(data, at)")
        self.line(1, f"at += {form.size}")

    def _value(self, depth: int, field: Field) -> None:
        target = f"v_{field.name}"
        if field.is_array:
            self._array(depth, field, target)
        elif field.kind == "message":
            self._nested(depth, field, target)
        elif field.kind == "uuid":
            self.line(depth, "if end - at < 16: raise WireError('it ends within an id')")
            self.line(depth, f"{target} = data[at:at + 16].hex()")
            self.line(depth, "at += 16")
        elif is_number(field):
            self.line(
                depth, f"({target},) = {self.name('unpack', struct.Struct('>' + field.kind).unpack_from)}(data, at)"
            )
            self.line(depth, f"at += {struct.calcsize('>' + field.kind)}")
        else:
            self._blob(depth, field, target)

    def _length(self, depth: int, field: Field, short: bool) -> None:
        """n, or -1 for null."""
        if self.flexible:
            self.line(depth, "n = data[at]")
            self.line(depth, "at += 1")
            self.line(depth, "if n >= 128: n, at = read_uvarint(data, at - 1)")
            self.line(depth, "n -= 1")
        else:
            form = struct.Struct(">h" if short else ">i")
            self.line(depth, f"(n,) = {self.name('unpack', form.unpack_from)}(data, at)")
            self.line(depth, f"at += {form.size}")
        if not field.is_nullable:
            self.line(depth, f"if n < 0: raise WireError('{field.name} is null')")

    def _blob(self, depth: int, field: Field, target: str) -> None:
        self._length(depth, field, field.kind == "string")
        self.line(
            depth, f"if n > end - at: raise WireError(f'{field.name} has {{n}} bytes, and {{end - at}} are left')"
        )
        make = {
            "string": "str(data[at:at + n], 'utf-8')",
            "bytes": "bytes(data[at:at + n])",
            "records": "[data[at:at + n]]",
        }[field.kind]
        if field.is_nullable:
            self.line(depth, f"if n < 0: {target} = None")
            self.line(depth, "else:")
            depth += 1
        self.line(depth, f"{target} = {make}")
        self.line(depth, "at += n")

    def _array(self, depth: int, field: Field, target: str) -> None:
        item = field._replace(is_array=False, is_nullable=False, name=f"{field.name}_item")
        least = least_size_of_field(item, self.version, self.flexible)
        self._length(depth, field, False)
        trouble = f"f'{field.name} has {{n}} entries, and {{end - at}} bytes are left'"
        self.line(depth, f"if n * {least} > end - at: raise WireError({trouble})")
        if field.is_nullable:
            self.line(depth, f"if n < 0: {target} = None")
            self.line(depth, "else:")
            depth += 1
        if is_number(item):
            self.line(
                depth,
                f"{target} = list({self.name('unpack_from', struct.unpack_from)}(f'>{{n}}{item.kind}', data, at))",
            )
            self.line(depth, f"at += n * {least}")
            return
        self.line(depth, f"{target} = []")
        self.line(depth, "for _ in range(n):")
        self._value(depth + 1, item)
        self.line(depth + 1, f"{target}.append(v_{item.name})")

    def _nested(self, depth: int, field: Field, target: str) -> None:
        assert field.nested is not None
        read = self.name("read_", reader(field.nested, self.version, self.flexible))
        if field.is_nullable:
            self.line(depth, "n = data[at]")
            self.line(depth, "at += 1")
            self.line(depth, f"if n == 255: {target} = None")
            self.line(depth, "else:")
            depth += 1
        self.line(depth, f"{target}, at = {read}(data, at)")

    def _tags(self, tagged: list[Field]) -> None:
        for field in tagged:
            factory = self.name("default", _copier(field.default))
            self.line(1, f"v_{field.name} = {factory}()")
        self.line(1, "count = data[at]")
        self.line(1, "at += 1")
        self.line(1, "if count:")
        if not tagged:
            self.line(2, "at = skip_tags(data, at - 1)")
            return
        self.line(2, "if count >= 128: count, at = read_uvarint(data, at - 1)")
        self.line(2, "if count * 2 > end - at: raise WireError('too many tagged fields')")
        self.line(2, "for _ in range(count):")
        self.line(3, "tag, at = read_uvarint(data, at)")
        self.line(3, "size, at = read_uvarint(data, at)")
        self.line(3, "if size > end - at: raise WireError('it ends within a tagged field')")
        self.line(3, "stop = at + size")
        for number, field in enumerate(tagged):
            self.line(3, f"{'elif' if number else 'if'} tag == {field.tag}:")
            self._value(4, field)
            self.line(4, f"if at != stop: raise WireError('tagged field {field.name} has a wrong size')")
        self.line(3, "at = stop")


def skip_tags(data: memoryview, at: int) -> int:
    """Tagged fields that this version does not know are left aside."""
    count, at = read_uvarint(data, at)
    if count * 2 > len(data) - at:
        raise WireError("too many tagged fields")
    for _ in range(count):
        _, at = read_uvarint(data, at)
        size, at = read_uvarint(data, at)
        if size > len(data) - at:
            raise WireError("it ends within a tagged field")
        at += size
    return at


def _copier(default: Any) -> Callable[[], Any]:
    if isinstance(default, Message):
        return lambda: msgspec.structs.replace(default)
    if isinstance(default, list):
        return list
    return lambda: default
