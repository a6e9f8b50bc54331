"""Settings: what they are called, what they default to, and where they come from.

Later wins: defaults, a TOML file (`--config FILE` or CATENA_CONFIG), the environment (CATENA_META, and
CATENA_DISKLESS__WRITER__BATCH_MAX_BYTES for a nested one), options on the command line. An unknown or impossible
setting is an error that names it.
"""

from __future__ import annotations

import tomllib
from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Any
from urllib.parse import parse_qsl, urlencode, urlsplit

import msgspec

from catena.broker.settings import KafkaSettings
from catena.cluster.membership import MembershipSettings
from catena.cluster.view import ROLES
from catena.errors import ConfigError
from catena.loglets.diskless.loglet import DisklessSettings
from catena.loglets.tiered.loglet import TieredSettings
from catena.pipeline.settings import PipelineSettings

ENV_PREFIX = "CATENA_"
NOT_SETTINGS = ("CATENA_CONFIG", "CATENA_REQUIRE", "CATENA_TOKEN")
"""CATENA_TOKEN is for those who ask a node; its own is CATENA_HTTP__TOKEN."""


class NodeSettings(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Who a node is among others."""

    id: int | None = None
    """None: the lowest that no node has."""
    rack: str | None = None
    roles: tuple[str, ...] = ROLES
    """What it does for clients: takes what they write, serves what they read, or both."""

    def __post_init__(self) -> None:
        if not self.roles:
            raise ConfigError(f"setting node.roles: a node without any does nothing; there are {', '.join(ROLES)}")
        for role in self.roles:
            if role not in ROLES:
                raise ConfigError(f"setting node.roles: there is no role {role!r}, only {', '.join(ROLES)}")


class HttpSettings(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    host: str = "127.0.0.1"
    port: int = 0
    """0: any free one."""
    token: str = ""
    """Whoever sends it may produce and consume, have reads planned, and gets links to objects. Empty: everybody may
    produce and consume, as through the Kafka listeners, and nobody the rest."""
    links_valid_ms: int = 3_600_000
    max_requests_per_s: Annotated[int, msgspec.Meta(ge=0)] = 0
    """To produce, consume and fence, of all clients; more get 429. 0: any number."""
    max_connections: Annotated[int, msgspec.Meta(ge=4)] = 1024
    """Up to three quarters of them may wait for more to be written."""
    hot_records_bytes: Annotated[int, msgspec.Meta(ge=0)] = 32 << 20
    """The newest records that came in over HTTP, for those who read them over HTTP."""

    def __post_init__(self) -> None:
        plain = self.token.isascii() and self.token.isprintable() and self.token == self.token.strip()
        if self.token and not (16 <= len(self.token) <= 256 and plain):
            raise ConfigError(
                "setting http.token has 16 to 256 characters of ASCII, so that nobody guesses it; no space at its ends"
            )
        if not 1_000 <= self.links_valid_ms <= 7 * 86_400_000:
            raise ConfigError("setting http.links_valid_ms is from 1000 (a second) to 604800000 (7 days)")


class MetricsSettings(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """What a node tells of itself, and what it may ask the stores for that, when somebody wants to know."""

    topics: Annotated[int, msgspec.Meta(ge=0, le=1000)] = 50
    """The largest so many are told of one by one, the others as one."""
    groups: Annotated[int, msgspec.Meta(ge=0, le=1000)] = 50
    """The same of groups, by their lag."""
    look_every_ms: Annotated[int, msgspec.Meta(ge=1_000)] = 10_000
    """How old what it knows of topics, groups and jobs may be."""
    scan_every_ms: Annotated[int, msgspec.Meta(ge=0)] = 300_000
    """How old what it knows of stored objects may be: these are listed, by one node for all. 0: never."""
    scenario: str = ""
    """Of the load test that it runs in."""


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
    metrics: MetricsSettings = MetricsSettings()

    @property
    def meta_url(self) -> str:
        return self.meta or f"sqlite:{Path(self.data) / 'meta.db'}"

    @property
    def objects_url(self) -> str:
        return self.objects or f"folder:{Path(self.data) / 'objects'}"

    @property
    def has_log(self) -> bool:
        """False if the folder is where the log would be, and it is not there."""
        return bool(self.meta) or Path(self.data, "meta.db").exists()


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
        return parse_settings(values)
    except msgspec.ValidationError as error:
        places = ", ".join([*([file] if file else []), *variables, *(f"the option {name}" for name in given)])
        raise ConfigError(f"settings: {error}; they were read from {places}") from None


def parse_settings(values: dict[str, Any]) -> Settings:
    """Raises msgspec.ValidationError, which says where, or ConfigError."""
    _split_roles(values)
    return msgspec.convert(values, Settings, strict=False)


def _read(file: str) -> dict[str, Any]:
    try:
        return tomllib.loads(Path(file).read_text("utf-8"))
    except OSError as error:
        raise ConfigError(f"settings file {file}: {error.strerror}") from None
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise ConfigError(f"settings file {file}: {error}") from None


def is_secret(name: str) -> bool:
    """Whether what is called so is not to be shown."""
    return any(word in name.lower() for word in ("token", "password", "secret", "credential"))


def without_password(url: str) -> str:
    """An address as it may be shown."""
    scheme, separator, _ = url.partition("://")
    if not separator:
        return url
    try:
        address = urlsplit(url)
    except ValueError:
        return f"{scheme}://..."  # nobody knows what of it is a password
    user = f"{address.username}@" if address.username else ""
    place = address.netloc.rpartition("@")[2]
    query = urlencode([(name, value) for name, value in parse_qsl(address.query) if not is_secret(name)], safe="/:")
    return f"{scheme}://{user}{place}{address.path}{'?' if query else ''}{query}"


def _merge(into: dict[str, Any], more: Mapping[str, Any]) -> None:
    for name, value in more.items():
        if isinstance(value, Mapping) and isinstance(into.get(name), dict):
            _merge(into[name], value)
        else:
            into[name] = value


def _split_roles(values: dict[str, Any]) -> None:
    """Where there are no lists, as in the environment: `write,read`."""
    node = values.get("node")
    if isinstance(node, dict) and isinstance(node.get("roles"), str):
        node["roles"] = [role.strip() for role in node["roles"].split(",")]


def _put(into: dict[str, Any], variable: str, value: str) -> None:
    *groups, last = variable.removeprefix(ENV_PREFIX).lower().split("__")
    for name in groups:
        into = into.setdefault(name, {})
        if not isinstance(into, dict):
            raise ConfigError(f"settings: {variable} names a setting in {name}, which is not a group of settings")
    into[last] = value
