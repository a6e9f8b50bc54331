"""Lines come out as they went in, however the bytes arrive."""

from __future__ import annotations

import asyncio
import os
from collections.abc import AsyncIterator
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from catena.cli import lines as lines_module
from catena.cli.lines import MAX_LINES, Lines, read_lines
from catena.errors import BatchTooLarge


async def collect(parts: AsyncIterator[Lines]) -> list[Lines]:
    return [part async for part in parts]


async def read_file(path: Path) -> list[Lines]:
    file = os.open(path, os.O_RDONLY)
    try:
        return await collect(read_lines("file", file))
    finally:
        os.close(file)


@pytest.mark.parametrize(
    ("content", "expected"),
    [
        (b"", []),
        (b"\n", [b""]),
        (b"a", [b"a"]),
        (b"a\nb", [b"a", b"b"]),
        (b"a\n\nb\n", [b"a", b"", b"b"]),
        (b"a\r\n\x00\xff\n", [b"a\r", b"\x00\xff"]),
    ],
)
async def test_a_file(tmp_path: Path, content: bytes, expected: list[bytes]) -> None:
    (tmp_path / "file").write_bytes(content)
    found = await read_file(tmp_path / "file")
    assert [line for part in found for line in part.lines] == expected


async def test_many_lines_come_in_parts_that_are_numbered(tmp_path: Path) -> None:
    (tmp_path / "file").write_bytes(b"".join(b"%d\n" % number for number in range(1, 2 * MAX_LINES + 2)))
    found = await read_file(tmp_path / "file")
    assert [(part.first, part.last) for part in found] == [
        (1, MAX_LINES),
        (MAX_LINES + 1, 2 * MAX_LINES),
        (2 * MAX_LINES + 1, 2 * MAX_LINES + 1),
    ]
    assert [line for part in found for line in part.lines] == [b"%d" % n for n in range(1, 2 * MAX_LINES + 2)]


@given(chunks=st.lists(st.binary(min_size=1, max_size=8).map(lambda b: b.replace(b"\x01", b"\n")), max_size=10))
def test_a_pipe_gives_the_same_lines_however_it_is_filled(chunks: list[bytes]) -> None:
    async def fill_and_read() -> list[bytes]:
        reading, writing = os.pipe()
        parts = read_lines("pipe", reading)
        found: list[bytes] = []
        pending = asyncio.ensure_future(anext(parts, None))
        for chunk in chunks:
            os.write(writing, chunk)
            await asyncio.sleep(0)
        os.close(writing)
        while (part := await pending) is not None:
            found += part.lines
            pending = asyncio.ensure_future(anext(parts, None))
        os.close(reading)
        return found

    content = b"".join(chunks)
    expected = content.split(b"\n")
    if expected[-1] == b"":
        expected.pop()
    assert asyncio.run(fill_and_read()) == expected


async def test_a_line_without_end_is_refused(tmp_path: Path) -> None:
    with (tmp_path / "file").open("wb") as file:
        file.write(b"short\n")
        file.truncate(lines_module.MAX_LINE_BYTES + 2 * lines_module.READ_BYTES)
    with pytest.raises(BatchTooLarge, match="line 2 of file is longer"):
        await read_file(tmp_path / "file")
