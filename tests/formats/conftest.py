"""Property tests have no deadline per example: a busy machine is not a broken codec."""

from __future__ import annotations

from hypothesis import settings

settings.register_profile("no deadline", deadline=None)
settings.load_profile("no deadline")
