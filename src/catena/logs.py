"""What a node says of its life: one line for each event, on stderr, as text for people or as JSON for programs.

    2026-11-15T11:03:28.123Z INFO serve: serves node=0 rack=a kafka=127.0.0.1:9092

A line has the time (UTC), the level, the module, the message, and fields: whatever was given as `extra` and is not
None. Control characters are escaped, so nobody who can make a node log can make a line up. A traceback follows its line
as text, and is a field in JSON.

Quiet: warnings and errors, and the few steps of a node's own life. `--debug` shows everything of ours.
"""

from __future__ import annotations

import enum
import json
import logging
import re
import sys
from datetime import UTC, datetime
from typing import Any, TextIO

PACKAGE = "catena"
LIFE = ("catena.serve",)
"""Who may say more than warnings."""
LOUD = {"asyncpg": logging.ERROR, "py4j": logging.CRITICAL}
"""Log tracebacks about what is raised as well, and reported by whoever called them: only what is worse is shown."""

_control = re.compile(r"[\x00-\x1f\x7f-\x9f\u2028\u2029]")
_bare = re.compile(r"[^\s\"=]+")
_standard = frozenset([*vars(logging.makeLogRecord({})), "message", "asctime", "taskName"])


class LogFormat(enum.StrEnum):
    TEXT = "text"
    JSON = "json"


def configure(format: LogFormat = LogFormat.TEXT, debug: bool = False, stream: TextIO | None = None) -> None:
    """For the whole process; whatever was configured before is replaced."""
    handler = logging.StreamHandler(stream or sys.stderr)
    handler.setFormatter(JsonLines() if format is LogFormat.JSON else TextLines())
    root = logging.getLogger()
    root.handlers[:] = [handler]
    root.setLevel(logging.WARNING)
    logging.getLogger(PACKAGE).setLevel(logging.DEBUG if debug else logging.NOTSET)
    for name in LIFE:
        logging.getLogger(name).setLevel(logging.DEBUG if debug else logging.INFO)
    for name, level in LOUD.items():
        logging.getLogger(name).setLevel(logging.NOTSET if debug else level)


class TextLines(logging.Formatter):
    def format(self, record: logging.LogRecord) -> str:
        words = [_time(record), record.levelname, f"{_module(record)}:", _escaped(record.getMessage())]
        words += [f"{name}={_shown(value)}" for name, value in _fields(record).items()]
        line = " ".join(words)
        return f"{line}\n{self.formatException(record.exc_info)}" if record.exc_info else line


class JsonLines(logging.Formatter):
    def format(self, record: logging.LogRecord) -> str:
        event: dict[str, Any] = {
            "time": _time(record),
            "level": record.levelname,
            "logger": _module(record),
            "message": record.getMessage(),
            **_fields(record),
        }
        if record.exc_info:
            event["exception"] = self.formatException(record.exc_info)
        return json.dumps(event, default=str)


def _time(record: logging.LogRecord) -> str:
    return datetime.fromtimestamp(record.created, UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")


def _module(record: logging.LogRecord) -> str:
    return record.name.removeprefix(f"{PACKAGE}.")


def _fields(record: logging.LogRecord) -> dict[str, Any]:
    return {name: value for name, value in vars(record).items() if name not in _standard and value is not None}


def _shown(value: object) -> str:
    text = str(value)
    return _escaped(text if _bare.fullmatch(text) else json.dumps(text, ensure_ascii=False))


def _escaped(text: str) -> str:
    return _control.sub(lambda found: repr(found[0])[1:-1], text)
