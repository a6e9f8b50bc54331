"""Queries over a topic's table and the part of its log that is not in the table yet, as one: what was acked is there.

fresh     which files of the table, and which ranges of the log: exactly once, without a gap
rows      the ranges as rows of the table
duck      `catena sql`, by DuckDB, in this process
view      a view for Spark
"""

from __future__ import annotations

from catena.errors import ConfigError


def require_engine() -> None:
    """Raises ConfigError where what `duck` needs is not installed."""
    try:
        import deltalake  # noqa: F401
        import duckdb  # noqa: F401
        import pyarrow  # noqa: F401
    except ImportError as error:
        raise ConfigError(f"sql needs {error.name}: pip install 'catena-log[sql]'") from None
