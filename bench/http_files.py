"""What makes a simple broker as durable as Catena on a folder and SQLite: synced files, and an index in SQLite."""

from __future__ import annotations

import os
import sqlite3
import uuid
from collections.abc import Iterable
from pathlib import Path


class Files:
    def __init__(self, folder: Path) -> None:
        self._folder = folder / "wal"
        self._folder.mkdir(parents=True)
        self._database = sqlite3.connect(folder / "index.db", check_same_thread=False)
        self._database.execute("PRAGMA journal_mode = WAL")
        self._database.execute("PRAGMA synchronous = FULL")
        self._database.execute("CREATE TABLE entries (key TEXT PRIMARY KEY, value TEXT)")

    def store(self, bodies: list[bytes]) -> Path:
        """1,024 at the most, in a new file, which is on the disk when this returns."""
        path = self._folder / uuid.uuid4().hex
        with path.open("xb", buffering=0) as file:
            os.writev(file.fileno(), bodies)
            os.fsync(file.fileno())
        directory = os.open(self._folder, os.O_RDONLY)
        os.fsync(directory)
        os.close(directory)
        return path

    def index(self, rows: Iterable[tuple[str, str]]) -> None:
        """In one transaction, which is on the disk when this returns."""
        with self._database:
            self._database.executemany("INSERT INTO entries VALUES (?, ?)", rows)
