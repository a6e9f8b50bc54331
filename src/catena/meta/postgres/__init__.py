"""A meta store on PostgreSQL, for a cluster."""

from catena.meta.postgres.store import PostgresMeta

__all__ = ["PostgresMeta"]
