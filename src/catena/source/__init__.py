"""Topics as DataFrames: `spark.read.format("catena")` and `readStream`, with the options of Spark's Kafka source.

    spark.read.format("catena").option("data", folder).option("subscribe", "orders").load()

Where Catena is installed, Spark finds it by itself (`pyspark_catena`); through Spark Connect it is registered first.
Reads are planned on the meta store by Spark's driver, and done by its tasks straight from the object store.

    options, offsets, planning, splitting    pure
    planner                                  on the stores
    reading                                  in the tasks
    spark/                                   alone knows Spark
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


def register(spark: SparkSession) -> None:
    """Make the format `catena` known to this session; needed through Spark Connect only."""
    from catena.source.spark.datasource import CatenaSource

    spark.dataSource.register(CatenaSource)
