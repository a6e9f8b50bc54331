"""The same question, asked in every way that docs/tables.md shows: how many rows and which sum each day has."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from catena.config import Settings
from catena.tables.storage import Storage

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

SQL = "select cast(day as varchar) as day, count(*) as rows, sum(n) as total from orders group by day order by day"


def of_rows(rows: list[dict[str, Any]]) -> list[tuple[str, int, int]]:
    found: dict[str, tuple[int, int]] = {}
    for row in rows:
        count, total = found.get(str(row["day"]), (0, 0))
        found[str(row["day"])] = count + 1, total + row["n"]
    return [(day, *sums) for day, sums in sorted(found.items())]


def by_deltalake(uri: str, _: Settings) -> list[tuple[str, int, int]]:
    from deltalake import DeltaTable

    return of_rows(DeltaTable(uri).to_pyarrow_table(columns=["day", "n"]).to_pylist())


def by_polars_of_delta(uri: str, _: Settings) -> list[tuple[str, int, int]]:
    import polars as pl

    table = pl.scan_delta(uri)
    sums = table.group_by("day").agg(pl.len(), pl.col("n").sum()).sort("day").collect()
    return [(str(day), count, total) for day, count, total in sums.rows()]


def by_duckdb_of_delta(uri: str, _: Settings) -> list[tuple[str, int, int]]:
    import duckdb
    from deltalake import DeltaTable

    with duckdb.connect() as connection:
        connection.register("orders", DeltaTable(uri).to_pyarrow_dataset())
        return list(connection.sql(SQL).fetchall())


def by_pyiceberg(uri: str, settings: Settings) -> list[tuple[str, int, int]]:
    with opened(uri, settings) as table:
        return of_rows(table.scan(selected_fields=("day", "n")).to_arrow().to_pylist())


def by_polars_of_iceberg(uri: str, settings: Settings) -> list[tuple[str, int, int]]:
    import polars as pl

    with opened(uri, settings) as table:
        sums = pl.scan_iceberg(table).group_by("day").agg(pl.len(), pl.col("n").sum()).sort("day").collect()
    return [(str(day), count, total) for day, count, total in sums.rows()]


def by_duckdb_of_iceberg(uri: str, settings: Settings) -> list[tuple[str, int, int]]:
    import duckdb

    with opened(uri, settings) as table, duckdb.connect() as connection:
        connection.register("orders", table.scan().to_arrow())
        return list(connection.sql(SQL).fetchall())


class opened:
    """The table, by a catalog of its own as another program would have it."""

    def __init__(self, uri: str, settings: Settings) -> None:
        from pyiceberg.catalog.sql import SqlCatalog

        storage = Storage.of(settings)
        self._catalog = SqlCatalog("catena", uri=storage.catalog, **storage.iceberg_properties)
        self._name = uri.rpartition("/")[2]

    def __enter__(self) -> Any:
        return self._catalog.load_table(("catena", self._name))

    def __exit__(self, *_: object) -> None:
        self._catalog.close()


def files_of(kind: str, uri: str, settings: Settings) -> list[str]:
    if kind == "delta":
        from deltalake import DeltaTable

        return list(DeltaTable(uri).file_uris())
    with opened(uri, settings) as table:
        return [task.file.file_path for task in table.scan().plan_files()]


def by_spark(spark: SparkSession, kind: str, uri: str, settings: Settings) -> list[tuple[str, int, int]]:
    """Without a connector: the files that make the table, as its own library tells them."""
    files = [path if "://" in path else f"file://{path}" for path in files_of(kind, uri, settings)]
    base = uri if "://" in uri else f"file://{uri}"
    rows = spark.read.option("basePath", base).option("mergeSchema", "true").parquet(*files)
    rows.createOrReplaceTempView("orders")
    return [tuple(row) for row in spark.sql(SQL.replace("varchar", "string")).collect()]


ENGINES: dict[str, list[Callable[[str, Settings], list[tuple[str, int, int]]]]] = {
    "delta": [by_deltalake, by_polars_of_delta, by_duckdb_of_delta],
    "iceberg": [by_pyiceberg, by_polars_of_iceberg, by_duckdb_of_iceberg],
}
