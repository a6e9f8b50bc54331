"""`python -m catena.cli`: the `catena` command of exactly this Python, wherever its script may be."""

from catena.cli import main

main()
