"""Tiered links in which there is nothing to merge and nothing to drop, as long as neither they nor their log's start
change; so passes need not read their manifests again and again. Nothing is wrong if it is forgotten."""

from __future__ import annotations

from collections.abc import Collection

from catena.types import Offset, TopicPartition
from catena.virtual_log.chain import Chain


class Settled:
    """Of one driver: with other settings other links are."""

    def __init__(self) -> None:
        self._seen: dict[TopicPartition, tuple[str, Offset]] = {}

    def note(self, tp: TopicPartition, chain: Chain) -> None:
        if chain.tiered is not None:
            self._seen[tp] = _state(chain)

    def has(self, tp: TopicPartition, chain: Chain) -> bool:
        return chain.tiered is not None and self._seen.get(tp) == _state(chain)

    def keep(self, partitions: Collection[TopicPartition]) -> None:
        """The others are gone."""
        self._seen = {tp: state for tp, state in self._seen.items() if tp in partitions}


def _state(chain: Chain) -> tuple[str, Offset]:
    assert chain.tiered is not None
    return chain.tiered.params["manifest"], chain.start
