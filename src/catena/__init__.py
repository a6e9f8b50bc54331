"""Catena: one log made of many stores. This is its Python API for use inside of a program.

    import asyncio, catena

    async def main():
        async with catena.open("data") as log:
            await log.create_topic("greetings")
            await log.append("greetings", "hello")
            async for record in log.read("greetings"):
                print(record.offset, record.value)

    asyncio.run(main())

Names are imported when they are first used: `catena --help` should not wait for libraries that it does not need.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from catena import errors
    from catena.embedded import Log, Message, open
    from catena.formats.records import Record

__all__ = ["Log", "Message", "Record", "errors", "open"]

_HOMES = {
    "Log": "catena.embedded",
    "Message": "catena.embedded",
    "Record": "catena.formats.records",
    "open": "catena.embedded",
}


def __getattr__(name: str) -> object:
    if name == "errors":
        return importlib.import_module("catena.errors")
    if name not in _HOMES:
        raise AttributeError(f"module 'catena' has no attribute {name!r}; it has {', '.join(__all__)}")
    return getattr(importlib.import_module(_HOMES[name]), name)


def __dir__() -> list[str]:
    return __all__
