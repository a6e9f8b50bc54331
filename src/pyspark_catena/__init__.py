"""Spark looks for modules of such a name, and so finds the data source `catena` by itself."""

from catena.source.spark.datasource import CatenaSource as DefaultSource

__all__ = ["DefaultSource"]
