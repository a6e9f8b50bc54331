"""Chance: names that must be unique, and jitter."""

from __future__ import annotations

import random
import uuid
from typing import Protocol


class Entropy(Protocol):
    def hex_id(self) -> str:
        """32 hex digits that nobody else will ever draw."""

    def jitter(self) -> float:
        """Uniform in [0, 1)."""


class SystemEntropy:
    def hex_id(self) -> str:
        return uuid.uuid4().hex

    def jitter(self) -> float:
        return random.random()
