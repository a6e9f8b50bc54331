"""Spark, through PySpark: the only place that imports it, and only once it is used."""
