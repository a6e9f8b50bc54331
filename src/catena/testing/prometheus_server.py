"""A real Prometheus for tests, on a free port of 127.0.0.1: Debian's package, or whatever is in PATH or in `.dev`."""

from __future__ import annotations

import json
import socket
import subprocess
import time
import urllib.error
import urllib.request
from pathlib import Path
from typing import Any
from urllib.parse import urlencode

from catena.errors import ConfigError
from catena.loadtest.observe import find_prometheus

START_SECONDS = 30
STOP_SECONDS = 5
POLL_SECONDS = 0.1


class PrometheusMissing(Exception):
    """It is not installed, or does not start; says why."""


class PrometheusServer:
    """`start` and `stop` it. `config` is what `prometheus.yml` would be; JSON is YAML."""

    def __init__(self, folder: Path, config: dict[str, Any]) -> None:
        try:
            self._binary = find_prometheus()
        except ConfigError as error:
            raise PrometheusMissing(str(error)) from None
        self._folder = folder
        self._config = config
        self._port = 0
        self._process: subprocess.Popen[bytes] | None = None

    def start(self) -> None:
        self._folder.mkdir(exist_ok=True)
        (self._folder / "prometheus.yml").write_text(json.dumps(self._config))
        with socket.socket() as free:
            free.bind(("127.0.0.1", 0))
            self._port = free.getsockname()[1]
        with (self._folder / "log").open("wb") as log:
            self._process = subprocess.Popen(
                [
                    self._binary,
                    f"--config.file={self._folder / 'prometheus.yml'}",
                    f"--storage.tsdb.path={self._folder / 'data'}",
                    f"--web.listen-address=127.0.0.1:{self._port}",
                ],
                cwd=self._folder,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=subprocess.STDOUT,
            )
        if not self._comes_up():
            self.stop()
            raise PrometheusMissing(f"it does not start: {(self._folder / 'log').read_text()[-1000:]}")

    def query(self, expression: str) -> list[dict[str, Any]]:
        """The samples that it has now. Raises ValueError if it does not understand it."""
        answer = self._get("/api/v1/query", query=expression)
        if answer["status"] != "success":
            raise ValueError(f"{expression}: {answer.get('error')}")
        result = answer["data"]["result"]
        if answer["data"]["resultType"] == "scalar":
            return [{"metric": {}, "value": result}]
        found: list[dict[str, Any]] = result
        return found

    def rules(self) -> list[dict[str, Any]]:
        """Of all groups, with the state and the last error of each."""
        groups = self._get("/api/v1/rules")["data"]["groups"]
        return [rule for group in groups for rule in group["rules"]]

    def _get(self, path: str, **parameters: str) -> dict[str, Any]:
        address = f"http://127.0.0.1:{self._port}{path}?{urlencode(parameters)}"
        opener = urllib.request.build_opener(urllib.request.ProxyHandler({}))
        try:
            with opener.open(address, timeout=30) as answer:
                found: dict[str, Any] = json.load(answer)
        except urllib.error.HTTPError as error:
            found = json.load(error)
        return found

    def _comes_up(self) -> bool:
        assert self._process is not None
        deadline = time.monotonic() + START_SECONDS
        while self._process.poll() is None and time.monotonic() < deadline:
            try:
                self._get("/api/v1/query", query="1")
                return True
            except (OSError, ValueError):
                time.sleep(POLL_SECONDS)
        return False

    def stop(self) -> None:
        assert self._process is not None
        self._process.terminate()
        try:
            self._process.wait(STOP_SECONDS)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()
