"""Lines of files and of standard input, as they come in and with bounded memory.

A terminal or a pipe is read when it has something, so what a slow writer sends is passed on at once, and Ctrl-C is not
kept waiting by a read that blocks. A line ends with a newline, which is not part of it; the last one may lack it.
"""

from __future__ import annotations

import asyncio
import os
from collections.abc import AsyncIterator, Iterator
from typing import NamedTuple

from catena.errors import BatchTooLarge

READ_BYTES = 1 << 20
MAX_LINE_BYTES = 64 << 20
MAX_LINES = 1000


class Lines(NamedTuple):
    source: str
    first: int
    """Number of the first line; the first of a source is 1."""
    lines: list[bytes]

    @property
    def last(self) -> int:
        return self.first + len(self.lines) - 1


async def read_lines(source: str, file: int) -> AsyncIterator[Lines]:
    """The lines of an open file, up to MAX_LINES at a time."""
    number = 1
    unfinished: list[bytes] = []
    while data := await _read(file):
        head, newline, tail = data.rpartition(b"\n")
        if not newline:
            unfinished.append(data)
            if sum(map(len, unfinished)) > MAX_LINE_BYTES:
                raise BatchTooLarge(f"line {number:,} of {source} is longer than {MAX_LINE_BYTES:,} bytes")
            continue
        lines = b"".join([*unfinished, head]).split(b"\n")
        unfinished = [tail] if tail else []
        for part in _parts(source, number, lines):
            yield part
        number += len(lines)
    if unfinished:
        yield Lines(source, number, [b"".join(unfinished)])


def _parts(source: str, first: int, lines: list[bytes]) -> Iterator[Lines]:
    for at in range(0, len(lines), MAX_LINES):
        yield Lines(source, first + at, lines[at : at + MAX_LINES])


async def _read(file: int) -> bytes:
    await _wait_until_readable(file)
    return os.read(file, READ_BYTES)


async def _wait_until_readable(file: int) -> None:
    loop = asyncio.get_running_loop()
    readable = asyncio.Event()
    try:
        loop.add_reader(file, readable.set)
    except PermissionError:
        return  # a plain file: it never makes anyone wait
    try:
        await readable.wait()
    finally:
        loop.remove_reader(file)
