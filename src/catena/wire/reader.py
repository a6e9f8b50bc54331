"""Readers for one version of a message, compiled from its class.

Nothing in a request is believed: a length is held against the bytes that are left before anything is made of it, and
an array's length against what its elements need at the least. A small object can cost fifty times the bytes that ask
for it, and some time, so that all arrays and tagged fields of a message together may have MAX_ENTRIES entries. So no
request costs much more than its own bytes. Whatever is wrong with the bytes ends in a WireError, and in nothing else.

A message becomes straight-line code, with the messages inside of it written out in place. Numbers, ids and the length
of what comes next are unpacked together by one call of `struct`; record batches are slices of the request. In the code

    data, at, end       the bytes, the place in them, their number
    n, stop             the length that was read last, and where that value ends
    room                how many more entries arrays and tagged fields may have
    v3_name             the field `name` of the third message

What ends too early is found by `struct` and by indexing; `read_message` turns their errors into a WireError.
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import cache
from typing import Any, TypeAlias

from catena.wire.fields import Default, Field, defaults_of, fields_of, is_number, least_size_of_field
from catena.wire.schema import MAX_STRING_BYTES, Message
from catena.wire.source import Source

Reader: TypeAlias = Callable[[memoryview, int], tuple[Any, int]]

MAX_ENTRIES = 1 << 18
FEW = 17
"""Arrays of fewer numbers are unpacked by formats that are ready made."""


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
    source = _ReaderSource(version, flexible)
    with source.block("def read(data, at):"):
        source.line(f"end, room = len(data), {MAX_ENTRIES}")
        value = source.message(message)
        source.line(f"return {value}, at")
    read: Reader = source.build("read", f"read {message.__name__} v{version}")
    return read


@cache
def tags_reader(message: type[Message], version: int) -> Callable[[memoryview, int, int], tuple[Any, ...]]:
    """Reads all tagged fields of this message; returns their values, where they end, and the room that is left."""
    source = _ReaderSource(version, True)
    with source.block("def read_tags(data, at, room):"):
        source.line("end = len(data)")
        source.tagged_fields(message)
    read: Callable[[memoryview, int, int], tuple[Any, ...]] = source.build(
        "read_tags", f"read tags of {message.__name__} v{version}"
    )
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


def read_string_length(data: memoryview, at: int) -> tuple[int, int]:
    """The compact length of a string, of which Kafka takes no longer ones in any version."""
    value, at = read_uvarint(data, at)
    if value > MAX_STRING_BYTES + 1:
        raise WireError(f"a string of {value - 1} bytes; it may have {MAX_STRING_BYTES}")
    return value, at


def read_tag_count(data: memoryview, at: int, room: int) -> tuple[int, int, int]:
    """The number of tagged fields, where they begin, and the room that they leave."""
    count, at = read_uvarint(data, at)
    if count * 2 > len(data) - at:
        raise WireError(f"{count} tagged fields, and {len(data) - at} bytes are left")
    if count > room:
        raise WireError(f"with tagged fields it has more than {MAX_ENTRIES} entries")
    return count, at, room - count


def skip_tags(data: memoryview, at: int, room: int) -> tuple[int, int]:
    """Tagged fields that nobody knows are left aside; returns where they end, and the room that is left."""
    count, at, room = read_tag_count(data, at, room)
    for _ in range(count):
        _, at = read_uvarint(data, at)
        size, at = read_uvarint(data, at)
        if size > len(data) - at:
            raise WireError(f"a tagged field has {size} bytes, and {len(data) - at} are left")
        at += size
    return at, room


class _ReaderSource(Source):
    def __init__(self, version: int, flexible: bool) -> None:
        super().__init__()
        self._version, self._flexible = version, flexible
        self._messages = 0
        self._run: list[tuple[str, str]] = []
        """Formats and targets of what is unpacked together, by the next `_unpack`."""
        self._after: list[str] = []
        """Lines that need what is in the run."""
        self.names |= {
            "WireError": WireError,
            "read_uvarint": read_uvarint,
            "read_string_length": read_string_length,
            "read_tag_count": read_tag_count,
            "skip_tags": skip_tags,
        }

    def message(self, message: type[Message]) -> str:
        """Reads the fields; returns the expression that makes the message of them."""
        fields = fields_of(message, self._version)
        prefix = self._prefix()
        for field in fields:
            if field.tag is None:
                self._value(field, prefix + field.name)
        if self._flexible:
            self._take("B", "n")
        self._unpack()
        if self._flexible:
            self._tags(message, prefix, [field for field in fields if field.tag is not None])
        present = {field.name for field in fields if self._flexible or field.tag is None}
        values = defaults_of(message)
        needed = max((number for number, name in enumerate(values, 1) if name in present), default=0)
        arguments = [
            prefix + name if name in present else self._default(values[name]) for name in list(values)[:needed]
        ]
        return f"{self.name('Message', message)}({', '.join(arguments)})"

    def tagged_fields(self, message: type[Message]) -> None:
        tagged = [field for field in fields_of(message, self._version) if field.tag is not None]
        prefix = self._prefix()
        for field in tagged:
            self.line(f"{prefix}{field.name} = {self._default(defaults_of(message)[field.name])}")
        self.line("count, at, room = read_tag_count(data, at, room)")
        with self.block("for _ in range(count):"):
            self.line("tag, at = read_uvarint(data, at)")
            self.line("size, at = read_uvarint(data, at)")
            self._refuse("size > end - at", "a tagged field has {size} bytes, and {end - at} are left")
            self.line("tag_end = at + size")
            for number, field in enumerate(tagged):
                with self.block(f"{'elif' if number else 'if'} tag == {field.tag}:"):
                    self._value(field, prefix + field.name)
                    self._unpack()
                    self._refuse("at != tag_end", f"tagged field {field.name} does not have {{size}} bytes")
            self.line("at = tag_end")
        self.line(f"return {', '.join(prefix + field.name for field in tagged)}, at, room")

    def _prefix(self) -> str:
        self._messages += 1
        return f"v{self._messages}_"

    def _default(self, default: Default) -> str:
        if default.factory is list:
            return "[]"
        return f"{self.name('make', default.factory)}()" if default.factory else self.name("default", default.value)

    def _refuse(self, condition: str, trouble: str) -> None:
        self.line(f"if {condition}: raise WireError(f'{trouble}')")

    def _take(self, form: str, target: str) -> None:
        self._run.append((form, target))

    def _unpack(self) -> None:
        if [form for form, _ in self._run] == ["B"]:
            self.line(f"{self._run[0][1]} = data[at]")
            self.line("at += 1")
        elif self._run:
            form = struct.Struct(">" + "".join(form for form, _ in self._run))
            targets = "".join(f"{target}, " for _, target in self._run)
            self.line(f"{targets}= {self.name('unpack', form.unpack_from)}(data, at)")
            self.line(f"at += {form.size}")
        for line in self._after:
            self.line(line)
        self._run, self._after = [], []

    def _value(self, field: Field, target: str) -> None:
        if field.is_array:
            self._array(field, target)
        elif field.nested is not None:
            self._nested(field, field.nested, target)
        elif field.kind == "uuid":
            self._take("16s", target)
            self._after.append(f"{target} = {target}.hex()")
        elif is_number(field):
            self._take(field.kind, target)
        else:
            self._blob(field, target)

    @contextmanager
    def _sized(self, field: Field, target: str) -> Iterator[None]:
        """Reads n; where it is that of null the target is None, and what comes within is not run."""
        is_string = field.kind == "string" and not field.is_array
        self._take("B" if self._flexible else "h" if is_string else "i", "n")
        self._unpack()
        if self._flexible:
            self.line(f"if n >= 128: n, at = {'read_string_length' if is_string else 'read_uvarint'}(data, at - 1)")
            self.line("n -= 1")
        if not field.is_nullable:
            self._refuse("n < 0", f"{field.name} is null or has a negative length")
            yield
            return
        with self.block("if n < 0:"):
            if not self._flexible:
                self._refuse("n < -1", f"{field.name} has the length {{n}}")
            self.line(f"{target} = None")
        with self.block("else:"):
            yield

    def _blob(self, field: Field, target: str) -> None:
        with self._sized(field, target):
            self.line("stop = at + n")
            self._refuse("stop > end", f"{field.name} has {{n}} bytes, and {{end - at}} are left")
            make = {"string": "str({}, 'utf-8')", "bytes": "bytes({})", "records": "[{}]"}[field.kind]
            self.line(f"{target} = {make.format('data[at:stop]')}")
            self.line("at = stop")

    def _array(self, field: Field, target: str) -> None:
        item = field._replace(is_array=False, is_nullable=False)
        least = least_size_of_field(item, self._version, self._flexible)
        assert least, f"{field.name}: the size of a request would not bound what it costs"
        with self._sized(field, target):
            self._refuse(f"n * {least} > end - at", f"{field.name} has {{n}} entries, and {{end - at}} bytes are left")
            self.line("room -= n")
            self._refuse("room < 0", f"with {field.name} it has more than {MAX_ENTRIES} entries")
            if is_number(item):
                short = self.name("unpack", _unpack_few(item.kind))
                long = f"{self.name('unpack_from', struct.unpack_from)}(f'>{{n}}{item.kind}', data, at)"
                self.line(f"{target} = list({short}[n](data, at) if n < {FEW} else {long})")
                self.line(f"at += n * {least}")
                return
            self.line(f"{target} = []")
            with self.block("for _ in range(n):"):
                value = self._item(item, target)
                self.line(f"{target}.append({value})")

    def _item(self, item: Field, array: str) -> str:
        if item.nested is not None:
            return self.message(item.nested)
        self._value(item, f"{array}_item")
        self._unpack()
        return f"{array}_item"

    def _nested(self, field: Field, nested: type[Message], target: str) -> None:
        if not field.is_nullable:
            self.line(f"{target} = {self.message(nested)}")
            return
        # As Kafka does, any negative byte is null and any other is not, though -1 and 1 are what is written.
        self._take("b", "n")
        self._unpack()
        self.line(f"if n < 0: {target} = None")
        with self.block("else:"):
            self.line(f"{target} = {self.message(nested)}")

    def _tags(self, message: type[Message], prefix: str, tagged: list[Field]) -> None:
        if not tagged:
            self.line("if n: at, room = skip_tags(data, at - 1, room)")
            return
        targets = [prefix + field.name for field in tagged]
        read = self.name("read_tags", tags_reader(message, self._version))
        self.line(f"if n: {', '.join(targets)}, at, room = {read}(data, at - 1, room)")
        with self.block("else:"):
            for field, target in zip(tagged, targets, strict=True):
                self.line(f"{target} = {self._default(defaults_of(message)[field.name])}")


@cache
def _unpack_few(kind: str) -> list[Callable[[memoryview, int], tuple[Any, ...]]]:
    """How to unpack n numbers, at place n."""
    return [struct.Struct(f">{n}{kind}").unpack_from for n in range(FEW)]
