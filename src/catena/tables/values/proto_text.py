"""A .proto file to its descriptor, without protoc: what schemas of records use of the language. Pure.

Messages, nested ones, enums, oneof, map, optional, repeated, reserved, options (which are passed over), and imports of
Google's well-known types. Services and extensions are passed over, groups are refused.
"""

from __future__ import annotations

import re
from typing import Any

from google.protobuf import descriptor_pb2

from catena.errors import ConfigError

_TOKEN = re.compile(
    r"""\s+|//[^\n]*|/\*.*?\*/|([A-Za-z_][\w.]*|\.[A-Za-z_][\w.]*|-?\d[\w.+-]*|"[^"]*"|'[^']*'|[{}\[\]()<>;=,:-])""",
    re.S,
)
_KNOWN_IMPORTS = re.compile(r"google/protobuf/(timestamp|duration|wrappers)\.proto")
_SCALARS = {
    name.removeprefix("TYPE_").lower(): number
    for name, number in descriptor_pb2.FieldDescriptorProto.Type.items()
    if name not in ("TYPE_MESSAGE", "TYPE_ENUM", "TYPE_GROUP")
}
_LABELS = {"optional": 1, "required": 2, "repeated": 3}


def parse_proto(text: str, name: str = "value.proto") -> Any:
    """A FileDescriptorProto. Raises ConfigError, with the line, for what it does not understand."""
    return _Parser(text, name).file()


class _Parser:
    def __init__(self, text: str, name: str) -> None:
        self._tokens: list[tuple[str, int]] = []
        self._at = 0
        self._found = descriptor_pb2.FileDescriptorProto(name=name, syntax="proto2")
        at = 0
        while at < len(text):
            match = _TOKEN.match(text, at)
            if match is None:
                raise ConfigError(f"line {text.count(chr(10), 0, at) + 1} is no .proto: {text[at : at + 20]!r}")
            if match[1]:
                self._tokens.append((match[1], text.count("\n", 0, at) + 1))
            at = match.end()

    def file(self) -> Any:
        while self._at < len(self._tokens):
            word = self._take()
            match word:
                case "syntax" | "edition":
                    self._expect("=")
                    self._found.syntax = self._take().strip("\"'")
                    self._expect(";")
                    if self._found.syntax not in ("proto2", "proto3"):
                        self._fail(f"syntax {self._found.syntax} is not known here")
                case "package":
                    self._found.package = self._take()
                    self._expect(";")
                case "import":
                    self._import()
                case "message":
                    self._message(self._found.message_type.add(), "")
                case "enum":
                    self._enum(self._found.enum_type.add())
                case "option":
                    self._skip_to(";")
                case "service" | "extend":
                    self._skip_block()
                case ";":
                    pass
                case _:
                    self._fail(f"{word!r} can't be here")
        return self._found

    def _import(self) -> None:
        path = self._take()
        if path in ("public", "weak"):
            path = self._take()
        path = path.strip("\"'")
        if not _KNOWN_IMPORTS.fullmatch(path):
            self._fail(f"import {path!r} is not known here: give a set of descriptors, which holds what it imports")
        self._found.dependency.append(path)
        self._expect(";")

    def _message(self, message: Any, outer: str) -> None:
        message.name = self._take()
        path = f"{outer}.{message.name}"
        self._expect("{")
        while (word := self._take()) != "}":
            match word:
                case "message":
                    self._message(message.nested_type.add(), path)
                case "enum":
                    self._enum(message.enum_type.add())
                case "oneof":
                    self._oneof(message, path)
                case "option" | "reserved" | "extensions":
                    self._skip_to(";")
                case "extend":
                    self._skip_block()
                case ";":
                    pass
                case _:
                    self._field(message, word, path)
        # In proto3 each optional field is in a oneof of its own, behind all others.
        for field in message.field:
            if field.proto3_optional:
                field.oneof_index = len(message.oneof_decl)
                message.oneof_decl.add(name=f"_{field.name}")

    def _oneof(self, message: Any, path: str) -> None:
        index = len(message.oneof_decl)
        message.oneof_decl.add(name=self._take())
        self._expect("{")
        while (word := self._take()) != "}":
            if word == "option":
                self._skip_to(";")
            elif word != ";":
                self._field(message, word, path).oneof_index = index

    def _field(self, message: Any, word: str, path: str) -> Any:
        label = _LABELS.get(word)
        kind = self._take() if label else word
        if kind == "group":
            self._fail("groups are not known here")
        if kind == "map" and self._peek() == "<":
            return self._map_field(message, path)
        field = message.field.add(label=label or 1)
        self._set_type(field, kind)
        field.name = self._take()
        field.proto3_optional = word == "optional" and self._found.syntax == "proto3"
        self._number(field)
        return field

    def _map_field(self, message: Any, path: str) -> Any:
        self._expect("<")
        key = self._take()
        self._expect(",")
        value = self._take()
        self._expect(">")
        name = self._take()
        entry_name = "".join(part.capitalize() for part in name.split("_")) + "Entry"
        entry = message.nested_type.add(name=entry_name)
        entry.options.map_entry = True
        for number, (each, kind) in enumerate((("key", key), ("value", value)), 1):
            self._set_type(entry.field.add(name=each, number=number, label=1), kind)
        package = f".{self._found.package}" if self._found.package else ""
        field = message.field.add(name=name, label=3, type=11, type_name=f"{package}{path}.{entry_name}")
        self._number(field)
        return field

    def _set_type(self, field: Any, kind: str) -> None:
        if kind in _SCALARS:
            field.type = _SCALARS[kind]
        else:
            field.type_name = kind  # a message or an enum: the pool finds out

    def _number(self, field: Any) -> None:
        self._expect("=")
        number = self._take()
        if not number.isdecimal():
            self._fail(f"{number!r} is no number of a field")
        field.number = int(number)
        if self._peek() == "[":
            self._skip_to("]")
        self._expect(";")

    def _enum(self, enum: Any) -> None:
        enum.name = self._take()
        self._expect("{")
        while (word := self._take()) != "}":
            if word in ("option", "reserved"):
                self._skip_to(";")
            elif word != ";":
                self._expect("=")
                enum.value.add(name=word, number=int(self._take(), 0))
                if self._peek() == "[":
                    self._skip_to("]")
                self._expect(";")
        if len({value.number for value in enum.value}) < len(enum.value):
            enum.options.allow_alias = True

    def _skip_to(self, end: str) -> None:
        while self._take() != end:
            pass

    def _skip_block(self) -> None:
        self._skip_to("{")
        depth = 1
        while depth:
            depth += {"{": 1, "}": -1}.get(self._take(), 0)

    def _peek(self) -> str:
        return self._tokens[self._at][0] if self._at < len(self._tokens) else ""

    def _take(self) -> str:
        if self._at == len(self._tokens):
            raise ConfigError("the .proto ends within something")
        self._at += 1
        return self._tokens[self._at - 1][0]

    def _expect(self, token: str) -> None:
        found = self._take()
        if found != token:
            self._fail(f"{token!r} is missing before {found!r}")

    def _fail(self, why: str) -> None:
        raise ConfigError(f"line {self._tokens[self._at - 1][1]} of the .proto: {why}")
