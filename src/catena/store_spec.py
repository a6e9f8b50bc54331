"""The object store as other processes open it: an address that means the same everywhere, and can be pickled.

The composition root hands it to whatever runs tasks elsewhere; so that need not know which address means which backend,
nor how a store is counted and retried. Credentials are not in it: each process takes them from its environment. Whoever
hands it out has opened the store before, and so the others need not ask whether it keeps its promises.
"""

from __future__ import annotations

import os
from contextlib import AbstractAsyncContextManager
from pathlib import Path

import msgspec

from catena.config import Settings, load
from catena.errors import ConfigError
from catena.objects.base import ObjectStore
from catena.objects.counted import CountedObjects
from catena.runtime import Clock, Entropy
from catena.stores import open_objects


class StoreSpec(msgspec.Struct, frozen=True):
    objects_url: str

    @classmethod
    def of(cls, settings: Settings) -> StoreSpec:
        scheme, _, rest = settings.objects_url.partition(":")
        match scheme:
            case "folder":
                return cls(f"folder:{Path(rest).absolute()}")
            case "memory":
                raise ConfigError("setting objects: what is in the memory of one process, tasks in others can't see")
            case _:
                return cls(settings.objects_url)

    def __call__(
        self, clock: Clock, entropy: Entropy
    ) -> AbstractAsyncContextManager[tuple[ObjectStore, CountedObjects]]:
        return open_objects(Settings(objects=self.objects_url), clock, entropy, was_probed=True)


def settings_of_log(config: str | None, data: str | None) -> Settings:
    """Of a log that is there: whoever names another folder would leave an empty one behind."""
    settings = load(config, os.environ, data=data)
    if not settings.has_log:
        raise ConfigError(
            f"there is no log in the folder {settings.data!r}: the option data names another folder, config a file "
            "with settings; `catena topic create NAME` makes a log"
        )
    return settings
