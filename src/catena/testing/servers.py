"""PostgreSQL and SeaweedFS in a process of their own, for local clusters of nodes that are processes as well.

    python -m catena.testing.servers FOLDER [postgres] [s3]

Starts the servers that are named, with their data below FOLDER, and prints one line of JSON: the settings, as variables
of the environment, with which nodes reach them. Ends them when it gets SIGTERM.
"""

from __future__ import annotations

import json
import os
import signal
import sys
from contextlib import ExitStack
from pathlib import Path
from types import FrameType

from catena.testing.postgres_server import PostgresMissing, PostgresServer
from catena.testing.s3_server import ACCESS_KEY, BUCKET, SECRET_KEY, S3ServerError, SeaweedServer

ENDS = (signal.SIGTERM, signal.SIGINT)


def main(folder: Path, names: list[str]) -> int:
    for number in ENDS:
        signal.signal(number, _end)
    with ExitStack() as servers:
        try:
            environment = start(folder, names, servers)
        except (PostgresMissing, S3ServerError) as error:
            print(error, file=sys.stderr)
            return 1
        print(json.dumps(environment), flush=True)
        while True:
            signal.pause()


def start(folder: Path, names: list[str], servers: ExitStack) -> dict[str, str]:
    environment = {}
    if "postgres" in names:
        place = folder / "postgres"
        place.mkdir(exist_ok=True)
        # If it is interrupted while it starts, it ends by itself with this process.
        environment["CATENA_META"] = servers.enter_context(PostgresServer(place)).dsn
    if "s3" in names:
        s3 = SeaweedServer(folder / "s3")
        servers.callback(s3.stop)
        s3.start()
        environment |= {
            "CATENA_OBJECTS": f"s3://{BUCKET}?endpoint={s3.endpoint}&region=us-east-1&lists_as_tree=true",
            "AWS_ACCESS_KEY_ID": ACCESS_KEY,
            "AWS_SECRET_ACCESS_KEY": SECRET_KEY,
            "NO_PROXY": os.environ["NO_PROXY"],
        }
    return environment


def _end(_number: int, _frame: FrameType | None) -> None:
    for number in ENDS:
        signal.signal(number, signal.SIG_IGN)
    raise SystemExit(0)


if __name__ == "__main__":
    sys.exit(main(Path(sys.argv[1]), sys.argv[2:]))
