"""Options that every command has. They may stand before the command or after it; after it wins."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, NamedTuple, TypeAlias

import typer

if TYPE_CHECKING:
    from catena.config import Settings

PLACE = "Where the log is"

Data: TypeAlias = Annotated[
    str | None,
    typer.Option("--data", metavar="DIR", help="Its folder; ./data if nothing is said.", rich_help_panel=PLACE),
]
Config: TypeAlias = Annotated[
    str | None,
    typer.Option("--config", metavar="FILE", help="A TOML file with settings.", rich_help_panel=PLACE),
]
Debug: TypeAlias = Annotated[bool, typer.Option("--debug", help="Show where an error comes from, and what is logged.")]
Json: TypeAlias = Annotated[bool, typer.Option("--json", help="For programs: JSON, also for an error.")]
Topic: TypeAlias = Annotated[str, typer.Argument(metavar="TOPIC", help="Name of the topic.", show_default=False)]


class Common(NamedTuple):
    data: str | None = None
    config: str | None = None
    debug: bool = False
    as_json: bool = False

    def load_settings(self) -> Settings:
        import os

        from catena.config import load

        return load(self.config, os.environ, data=self.data)


def common(context: typer.Context, data: str | None, config: str | None, debug: bool, as_json: bool = False) -> Common:
    """What was said after the command, and before it."""
    before: Common = context.obj or Common()
    return Common(data or before.data, config or before.config, debug or before.debug, as_json)
