"""Settings: what they are called, what they default to, and where they come from.

Later wins: defaults, a TOML file (`--config FILE` or CATENA_CONFIG), the environment (CATENA_META, and
CATENA_DISKLESS__WRITER__BATCH_MAX_BYTES for a nested one), options on the command line. An unknown or impossible
setting is an error that names it.
"""

from __future__ import annotations

import tomllib
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import msgspec

from catena.broker.settings import KafkaSettings
from catena.cluster.membership import MembershipSettings
from catena.cluster.view import BROKER
from catena.errors import ConfigError
from catena.loglets.diskless.loglet import DisklessSettings
from catena.loglets.tiered.loglet import TieredSettings
from catena.pipeline.settings import PipelineSettings

ENV_PREFIX = "CATENA_"
NOT_SETTINGS = ("CATENA_CONFIG", "CATENA_REQUIRE", "CATENA_TOKEN")
"""CATENA_TOKEN is for those who ask a node; its own is CATENA_HTTP__TOKEN."""


ROLES = (BROKER,)


class NodeSettings(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Who a node is among others."""

    id: int | None = None
    """None: the lowest that no node has."""
    rack: str | None = None
    roles: tuple[str, ...] = ROLES

    def __post_init__(self) -> None:
        for role in self.roles:
            if role not in ROLES:
                raise ConfigError(f"setting roles: there is no role {role!r}, only {', '.join(ROLES)}")


class HttpSettings(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    host: str = "127.0.0.1"
    port: int = 0
    """0: any free one."""
    token: str = ""
    """Whoever sends it may have reads planned, and gets links to objects. Empty: nobody may."""
    links_valid_ms: int = 3_600_000

    def __post_init__(self) -> None:
        plain = self.token.isascii() and self.token.isprintable() and self.token == self.token.strip()
        if self.token and not (16 <= len(self.token) <= 256 and plain):
            raise ConfigError(
                "setting http.token has 16 to 256 characters of ASCII, so that nobody guesses it; no space at its ends"
            )
        if not 1_000 <= self.links_valid_ms <= 7 * 86_400_000:
            raise ConfigError("setting http.links_valid_ms is from 1000 (a second) to 604800000 (7 days)")


class Settings(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    data: str = "data"
    """Folder of the embedded default."""
    meta: str = ""
    """`sqlite:PATH`, `postgres://...`, `objects:` (in the object store) or `memory:`; empty: SQLite in `data`."""
    objects: str = ""
    """`folder:PATH`, `s3://BUCKET/PREFIX?endpoint=URL&region=R` or `memory:`; empty: a folder in `data`."""
    diskless: DisklessSettings = DisklessSettings()
    tiered: TieredSettings = TieredSettings()
    pipeline: PipelineSettings = PipelineSettings()
    node: NodeSettings = NodeSettings()
    cluster: MembershipSettings = MembershipSettings()
    kafka: KafkaSettings = KafkaSettings()
    http: HttpSettings = HttpSettings()

    @property
    def meta_url(self) -> str:
        return self.meta or f"sqlite:{Path(self.data) / 'meta.db'}"

    @property
    def objects_url(self) -> str:
        return self.objects or f"folder:{Path(self.data) / 'objects'}"


def load(file: str | None = None, environment: Mapping[str, str] | None = None, **options: Any) -> Settings:
    environment = environment or {}
    values: dict[str, Any] = {}
    file = file or environment.get("CATENA_CONFIG")
    if file:
        _merge(values, _read(file))
    variables = [name for name in environment if name.startswith(ENV_PREFIX) and name not in NOT_SETTINGS]
    for name in variables:
        _put(values, name, environment[name])
    given = {name: value for name, value in options.items() if value is not None}
    _merge(values, given)
    try:
        return msgspec.convert(values, Settings, strict=False)
    except msgspec.ValidationError as error:
        places = ", ".join([*([file] if file else []), *variables, *(f"the option {name}" for name in given)])
        raise ConfigError(f"settings: {error}; they were read from {places}") from None


def _read(file: str) -> dict[str, Any]:
    try:
        return tomllib.loads(Path(file).read_text("utf-8"))
    except OSError as error:
        raise ConfigError(f"settings file {file}: {error.strerror}") from None
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise ConfigError(f"settings file {file}: {error}") from None


def _merge(into: dict[str, Any], more: Mapping[str, Any]) -> None:
    for name, value in more.items():
        if isinstance(value, Mapping) and isinstance(into.get(name), dict):
            _merge(into[name], value)
        else:
            into[name] = value


def _put(into: dict[str, Any], variable: str, value: str) -> None:
    *groups, last = variable.removeprefix(ENV_PREFIX).lower().split("__")
    for name in groups:
        into = into.setdefault(name, {})
        if not isinstance(into, dict):
            raise ConfigError(f"settings: {variable} names a setting in {name}, which is not a group of settings")
    into[last] = value
