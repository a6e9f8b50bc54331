"""Topics as DataFrames: reads and writes of the format `catena`, with the options of Spark's Kafka source and sink.

    spark.read.format("catena").option("data", folder).option("subscribe", "orders").load()
    frame.write.format("catena").option("data", folder).option("topic", "orders").mode("append").save()

Where Catena is installed, Spark finds it by itself (`pyspark_catena`); through Spark Connect it is registered first.
Reads are planned on the meta store by Spark's driver, and done by its tasks straight from the object store. Writes go
to the object store by its tasks, and become a part of the logs when its driver commits them.

    options, offsets, planning, splitting, write_options    pure
    planner, group_commits                                  on the stores, for reads
    adopting                                                on the stores, for writes
    reading, writing                                        in the tasks
    spark/                                                  alone knows Spark
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


def register(spark: SparkSession) -> None:
    """Make the format `catena` known to this session; needed through Spark Connect only."""
    from catena.source.spark.datasource import CatenaSource

    spark.dataSource.register(CatenaSource)
