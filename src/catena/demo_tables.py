"""The end of the demo: topics as a DataFrame, as a table, and as both the table and what came after it."""

from __future__ import annotations

import json
from collections.abc import Callable
from contextlib import AbstractAsyncContextManager

import msgspec
from rich.console import Console

from catena import jobs
from catena.cli.output import count
from catena.config import Settings
from catena.embedded import Log, Message
from catena.errors import ConfigError
from catena.pipeline.spark.work import SparkWork
from catena.pipeline.work import Work
from catena.queries import require_engine
from catena.runtime import SystemClock

TOPIC = "sales"
PLACES = ("Bern", "Lima", "Oslo")
SALES = 3_000
SCHEMA = {"properties": {"place": {"type": "string"}, "amount": {"type": "integer"}}}
QUERY = f"select place, count(*) as sales, sum(amount)::bigint as amount from {TOPIC} group by place order by place"


class WrongAnswer(Exception):
    """Says what was expected and what was found."""


class DemoTables:
    def __init__(self, log: Log, settings: Settings, console: Console) -> None:
        self._log = log
        self._settings = settings
        self._console = console
        self._clock = SystemClock()

    async def run(
        self, topic: str, records: int, work: SparkWork, warm: Callable[[], AbstractAsyncContextManager[Work]]
    ) -> None:
        """`topic` has so many records."""
        self._title(9, "A topic is a DataFrame")
        found = self._count_by_spark(work, topic)
        _check(f"records of {topic}", records, found)
        self._say(f'spark.read.format("catena").option("subscribe", "{topic}").load().count() = {found:,}')
        try:
            require_engine()
        except ConfigError as error:
            self._console.print()
            self._say(f"[yellow]tables are left out[/yellow]: {error}")
            return
        self._title(10, "A topic is a table")
        await self._make_table(warm)
        await self._ask(SALES)
        self._title(11, "What was acked just now is in the answer, too")
        await self._log.append(TOPIC, _sale("Rome", 7), partition=0)
        await self._ask(SALES + 1)

    def _count_by_spark(self, work: SparkWork, topic: str) -> int:
        reader = work.session.read.format("catena").option("data", self._settings.data).option("subscribe", topic)
        return int(reader.load().count())

    async def _make_table(self, warm: Callable[[], AbstractAsyncContextManager[Work]]) -> None:
        await self._log.create_topic(TOPIC)
        configs = {
            "table.enable": "true",
            "table.value.format": "json",
            "table.value.schema": msgspec.json.encode(SCHEMA).decode(),
        }
        await self._log.node.topics.alter_configs(TOPIC, configs)
        sales = [Message(_sale(PLACES[number % 3], number % 10)) for number in range(SALES)]
        await self._log.append_batch(TOPIC, sales, partition=0)
        report = await jobs.tables(self._settings, jobs.Which(TOPIC), False, warm)
        (table,) = report.tables
        if table.error:
            raise WrongAnswer(f"the table could not be made: {table.error}")
        _check("rows of the table", SALES, table.rows)
        self._say(
            f"{count(table.rows, 'JSON value')} are rows of a Delta table in {report.duration_ms / 1000:.1f} s, at"
        )
        self._say(f"{table.table}")

    async def _ask(self, expected: int) -> None:
        from catena.jobs.querying import query

        started = self._clock.monotonic()
        rows = await query(
            self._settings, QUERY, lambda answer: [row for batch in answer.batches for row in batch.to_pylist()]
        )
        seconds = self._clock.monotonic() - started
        _check("sales in the answer", expected, sum(row["sales"] for row in rows))
        self._say(f"catena sql [italic]{json.dumps(QUERY)}[/italic]")
        for row in rows:
            self._say(f"  {row['place']:<6} {row['sales']:>6,} {row['amount']:>8,}")
        self._say(f"[green]ok[/green] in {seconds:.1f} s")

    def _title(self, number: int, text: str) -> None:
        self._console.print(f"\n[bold cyan]{number}[/bold cyan] [bold]{text}[/bold]")

    def _say(self, text: str) -> None:
        self._console.print(f"  {text}", highlight=False)


def _sale(place: str, amount: int) -> bytes:
    return msgspec.json.encode({"place": place, "amount": amount})


def _check(what: str, expected: int, found: int) -> None:
    if expected != found:
        raise WrongAnswer(f"{what}: {expected:,} were expected, {found:,} were found")
