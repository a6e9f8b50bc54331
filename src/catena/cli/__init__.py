"""The command line: `catena`. One file for each group of commands; what is heavy is imported when a command runs."""

from catena.cli.app import main

__all__ = ["main"]
