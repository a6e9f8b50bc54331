"""What commands print: JSON for programs, aligned columns and plain numbers for people."""

from __future__ import annotations

import os
import sys
from collections.abc import Sequence
from datetime import UTC, datetime
from typing import Any


def print_json(value: Any) -> None:
    import msgspec

    print(msgspec.json.encode(value).decode())


def print_columns(titles: Sequence[str], rows: Sequence[Sequence[object]]) -> None:
    """Numbers to the right, words to the left."""
    cells = [
        list(titles),
        *([format(cell, ",") if isinstance(cell, int) else str(cell) for cell in row] for row in rows),
    ]
    widths = [max(map(len, column)) for column in zip(*cells, strict=True)]
    to_the_right = [all(isinstance(row[i], int) for row in rows) for i in range(len(titles))]
    for line in cells:
        padded = [
            cell.rjust(width) if right else cell.ljust(width)
            for cell, width, right in zip(line, widths, to_the_right, strict=True)
        ]
        print("  ".join(padded).rstrip())


def show_time(timestamp_ms: int) -> str:
    return datetime.fromtimestamp(timestamp_ms / 1000, UTC).strftime("%Y-%m-%d %H:%M:%S UTC")


def count(number: int, thing: str, things: str | None = None) -> str:
    return f"{number:,} {thing if number == 1 else things or thing + 's'}"


def give_up_closed_output() -> None:
    """If our output can't be written any more, keep Python from complaining at its exit about what was reported."""
    try:
        sys.stdout.flush()
    except OSError:
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


def reopen_closed_streams() -> None:
    """A process may be started without them (`<&-`, `>&-`); then there is nothing to read, and nobody reads."""
    for name, mode in (("stdin", "r"), ("stdout", "w"), ("stderr", "w")):
        if getattr(sys, name) is None:
            setattr(sys, name, open(os.devnull, mode, encoding="utf-8"))  # noqa: SIM115 - open as long as we run


def survive_narrow_encodings() -> None:
    """A terminal that can't show a character gets a question mark, not an error."""
    for stream in (sys.stdout, sys.stderr):
        if hasattr(stream, "reconfigure"):
            stream.reconfigure(errors="replace")
