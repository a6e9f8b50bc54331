"""Settings come from a file, the environment and options, in this order; what is wrong is named."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

import msgspec
import pytest

from catena.config import Settings, load, without_password
from catena.errors import ConfigError


@pytest.fixture
def file(tmp_path: Path) -> Path:
    path = tmp_path / "catena.toml"
    path.write_text(
        """
        data = "from the file"
        meta = "memory:"

        [diskless]
        tail_cache_bytes = 1000

        [diskless.writer]
        batch_max_bytes = 2000
        batch_max_delay_ms = 3
        """
    )
    return path


def test_the_defaults_are_a_folder_with_sqlite_in_it() -> None:
    assert load() == Settings()
    assert load(data="here").meta_url == "sqlite:here/meta.db"
    assert load(data="here").objects_url == "folder:here/objects"


def test_an_address_that_is_given_counts() -> None:
    settings = load(data="here", meta="postgres://db", objects="s3://bucket/prefix")
    assert (settings.meta_url, settings.objects_url) == ("postgres://db", "s3://bucket/prefix")


def test_a_file_is_read(file: Path) -> None:
    settings = load(str(file))
    assert (settings.data, settings.meta) == ("from the file", "memory:")
    assert settings.diskless.tail_cache_bytes == 1000
    assert settings.diskless.writer.batch_max_bytes == 2000
    assert settings.diskless.writer.uploads_in_flight == Settings().diskless.writer.uploads_in_flight


def test_roles_in_the_environment_are_separated_by_commas(tmp_path: Path) -> None:
    assert load().node.roles == ("write", "read")
    assert load(environment={"CATENA_NODE__ROLES": "read"}).node.roles == ("read",)
    assert load(environment={"CATENA_NODE__ROLES": "write, read"}).node.roles == ("write", "read")
    file = tmp_path / "catena.toml"
    file.write_text('[node]\nroles = ["write"]')
    assert load(str(file)).node.roles == ("write",)
    file.write_text("[node]\nroles = []")
    with pytest.raises(ConfigError, match="without any"):
        load(str(file))


def test_the_environment_wins_over_the_file_and_options_over_both(file: Path) -> None:
    environment = {
        "CATENA_CONFIG": str(file),
        "CATENA_DATA": "from the environment",
        "CATENA_META": "sqlite:x",
        "CATENA_DISKLESS__WRITER__BATCH_MAX_BYTES": "4000",
        "CATENA_REQUIRE": "postgres",
        "HOME": "not ours",
    }
    settings = load(environment=environment, data="from an option", meta=None)
    assert (settings.data, settings.meta) == ("from an option", "sqlite:x")
    writer = settings.diskless.writer
    assert (writer.batch_max_bytes, writer.batch_max_delay_ms) == (4000, 3)


def test_a_file_that_is_named_wins_over_the_one_of_the_environment(file: Path, tmp_path: Path) -> None:
    other = tmp_path / "other.toml"
    other.write_text('data = "from the other"')
    assert load(str(other), {"CATENA_CONFIG": str(file)}).data == "from the other"


@pytest.mark.parametrize(
    ("text", "named"),
    [
        ("dta = 'x'", "dta"),
        ("[diskless]\nwriter = 3", "writer"),
        ("[diskless.writer]\nbatch_max_byte = 3", "batch_max_byte"),
        ("[diskless.writer]\nbatch_max_bytes = 'many'", "batch_max_bytes"),
        ("data = [1]", "data"),
        ("data = ", "catena.toml"),
        ("data = '\xff'", "catena.toml"),
    ],
)
def test_what_is_wrong_in_a_file_is_named(file: Path, text: str, named: str) -> None:
    file.write_bytes(text.encode("latin-1"))
    with pytest.raises(ConfigError, match=named):
        load(str(file))


@pytest.mark.parametrize(
    ("name", "value", "named"),
    [
        ("CATENA_DTA", "x", "dta"),
        ("CATENA_DISKLESS", "x", "diskless"),
        ("CATENA_DISKLESS__WRITER__UPLOADS_IN_FLIGHT", "few", "uploads_in_flight"),
        ("CATENA_DISKLESS__WRITER", "x", "writer"),
        ("CATENA_META__URL", "x", "CATENA_META__URL"),
    ],
)
def test_what_is_wrong_in_the_environment_is_named(name: str, value: str, named: str) -> None:
    with pytest.raises(ConfigError, match=named):
        load(environment={"CATENA_META": "memory:", name: value})


@pytest.mark.parametrize(
    ("setting", "least"),
    [
        ("WRITER__BATCH_MAX_BYTES", 1),
        ("WRITER__BATCH_MAX_DELAY_MS", 0),
        ("WRITER__UPLOADS_IN_FLIGHT", 1),
        ("WRITER__BUFFER_MAX_BYTES", 1),
        ("WRITER__COMMIT_DEADLINE_MS", 1),
        ("TAIL_CACHE_BYTES", 0),
        ("BLOB_CACHE_BYTES", 0),
    ],
)
def test_every_number_has_a_bound(setting: str, least: int) -> None:
    variable = f"CATENA_DISKLESS__{setting}"
    load(environment={variable: f"{least}"})
    with pytest.raises(ConfigError, match=setting.rpartition("__")[2].lower()):
        load(environment={variable: f"{least - 1}"})


def test_a_file_that_cannot_be_read_is_named(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"missing\.toml"):
        load(str(tmp_path / "missing.toml"))
    with pytest.raises(ConfigError, match=str(tmp_path)):
        load(str(tmp_path))


def _names(settings: type[msgspec.Struct], prefix: str = "") -> Iterator[str]:
    for field in msgspec.structs.fields(settings):
        default = field.default if field.default is not msgspec.NODEFAULT else field.default_factory()
        if isinstance(default, msgspec.Struct):
            yield from _names(type(default), f"{prefix}{field.name}.")
        elif isinstance(default, dict):
            (example,) = default.values()
            yield from _names(type(example), f"{prefix}{field.name}.NAME.")
        else:
            yield prefix + field.name


def test_the_page_of_settings_has_them_all() -> None:
    page = (Path(__file__).parent.parent / "docs" / "settings.md").read_text()
    assert sorted(re.findall(r"^\| `([a-zA-Z_.]+)` \|", page, re.MULTILINE)) == sorted(_names(Settings))


@pytest.mark.parametrize(
    ("url", "shown"),
    [
        ("sqlite:data/meta.db", "sqlite:data/meta.db"),
        ("postgres://me:secret@host:1/db", "postgres://me@host:1/db"),
        ("postgresql://postgres@/db?host=/run/pg&password=secret", "postgresql://postgres@/db?host=/run/pg"),
        ("postgresql://host/db?sslpassword=secret&x=1", "postgresql://host/db?x=1"),
        ("http://me:secret@host:8080/metrics", "http://me@host:8080/metrics"),
        ("http://host:8080/metrics?Token=secret", "http://host:8080/metrics"),
        ("http://me:secret@[host:8080", "http://..."),
        ("s3://bucket/p?endpoint=http://h:1&region=r", "s3://bucket/p?endpoint=http://h:1&region=r"),
    ],
)
def test_passwords_are_not_shown(url: str, shown: str) -> None:
    assert without_password(url) == shown
