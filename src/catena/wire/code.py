"""Source code of a function, written line by line, and compiled."""

from __future__ import annotations

from typing import Any


class Code:
    def __init__(self, version: int, flexible: bool) -> None:
        self.version, self.flexible = version, flexible
        self.names: dict[str, Any] = {}
        self._lines: list[str] = []

    def line(self, depth: int, text: str) -> None:
        self._lines.append("    " * depth + text)

    def name(self, prefix: str, value: Any) -> str:
        name = f"{prefix}{len(self.names)}"
        self.names[name] = value
        return name

    def build(self, function: str, title: str) -> Any:
        exec(compile("\n".join(self._lines), f"<{title}>", "exec"), self.names)
        return self.names[function]
