"""`catena sql`: a query over topics, their tables and what is not in them yet, as one."""

from __future__ import annotations

import asyncio
import base64
import functools
import sys
from collections.abc import Callable, Iterator, Sequence
from decimal import Decimal
from typing import TYPE_CHECKING, Annotated, Any, TypeAlias

import typer

from catena.cli.options import Config, Data, Debug, Json, common
from catena.cli.output import count, print_json
from catena.cli.running import reporting, require_log

if TYPE_CHECKING:
    from catena.queries.duck import Answer

OfBytes: TypeAlias = "Callable[[bytes], str | dict[str, str]]"

CELL_CHARS = 60
EXPLAINED = ["explain_key", "explain_value"]
"""Columns of a plan, which is of no use if it is cut."""


def sql(
    context: typer.Context,
    query: Annotated[str, typer.Argument(metavar="QUERY", help='As in: "select count(*) from orders".')],
    max_rows: Annotated[int, typer.Option("--max-rows", min=1, help="So many are shown; --json writes all.")] = 1000,
    skip_undecodable: Annotated[
        bool,
        typer.Option("--skip-undecodable", help="Leave out what can't be decoded; else it is an error."),
    ] = False,
    as_json: Json = False,
    data: Data = None,
    config: Config = None,
    debug: Debug = False,
) -> None:
    """Ask topics a question in SQL (DuckDB's). What was acked before the question is in the answer.

    A topic is a table with the columns _catena (partition, offset, timestamp, ...), key, day, and value, or one for
    each field of its values (`catena topic config TOPIC table.value.format=json`). If it has a table (table.enable)
    that is read, and of the log only what is not in it yet; else all of the log. Quote names that are no words: "a-b".
    """
    options = common(context, data, config, debug, as_json)
    with reporting(options):
        settings = options.load_settings()
        require_log(settings)
        from catena.queries import require_engine

        require_engine()
        from catena.jobs.querying import query as ask

        show = _write_json if as_json else lambda answer: _print(answer, max_rows)
        asyncio.run(ask(settings, query, show, skip_undecodable))


def _write_json(answer: Answer) -> None:
    names = _distinct(answer.names)
    for batch in answer.batches:
        for row in _rows(batch, _base64):
            print_json(dict(zip(names, row, strict=True)))
    for warning in answer.warnings:
        print(f"catena: {warning}", file=sys.stderr)


def _print(answer: Answer, max_rows: int) -> None:
    from rich.console import Console
    from rich.table import Table
    from rich.text import Text

    table = Table(box=None, pad_edge=False)
    for name in answer.names:
        table.add_column(Text(name), overflow="fold")
    shown = more = 0
    cell_chars = None if list(answer.names) == EXPLAINED else CELL_CHARS
    for batch in answer.batches:
        for row in _rows(batch, _hex):
            if shown == max_rows:
                more += 1
                continue
            shown += 1
            table.add_row(*(Text(_cell(value, cell_chars)) for value in row))
    console = Console(highlight=False)
    if answer.names:
        console.print(table)
    console.print(Text(count(shown + more, "row") + (f", {shown:,} of them shown (--max-rows)" if more else "")))
    for warning in answer.warnings:
        print(f"catena: {warning}", file=sys.stderr)


def _distinct(names: Sequence[str]) -> list[str]:
    """A join has columns of the same name; an object of JSON can't."""
    found: dict[str, None] = {}
    for name in names:
        number = 0
        while (candidate := f"{name}_{number}" if number else name) in found:
            number += 1
        found[candidate] = None
    return list(found)


def _rows(batch: Any, of_bytes: OfBytes) -> Iterator[tuple[Any, ...]]:
    """By their place: columns may have the same name."""
    from catena.queries.values import values_of

    plain = functools.partial(_plain, of_bytes=of_bytes)
    return zip(*(map(plain, values_of(column)) for column in batch.columns), strict=True)


def _hex(value: bytes) -> str:
    return "0x" + value.hex()


def _base64(value: bytes) -> dict[str, str]:
    """As the HTTP API has it: nobody takes it for text."""
    return {"base64": base64.b64encode(value).decode()}


def _cell(value: Any, chars: int | None) -> str:
    text = value if isinstance(value, str) else "" if value is None else str(value)
    return text if chars is None or len(text) <= chars else text[: chars - 1] + "…"


def _plain(value: Any, of_bytes: OfBytes) -> Any:
    """As JSON has it. Bytes that are text are shown as text, whole numbers as numbers."""
    match value:
        case bytes():
            try:
                return value.decode()
            except UnicodeDecodeError:
                return of_bytes(value)
        case dict():
            return {str(name): _plain(each, of_bytes) for name, each in value.items()}
        case list() | tuple():
            return [_plain(each, of_bytes) for each in value]
        case Decimal() if value == value.to_integral_value():
            return int(value)
        case _:
            return value if isinstance(value, bool | int | float | str | None) else str(value)
