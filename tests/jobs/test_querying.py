"""A question, composed: stores are opened for it, and closed after it."""

from __future__ import annotations

import importlib.util
import os
from pathlib import Path

import pytest

import catena
from catena.config import load

pytestmark = pytest.mark.skipif(
    importlib.util.find_spec("duckdb") is None and "tables" not in os.environ.get("CATENA_REQUIRE", "").split(","),
    reason="duckdb is not installed",
)


async def test_two_questions_in_a_row(tmp_path: Path) -> None:
    from catena.jobs.querying import query

    async with catena.open(tmp_path) as log:
        await log.create_topic("orders")
        for number in range(2):
            await log.append("orders", b"1", partition=0)
            sql = "select count(*) as n from orders"
            found = await query(load(data=str(tmp_path)), sql, lambda answer: next(answer.batches).to_pylist())
            assert found == [{"n": number + 1}]
