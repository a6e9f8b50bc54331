"""A view for Spark of a topic's table and its tail as one; nothing else of the queries imports PySpark."""

from catena.queries.spark.view import fresh_view

__all__ = ["fresh_view"]
