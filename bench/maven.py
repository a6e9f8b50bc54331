"""Jars from Maven Central: fetched once, by mvn, into `.dev` of the checkout."""

from __future__ import annotations

import os
import shutil
import subprocess
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

from bench.serving import Missing

MADE_HERE = Path(__file__).parents[1] / ".dev"
FETCH_MAX_S = 900


NOTHING_ELSE = "<exclusions><exclusion><groupId>*</groupId><artifactId>*</artifactId></exclusion></exclusions>"


class Artifact(NamedTuple):
    group: str
    name: str
    version: str
    is_alone: bool = False
    """Without what it needs: all of that is there, or named as well."""

    @property
    def dependency(self) -> str:
        return f"""<dependency><groupId>{self.group}</groupId><artifactId>{self.name}</artifactId>
<version>{self.version}</version>{NOTHING_ELSE if self.is_alone else ""}</dependency>"""


def fetch_jars(artifacts: Sequence[Artifact], variable: str) -> Path:
    """The folder with the jars; the variable may name one that has them already."""
    artifact = artifacts[0]
    given = os.environ.get(variable)
    jars = Path(given) if given else MADE_HERE / f"{artifact.name}-{artifact.version}"
    if any(jars.glob(f"{artifact.name}-*.jar")):
        return jars
    if given:
        raise Missing(f"{variable}: there is no {artifact.name} in {jars}")
    for program in ("java", "mvn"):
        if shutil.which(program) is None:
            raise Missing(f"{artifact.name} needs {program}, which is not on the PATH")
    fetched = jars.with_name(f"{jars.name}.part")
    shutil.rmtree(fetched, ignore_errors=True)
    fetched.mkdir(parents=True)
    (fetched / "pom.xml").write_text(
        "<project><modelVersion>4.0.0</modelVersion><groupId>bench</groupId><artifactId>bench</artifactId>"
        f"<version>1</version><dependencies>{''.join(each.dependency for each in artifacts)}</dependencies></project>"
    )
    command = ["mvn", "-q", "-B", f"-Dmaven.repo.local={fetched / 'repository'}", "dependency:copy-dependencies"]
    command += [f"-DoutputDirectory={fetched / 'jars'}", "-DincludeScope=runtime"]
    result = subprocess.run(command, cwd=fetched, capture_output=True, text=True, timeout=FETCH_MAX_S, check=False)
    if result.returncode:
        raise Missing(f"mvn could not fetch {artifact.name} {artifact.version}: {result.stdout[-1000:]}")
    (fetched / "jars").rename(jars)
    shutil.rmtree(fetched)
    return jars
