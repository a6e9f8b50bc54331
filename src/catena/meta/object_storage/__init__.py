"""A meta store on nothing but object storage with conditional writes."""

from catena.meta.object_storage.store import ObjectMeta

__all__ = ["ObjectMeta"]
