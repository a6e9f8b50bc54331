"""Where tables are, in the object store and for other programs, and which one is a topic's.

    tables/{format}/{topic}                              the table, at a plain path or address
    tables/{format}/{topic}__errors                      its dead letters
        day={yyyy-mm-dd}/{32 hex}.parquet                files of either, written by tasks
        _catena/dead-letters/{16 hex}.json               lists of dead letters that are to be committed
        _delta_log/{20 digits}.json, metadata/...        what makes them a table: of Delta, of Iceberg

A topic that has the name of a deleted one gets a table of its own, with the first digits of its id in the name, and the
old one is left alone. Deltalake and pyiceberg open the object store by themselves; how, is told here.
"""

from __future__ import annotations

import os
import threading
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple, TypeVar

from catena.config import Settings
from catena.errors import ConfigError, StaleView, StoreRefused
from catena.objects.base import ObjectStore
from catena.runtime import Clock, Disk, Entropy
from catena.stores import s3_settings
from catena.tables.committer import Committer, OpenTable, Owner, TableState
from catena.tables.settings import TableFormat
from catena.virtual_log.topics import TopicRecord

if TYPE_CHECKING:
    from pyiceberg.catalog import Catalog

AnyState = TypeVar("AnyState", TableState, TableState | None)

ROOT = "tables"
ERRORS = "__errors"


class Storage(NamedTuple):
    """The object store, as deltalake and pyiceberg open it."""

    root: str
    """An absolute path or an s3:// address."""
    delta_options: dict[str, str]
    iceberg_properties: dict[str, str]
    catalog: str
    """Of Iceberg: an address as SQLAlchemy has it; empty: there is none."""

    @classmethod
    def of(cls, settings: Settings) -> Storage:
        """Raises ConfigError for a store that other programs can't open."""
        scheme, _, rest = settings.objects_url.partition(":")
        catalog = settings.pipeline.tables.catalog or _catalog(settings.meta_url)
        match scheme:
            case "folder":
                return cls(str(Path(rest).absolute()), {}, {}, catalog)
            case "s3":
                return _s3(settings.objects_url, catalog)
            case _:
                raise ConfigError("setting objects: tables need a store that other programs can open: folder: or s3:")

    def uri(self, key: str) -> str:
        return f"{self.root}/{key}"


def _s3(url: str, catalog: str) -> Storage:
    s3 = s3_settings(url)
    delta = {"aws_conditional_put": "etag"}
    iceberg: dict[str, str] = {}
    if s3.endpoint:
        delta |= {"aws_endpoint_url": s3.endpoint, "aws_allow_http": str(s3.endpoint.startswith("http:")).lower()}
        iceberg["s3.endpoint"] = s3.endpoint
    if s3.region:
        delta["aws_region"] = s3.region
        iceberg["s3.region"] = s3.region
    credentials = (
        ("AWS_ACCESS_KEY_ID", "s3.access-key-id"),
        ("AWS_SECRET_ACCESS_KEY", "s3.secret-access-key"),
        ("AWS_SESSION_TOKEN", "s3.session-token"),
    )
    for variable, name in credentials:
        if variable in os.environ:
            iceberg[name] = os.environ[variable]
    prefix = f"/{s3.prefix}" if s3.prefix else ""
    return Storage(f"s3://{s3.bucket}{prefix}", delta, iceberg, catalog)


def _catalog(meta_url: str) -> str:
    """Beside the meta store: a file next to its file, or the same database."""
    scheme, _, rest = meta_url.partition(":")
    match scheme:
        case "sqlite":
            return f"sqlite:///{Path(rest).absolute().parent / 'tables.db'}"
        case "postgres" | "postgresql":
            return f"postgresql+psycopg2:{rest}"
        case _:
            return ""


class TableOpener:
    def __init__(
        self,
        storage: Storage,
        objects: ObjectStore,
        disk: Disk,
        clock: Clock,
        entropy: Entropy,
        names: dict[tuple[str, ...], str] | None = None,
    ) -> None:
        """`names` are those that were found before: whoever opens tables again and again keeps them, since a look for
        one takes several requests."""
        self.storage = storage
        self._objects = objects
        self._disk = disk
        self._clock = clock
        self._entropy = entropy
        self._names = {} if names is None else names
        self._opening = threading.Lock()
        self._catalog: Catalog | None = None

    async def close(self) -> None:
        if self._catalog is not None:
            await self._disk.run(self._catalog.close)
            self._catalog = None

    async def open(self, topic: TopicRecord, kind: TableFormat) -> OpenTable:
        owner = self.owner_of(topic)
        name = await self._known(owner, kind, "")
        letters = await self._known(owner, kind, ERRORS)
        return OpenTable(
            self.committer(name, owner, kind),
            _prefix(kind, name),
            self.committer(letters, owner, kind),
            _prefix(kind, letters),
        )

    def own(self, topic: TopicRecord, kind: TableFormat, state: AnyState) -> AnyState:
        """The state of a table, which was opened by a name that was free once, or the topic's. Raises StaleView if
        another topic has taken it since: then a new look finds another name."""
        if state is not None and state.topic_id != topic.topic_id:
            for known in [each for each in self._names if each[1:3] == (topic.topic_id, kind)]:
                del self._names[known]
            raise StaleView(f"another topic has got the table that was to be that of topic {topic.name}")
        return state

    @staticmethod
    def owner_of(topic: TopicRecord) -> Owner:
        return Owner(topic.name, topic.topic_id, topic.partitions)

    async def _known(self, owner: Owner, kind: TableFormat, suffix: str) -> str:
        known = (owner.topic, owner.topic_id, kind, suffix)
        if known not in self._names:
            self._names[known] = await self._find(owner, kind, suffix)
        return self._names[known]

    async def _find(self, owner: Owner, kind: TableFormat, suffix: str) -> str:
        """The name of the owner's table, or the first that it can have. What is more particular is looked for first, so
        that a table is found again when the one that had the plain name is gone."""
        names = [f"{owner.topic}{more}{suffix}" for more in ("", f"-{owner.topic_id[:8]}", f"-{owner.topic_id}")]
        free = ""
        for name in reversed(names):
            state = await self.committer(name, owner, kind).load()
            if state is None:
                free = name
            elif state.topic_id == owner.topic_id:
                return name
        if not free:
            raise StoreRefused(f"all names for a table of topic {owner.topic} are taken: {', '.join(names)}")
        return free

    def committer(self, name: str, owner: Owner, kind: TableFormat) -> Committer:
        prefix = _prefix(kind, name)
        match kind:
            case "delta":
                from catena.tables.delta import DeltaCommitter

                return DeltaCommitter(
                    name,
                    prefix,
                    self.storage.uri(prefix),
                    owner,
                    self._objects,
                    self._disk,
                    self._clock,
                    self._entropy,
                    self.storage.delta_options,
                )
            case "iceberg":
                from catena.tables.iceberg import IcebergCommitter

                return IcebergCommitter(
                    name,
                    self.storage.uri(prefix),
                    owner,
                    self._iceberg_catalog,
                    self._disk,
                    self._clock,
                    self._entropy,
                )

    def _iceberg_catalog(self) -> Catalog:
        """Opened by the first who needs it, in whichever thread."""
        with self._opening:
            if self._catalog is None:
                from catena.tables.iceberg import open_catalog

                self._catalog = open_catalog(self.storage.catalog, self.storage.iceberg_properties)
        return self._catalog


def _prefix(kind: TableFormat, name: str) -> str:
    return f"{ROOT}/{kind}/{name}"
