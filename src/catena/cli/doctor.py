"""`catena doctor`: is everything as it must be, and if not, what is to be done?"""

from __future__ import annotations

import asyncio
import sys
from typing import TYPE_CHECKING, Annotated

import typer

from catena.cli.options import Common, Config, Data, Debug, Json, common
from catena.cli.output import print_json
from catena.cli.running import TROUBLE, has_log, reporting

if TYPE_CHECKING:
    from catena.cli.checks import Finding

STYLES = {"ok": "green", "warn": "yellow", "fail": "bold red"}


def doctor(
    context: typer.Context,
    accept: Annotated[
        bool,
        typer.Option(
            "--accept-older-meta",
            help="Go on with a meta store that was restored from a backup, and give up what was written since.",
        ),
    ] = False,
    yes: Annotated[bool, typer.Option("--yes", "-y", help="Do not ask.")] = False,
    as_json: Json = False,
    data: Data = None,
    config: Config = None,
    debug: Debug = False,
) -> None:
    """Check the stores and the machine, and say what to fix.

    Looks at Python, the settings, the folder, the object store (does it honour conditional writes?), the meta store,
    the clock, whether both stores belong together and the meta store was not set back, and whether all topics can be
    read. Exit code 3 if something failed.
    """
    options = common(context, data, config, debug, as_json)
    if accept:
        _accept(options, yes)
        return
    with reporting(options):
        findings = asyncio.run(_examine(options))
        if as_json:
            print_json([finding._asdict() for finding in findings])
        else:
            _show(findings)
    if any(finding.status == "fail" for finding in findings):
        raise typer.Exit(TROUBLE)


async def _examine(options: Common) -> list[Finding]:
    from catena.cli.checks import check_data_folder, check_python, check_settings, check_stores
    from catena.runtime import SystemClock, SystemEntropy

    about_settings, settings = check_settings(options.load_settings)
    findings = [check_python(), about_settings]
    if settings is None:
        return findings
    folder = check_data_folder(settings)
    if folder is not None:
        findings.append(folder)
    if has_log(settings) and (folder is None or folder.status != "fail"):
        findings += [finding async for finding in check_stores(settings, SystemClock(), SystemEntropy())]
    return findings


def _accept(options: Common, yes: bool) -> None:
    from catena.cli.older_meta import accept, look, loss

    with reporting(options):
        settings = options.load_settings()
        compared = asyncio.run(look(settings))
        if not compared.is_behind:
            _say(options, "there is nothing to accept: the meta store was not set back", accepted=False)
            return
        if not options.as_json:
            print("\n".join(loss(compared)))
    if not yes:
        if not sys.stdin.isatty():
            raise typer.BadParameter("nobody is there to be asked: say --yes to accept that", param_hint="--yes")
        typer.confirm("Give that up for good?", abort=True, err=True)
    with reporting(options):
        accepted = asyncio.run(accept(settings))
        words = f"accepted, incarnation {accepted.number}: start all nodes again, those that run too"
        _say(options, words, accepted=True, incarnation=accepted.number)


def _say(options: Common, words: str, **fields: object) -> None:
    if options.as_json:
        print_json({**fields, "message": words})
    else:
        print(words)


def _show(findings: list[Finding]) -> None:
    from rich.console import Console
    from rich.table import Table
    from rich.text import Text

    table = Table(box=None, pad_edge=False, padding=(0, 2, 0, 0), show_header=False)
    for check, status, found, advice in findings:
        # As text and not as markup: what was found may hold brackets.
        words = Text(found)
        if advice:
            words.append(f"\n-> {advice}", style=STYLES[status])
        table.add_row(Text(status, style=STYLES[status]), Text(check), words)
    console = Console(highlight=False)
    console.print(table)
    bad = [finding for finding in findings if finding.status == "fail"]
    console.print(f"\n{len(bad)} to fix, see the arrows" if bad else "\nnothing to fix")
