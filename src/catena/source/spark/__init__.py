"""Where the source meets Spark; nothing else of it imports PySpark."""
