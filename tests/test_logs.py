"""One line for each event, that people or programs read, and quiet unless something is wrong."""

from __future__ import annotations

import io
import json
import logging
from collections.abc import Iterator

import pytest

from catena.logs import LogFormat, configure


@pytest.fixture(autouse=True)
def as_before() -> Iterator[None]:
    names = [None, "catena", "catena.serve", "asyncpg"]
    loggers = [logging.getLogger(name) for name in names]
    before = [(logger.level, logger.handlers[:]) for logger in loggers]
    yield
    for logger, (level, handlers) in zip(loggers, before, strict=True):
        logger.setLevel(level)
        logger.handlers[:] = handlers


def lines(format: LogFormat = LogFormat.TEXT, debug: bool = False) -> io.StringIO:
    stream = io.StringIO()
    configure(format, debug, stream)
    return stream


def test_a_line_for_people() -> None:
    stream = lines()
    logging.getLogger("catena.serve").info("serves %d", 7, extra={"node": 0, "rack": "a b", "id": None, "empty": ""})
    time, rest = stream.getvalue().split(" ", 1)
    assert rest == 'INFO serve: serves 7 node=0 rack="a b" empty=""\n'
    assert len(time) == len("2026-11-15T11:03:28.123Z")
    assert time.endswith("Z")


def test_a_line_for_programs() -> None:
    stream = lines(LogFormat.JSON)
    try:
        raise ZeroDivisionError("oh")
    except ZeroDivisionError:
        logging.getLogger("catena.cluster.membership").exception("failed", extra={"node": 0, "what": {1: 2}})
    (line,) = stream.getvalue().splitlines()
    event = json.loads(line)
    assert event.pop("time").endswith("Z")
    assert event.pop("exception").endswith("ZeroDivisionError: oh")
    assert event == {
        "level": "ERROR",
        "logger": "cluster.membership",
        "message": "failed",
        "node": 0,
        "what": {"1": 2},
    }


def test_a_traceback_follows_its_line() -> None:
    stream = lines()
    try:
        raise ZeroDivisionError("oh")
    except ZeroDivisionError:
        logging.getLogger("catena.x").exception("failed")
    first, *rest = stream.getvalue().splitlines()
    assert first.endswith("ERROR x: failed")
    assert rest[-1] == "ZeroDivisionError: oh"


@pytest.mark.parametrize("format", LogFormat)
def test_nobody_can_make_up_a_line(format: LogFormat) -> None:
    stream = lines(format)
    evil = "a\n2026 ERROR x: b\r\x1b[31m\u2028"
    logging.getLogger("catena.x").warning("of %s", evil, extra={"client": evil})
    assert len(stream.getvalue().splitlines()) == 1
    assert "\x1b" not in stream.getvalue()


def test_quiet_by_default() -> None:
    stream = lines()
    for name in ("catena.broker.connection", "other"):
        logging.getLogger(name).info("not shown")
        logging.getLogger(name).warning("shown")
    logging.getLogger("catena.serve").debug("not shown")
    logging.getLogger("asyncpg.pool").warning("not shown")
    assert [line.split(": ")[-1] for line in stream.getvalue().splitlines()] == ["shown", "shown"]


def test_debug_shows_all_of_ours() -> None:
    stream = lines(debug=True)
    logging.getLogger("catena.broker.connection").debug("shown")
    logging.getLogger("catena.serve").debug("shown")
    logging.getLogger("other").info("not shown")
    assert [line.split(": ")[-1] for line in stream.getvalue().splitlines()] == ["shown", "shown"]
