"""Make Spark ready to start fast, or say in one line why it can't be used here."""

from __future__ import annotations

import asyncio
import sys

from catena.errors import CatenaError
from catena.pipeline.spark.archive import make_archive


def main() -> int:
    try:
        print(asyncio.run(make_archive()))
    except CatenaError as error:
        print(error, file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
