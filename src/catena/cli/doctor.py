"""`catena doctor`."""

from __future__ import annotations
import typer


def doctor(context: typer.Context) -> None:
    """Check."""
