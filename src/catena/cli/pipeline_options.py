"""Options that the commands of `catena pipeline` share."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, TypeAlias

import typer

from catena.errors import ConfigError

if TYPE_CHECKING:
    from catena.jobs import Which

OnTopic: TypeAlias = Annotated[
    str | None, typer.Option("--topic", metavar="TOPIC", help="Only this one.", show_default=False)
]
OnPartition: TypeAlias = Annotated[
    int | None, typer.Option("--partition", min=0, help="Only this one of the topic.", show_default=False)
]
DryRun: TypeAlias = Annotated[bool, typer.Option("--dry-run", help="Show what would be done, and do nothing.")]
Master: TypeAlias = Annotated[
    str | None,
    typer.Option(
        "--master",
        metavar="URL",
        help="Spark's master: local[4], spark://HOST:7077, k8s://... This machine if nothing is said.",
        show_default=False,
    ),
]
Remote: TypeAlias = Annotated[
    str | None,
    typer.Option("--remote", metavar="URL", help="A Spark Connect server: sc://HOST:15002.", show_default=False),
]


def which_of(topic: str | None, partition: int | None) -> Which:
    from catena.jobs import Which

    if partition is not None and topic is None:
        raise ConfigError("option --partition: say of which topic, with --topic")
    return Which(topic, partition)
