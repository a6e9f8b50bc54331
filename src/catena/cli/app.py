"""The `catena` command: what it is called, what its help teaches, and where its parts are."""

from __future__ import annotations

from typing import Annotated

import typer

from catena.cli import chain, cluster, consume, cost, doctor, loadtest, pipeline, produce, serve, sql, topic
from catena.cli.options import Common, Config, Data, Debug
from catena.cli.output import give_up_closed_output, reopen_closed_streams, survive_narrow_encodings

HELP = """A log made of many stores: topics in a folder, in S3, in a database. Speaks Kafka, or needs no server at all.

[bold]Try it[/bold]

  catena topic create orders --partitions 3
  seq 1000 | catena produce orders
  catena consume orders --from earliest
  catena consume orders --from latest --follow
  catena chain orders 0
  catena sql "select count(*) from orders"

[bold]For Kafka clients[/bold]

  catena serve                       a node on port 9092, over the same folder
  catena cluster up --nodes 3        three of them; catena cluster down ends them

[bold]For what is old[/bold]

  catena pipeline tier               large segments instead of many small pieces, on Spark
  catena pipeline compact            the last record of each key only, in topics that ask for it
  catena pipeline run                the same pass after pass, as a service
  catena pipeline vacuum, audit      delete what nothing refers to; look whether all is sound

[bold]What it costs[/bold]

  catena cost                        a month of this traffic on S3, and on Kafka in three zones

[bold]Where the records are[/bold]

  In the folder [cyan]./data[/cyan], which any number of processes of this host may use:
  bytes as files in data/objects, metadata in data/meta.db. Elsewhere by

  --data DIR      another folder
  --config FILE   settings as TOML: data, objects, meta
  environment     the same as CATENA_DATA, CATENA_OBJECTS, CATENA_META

  objects = "s3://BUCKET/PREFIX?endpoint=URL&region=NAME"
  meta = "postgres://USER@HOST/DATABASE", or "objects:" for the bucket itself

[bold]Exit codes[/bold]

  0 done; 1 some of the work failed; 2 wrong usage, settings, topic or offset;
  3 a store is down, full, refused or damaged; 130 interrupted.
"""

EPILOG = "Is something wrong? [cyan]catena doctor[/cyan]. From Python: [cyan]help(catena.open)[/cyan]."

app = typer.Typer(
    name="catena",
    help=HELP,
    epilog=EPILOG,
    no_args_is_help=True,
    add_completion=False,
    rich_markup_mode="rich",
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
)
app.add_typer(topic.app, name="topic")
app.add_typer(cluster.app, name="cluster")
app.add_typer(pipeline.app, name="pipeline")
app.add_typer(loadtest.app, name="loadtest")
app.command()(serve.serve)
app.command()(produce.produce)
app.command()(consume.consume)
app.command()(sql.sql)
app.command()(chain.chain)
app.command()(cost.cost)
app.command()(doctor.doctor)


def _show_version(wanted: bool) -> None:
    if wanted:
        from importlib.metadata import version

        print(f"catena {version('catena-log')}")
        raise typer.Exit


@app.callback()
def before_the_command(
    context: typer.Context,
    data: Data = None,
    config: Config = None,
    debug: Debug = False,
    _: Annotated[
        bool, typer.Option("--version", callback=_show_version, is_eager=True, help="Show the version and end.")
    ] = False,
) -> None:
    context.obj = Common(data, config, debug)


def main() -> None:
    reopen_closed_streams()
    survive_narrow_encodings()
    try:
        app()
    finally:
        give_up_closed_output()
