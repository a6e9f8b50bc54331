"""What queries need is named where it is not installed."""

from __future__ import annotations

import sys

import pytest

from catena.errors import ConfigError
from catena.queries import require_engine


def test_what_is_lacking_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    require_engine()
    monkeypatch.setitem(sys.modules, "duckdb", None)
    with pytest.raises(ConfigError, match=r"sql needs duckdb: pip install 'catena-log\[sql\]'"):
        require_engine()
