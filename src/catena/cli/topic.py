"""`catena topic`: make topics, look at them, configure and delete them."""

from __future__ import annotations

import asyncio
import sys
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from catena.cli.options import Config, Data, Debug, Json, Topic, common
from catena.cli.output import count, print_columns, print_json, show_time
from catena.cli.running import reporting, run
from catena.errors import ConfigError

if TYPE_CHECKING:
    from catena.embedded import Log
    from catena.virtual_log.topics import TopicRecord

LOOKS_AT_ONCE = 32

app = typer.Typer(no_args_is_help=True, help="Make topics, look at them, configure and delete them.")


@app.command()
def create(
    context: typer.Context,
    topic: Topic,
    partitions: Annotated[int, typer.Option("--partitions", min=1, help="Logs that the topic is made of.")] = 1,
    as_json: Json = False,
    data: Data = None,
    config: Config = None,
    debug: Debug = False,
) -> None:
    """Make a topic, and the log itself if there is none yet."""
    options = common(context, data, config, debug, as_json)
    with reporting(options):
        record = run(options, lambda log: log.create_topic(topic, partitions), creates=True)
        if as_json:
            print_json(_fields(record))
        else:
            print(f"created topic {record.name} with {count(record.partitions, 'partition')}")


@app.command("list")
def list_topics(
    context: typer.Context, as_json: Json = False, data: Data = None, config: Config = None, debug: Debug = False
) -> None:
    """All topics."""
    options = common(context, data, config, debug, as_json)
    with reporting(options):
        records = run(options, lambda log: log.topics())
        if as_json:
            print_json([_fields(record) for record in records])
        elif records:
            rows = [[record.name, record.partitions, show_time(record.created_at_ms)] for record in records]
            print_columns(["TOPIC", "PARTITIONS", "CREATED"], rows)
        else:
            print("there are no topics yet; `catena topic create NAME` makes one", file=sys.stderr)


@app.command()
def describe(
    context: typer.Context,
    topic: Topic,
    as_json: Json = False,
    data: Data = None,
    config: Config = None,
    debug: Debug = False,
) -> None:
    """The partitions of a topic: where each starts and ends, and what it is made of."""
    options = common(context, data, config, debug, as_json)
    with reporting(options):
        record, partitions = run(options, lambda log: _describe(log, topic))
        if as_json:
            print_json({**_fields(record), "partitions": partitions})
        else:
            print(f"topic {record.name}, id {record.topic_id}, created {show_time(record.created_at_ms)}\n")
            rows = [[*found.values(), found["tail"] - found["start"]] for found in partitions]
            print_columns(["PARTITION", "START", "TAIL", "STATE", "KIND", "LINKS", "RECORDS"], rows)


@app.command("config")
def configure(
    context: typer.Context,
    topic: Topic,
    changes: Annotated[
        list[str] | None, typer.Argument(metavar="[NAME=VALUE]...", help="What to set.", show_default=False)
    ] = None,
    defaults: Annotated[
        list[str] | None,
        typer.Option("--default", metavar="NAME", help="Back to its default; may be said often.", show_default=False),
    ] = None,
    all_of_them: Annotated[bool, typer.Option("--all", help="Show also what has its default.")] = False,
    as_json: Json = False,
    data: Data = None,
    config: Config = None,
    debug: Debug = False,
) -> None:
    """Set configs of a topic, and show what it has.

    A value that begins with @ is read from the file that it names: [cyan]table.value.schema=@orders.avsc[/cyan].
    """
    options = common(context, data, config, debug, as_json)
    with reporting(options):
        record = run(options, lambda log: _configure(log, topic, _change(changes or [], defaults or [])))
        shown = _configs(record, all_of_them)
        if as_json:
            print_json({"name": record.name, "configs": shown})
        elif shown:
            print_columns(["CONFIG", "VALUE"], [[name, " ".join(value.split())] for name, value in shown.items()])
        else:
            print(f"every config of topic {record.name} has its default; --all shows them", file=sys.stderr)


@app.command()
def delete(
    context: typer.Context,
    topic: Topic,
    yes: Annotated[bool, typer.Option("--yes", "-y", help="Do not ask.")] = False,
    as_json: Json = False,
    data: Data = None,
    config: Config = None,
    debug: Debug = False,
) -> None:
    """Delete a topic with all that it holds."""
    if not yes:
        if not sys.stdin.isatty():
            raise typer.BadParameter("nobody is there to be asked: say --yes to delete it", param_hint="--yes")
        typer.confirm(f"Delete topic {topic} and all its records, for good?", abort=True)
    options = common(context, data, config, debug, as_json)
    with reporting(options):
        run(options, lambda log: log.delete_topic(topic))
        if as_json:
            print_json({"deleted": topic})
        else:
            print(f"deleted topic {topic}")


def _change(changes: list[str], defaults: list[str]) -> dict[str, str | None]:
    wanted: dict[str, str | None] = dict.fromkeys(defaults)
    for change in changes:
        name, given, value = change.partition("=")
        if not given:
            raise ConfigError(f"{change!r} sets nothing: say {name}=VALUE, or --default {name}")
        if name in wanted:
            raise ConfigError(f"topic config {name} is to be set twice")
        wanted[name] = _read(name, value[1:]) if value.startswith("@") else value
    return wanted


def _read(name: str, file: str) -> str:
    try:
        return Path(file).read_text("utf-8")
    except OSError as error:
        raise ConfigError(f"topic config {name}: {file}: {error.strerror}") from None
    except UnicodeDecodeError as error:
        raise ConfigError(f"topic config {name}: {file}: {error}") from None


async def _configure(log: Log, name: str, change: dict[str, str | None]) -> TopicRecord:
    if not change:
        return await log.topic(name)
    if any(each.startswith("table.") for each in change):
        record = await log.topic(name)
        after = {**record.configs, **change}
        _check_schemas({each: value for each, value in after.items() if value is not None})
    return await log.node.topics.alter_configs(name, change)


def _check_schemas(configs: dict[str, str]) -> None:
    """Raises ConfigError, as the pipeline would do later; unless the libraries that read schemas are not here, or there
    is no schema yet."""
    from catena.tables.settings import TableConfig

    config = TableConfig.of(configs)
    if config.value_schema or config.schemas:
        with suppress(ImportError):
            from catena.tables.values import ValueSpec, decoder_of

            decoder_of(ValueSpec.of(config))


def _configs(record: TopicRecord, all_of_them: bool) -> dict[str, str]:
    from catena.virtual_log.topic_configs import CATALOGUE

    if not all_of_them:
        return dict(sorted(record.configs.items()))
    return {name: record.configs.get(name, config.default) for name, config in CATALOGUE.items()}


async def _describe(log: Log, name: str) -> tuple[TopicRecord, list[dict[str, Any]]]:
    record = await log.topic(name)
    slots = asyncio.Semaphore(LOOKS_AT_ONCE)

    async def look(partition: int) -> dict[str, Any]:
        async with slots:
            chain = await log.chain(name, partition)
            tail = await log.tail(name, partition)
        return {
            "partition": partition,
            "start": chain.start,
            "tail": tail,
            "state": "open" if chain.last.is_open else "sealed",
            "kind": chain.last.kind,
            "links": len(chain.links),
        }

    return record, await asyncio.gather(*(look(partition) for partition in range(record.partitions)))


def _fields(record: TopicRecord) -> dict[str, Any]:
    return {
        "name": record.name,
        "id": record.topic_id,
        "partitions": record.partitions,
        "created_at_ms": record.created_at_ms,
    }
