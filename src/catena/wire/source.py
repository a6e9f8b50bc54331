"""Source code of a function, written line by line, and compiled.

Readers and writers are made this way because a loop over field descriptions costs several times what the same steps
cost when they are written out. What was made can be looked at: `inspect.getsource` and tracebacks show its lines.
"""

from __future__ import annotations

import linecache
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any


class Source:
    def __init__(self) -> None:
        self.names: dict[str, Any] = {}
        self._lines: list[str] = []
        self._depth = 0

    def line(self, text: str) -> None:
        self._lines.append("    " * self._depth + text)

    @contextmanager
    def block(self, head: str) -> Iterator[None]:
        self.line(head)
        self._depth += 1
        yield
        self._depth -= 1

    def name(self, prefix: str, value: Any) -> str:
        """A name for this value in the code, its own."""
        name = f"{prefix}_{len(self.names)}"
        self.names[name] = value
        return name

    def build(self, function: str, title: str) -> Any:
        text = "\n".join(self._lines) + "\n"
        linecache.cache[f"<{title}>"] = (len(text), None, text.splitlines(keepends=True), f"<{title}>")
        exec(compile(text, f"<{title}>", "exec"), self.names)
        return self.names[function]
