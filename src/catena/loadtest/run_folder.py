"""The run directory: `<utc>-<scenario>/`, all that another engineer needs to audit a run, and no secret.

| file | what it is |
|---|---|
| `resolved-config.json` | the scenario with every default; with `stack.json` the truth for all later commands |
| `stack.json` | what was started: names, addresses, process ids with their start times |
| `environment.json` | versions, CPUs, memory, commit |
| `routing-manifest.json` | which nodes a partition's HTTP requests go to |
| `logs/` | of every process |
| `client.jsonl`, `client-summary.json` | what hammers saw, for each interval, and in all |
| `remap-events.jsonl` | when HTTP hammers stopped asking a node, and asked it again |
| `events.jsonl` | what was done to processes |
| `metrics.jsonl` | what nodes counted: their own answers, whole |
| `processes.jsonl`, `host.jsonl` | CPU, memory, descriptors, threads; the host's CPU, memory, disks |
| `summary.json`, `report.html` | what came of it |

The data folder, `.data/<run>` beside it, has what the stores hold, the state of the processes and the hammers'
ledgers. Files are replaced as a whole, so a command that is killed leaves the old or the new one. Lines of `.jsonl`
are flushed one by one; the last one may be torn, and is left out when they are read.
"""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, TypeVar

import msgspec

from catena.errors import ConfigError, Corrupt
from catena.loadtest.scenario import Scenario
from catena.local_cluster.processes import Process

T = TypeVar("T")

CONFIG, STACK, ENVIRONMENT = "resolved-config.json", "stack.json", "environment.json"
MANIFEST, SUMMARY, REPORT, CLIENT_SUMMARY = (
    "routing-manifest.json",
    "summary.json",
    "report.html",
    "client-summary.json",
)
CLIENT, REMAPS, EVENTS = "client.jsonl", "remap-events.jsonl", "events.jsonl"
METRICS, PROCESSES, HOST = "metrics.jsonl", "processes.jsonl", "host.jsonl"
LINES = (CLIENT, REMAPS, EVENTS, METRICS, PROCESSES, HOST)
ARTIFACTS = (CONFIG, STACK, ENVIRONMENT, MANIFEST, CLIENT_SUMMARY, *LINES)
"""What every run must have left."""
LOG_MAX_BYTES = 32 << 20
"""Of each log is kept: its end."""
SAME_SECOND_MAX = 100


class StackNode(msgspec.Struct, frozen=True):
    name: str
    id: int
    kafka: str
    http: str
    process: Process | None


class Beside(msgspec.Struct, frozen=True):
    """A process beside the nodes."""

    process: Process
    http: str = ""


class StackState(msgspec.Struct):
    run: str
    scenario: str
    state: str = "starting"
    """`starting`, `up` or `down`."""
    has_run: bool = False
    nodes: list[StackNode] = []
    servers: Process | None = None
    """Holds those of the stores."""
    pipeline: Beside | None = None
    prometheus: Beside | None = None
    commands: list[Process] = []
    """On the stores, for a while: an audit, say."""

    @property
    def bootstrap(self) -> str:
        return ",".join(node.kafka for node in self.nodes)


class RunFolder:
    def __init__(self, path: Path) -> None:
        self.path = path.absolute()
        self.name = self.path.name
        self.data = self.path.parent / ".data" / self.name
        self.logs = self.path / "logs"
        self.ledgers = self.data / "ledgers"

    @classmethod
    def create(cls, results: Path, scenario: Scenario, now_ms: int) -> RunFolder:
        results.mkdir(parents=True, exist_ok=True)
        stamp = datetime.fromtimestamp(now_ms / 1000, UTC).strftime("%Y%m%dT%H%M%SZ")
        for number in range(SAME_SECOND_MAX):
            folder = cls(results / f"{stamp}-{scenario.name}{f'-{number + 1}' if number else ''}")
            try:
                folder.path.mkdir()
            except FileExistsError:
                continue
            for each in (folder.logs, folder.ledgers):
                each.mkdir(parents=True)
            for name in LINES:
                (folder.path / name).touch()
            folder.write(CONFIG, scenario)
            folder.write(STACK, StackState(folder.name, scenario.name))
            return folder
        raise ConfigError(f"there are {SAME_SECOND_MAX} runs of this second in {results}")

    def scenario(self) -> Scenario:
        return self.read(CONFIG, Scenario)

    def stack(self) -> StackState:
        return self.read(STACK, StackState)

    def read(self, name: str, kind: type[T]) -> T:
        try:
            return msgspec.json.decode((self.path / name).read_bytes(), type=kind)
        except (FileNotFoundError, NotADirectoryError):
            raise ConfigError(
                f"{self.path} has no {name}: it is no run directory, or the run did not come so far"
            ) from None
        except msgspec.MsgspecError as error:
            raise Corrupt(f"{self.path / name} can't be read: {error}") from error

    def write(self, name: str, value: Any) -> None:
        self.write_bytes(name, msgspec.json.format(msgspec.json.encode(value), indent=1) + b"\n")

    def write_bytes(self, name: str, content: bytes) -> None:
        new = self.path / f".{name}.new"
        new.write_bytes(content)
        os.replace(new, self.path / name)

    def append(self, name: str, *lines: Any) -> None:
        with (self.path / name).open("ab") as file:
            file.write(b"".join(msgspec.json.encode(line) + b"\n" for line in lines))

    def lines(self, name: str, kind: type[T]) -> Iterator[T]:
        """None where there is no such file. A torn last line is left out."""
        decoder = msgspec.json.Decoder(kind)
        try:
            file = (self.path / name).open("rb")
        except FileNotFoundError:
            return
        with file:
            for line in file:
                if line.endswith(b"\n"):
                    yield decoder.decode(line)

    def keep_log(self, source: Path, name: str) -> None:
        """Copy the end of a log; nothing if there is none."""
        if not source.exists():
            return
        with source.open("rb") as log, (self.logs / name).open("wb") as copy:
            log.seek(max(0, source.stat().st_size - LOG_MAX_BYTES))
            shutil.copyfileobj(log, copy)

    def purge(self) -> None:
        shutil.rmtree(self.data, ignore_errors=True)


def find_run(results: Path, scenario: str, is_up: bool) -> RunFolder | None:
    """The newest run of this scenario; `is_up`: among those whose stack runs, or has begun to."""
    # A name is a time first, so the last one is the newest.
    for path in sorted(results.glob(f"*-{scenario}*"), reverse=True):
        folder = RunFolder(path)
        if not (path / STACK).exists():
            continue
        stack = folder.stack()
        if stack.scenario == scenario and (not is_up or stack.state != "down"):
            return folder
    return None
