"""The embedded default: one SQLite file, shared by the processes of one host."""

from catena.meta.sqlite.store import SqliteMeta

__all__ = ["SqliteMeta"]
