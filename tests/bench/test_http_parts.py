"""Parts of the HTTP benchmark: the plain broker keeps the contract, the load counts what was answered."""

from __future__ import annotations

import json
import sqlite3
import urllib.request
from pathlib import Path
from typing import Any

from bench.http_load import Load, drive
from bench.http_throughput import Measured, bare_figures, bare_http, figures, plain_http


def ask(address: str, path: str, part: dict[str, Any]) -> Any:
    body = json.dumps({"topic_partitions": [{"topic": "t", "partition": 0, **part}]}).encode()
    with urllib.request.urlopen(urllib.request.Request(f"http://{address}{path}", body), timeout=30) as answer:
        (result,) = json.load(answer)["results"]
    return result


def test_the_plain_broker_keeps_what_it_answers_and_the_load_counts_it(tmp_path: Path) -> None:
    with plain_http(tmp_path / "plain") as server:
        result = ask(server.address, "/produce", {"records": ["a", {"base64": "/w=="}]})
        assert (result["start_offset"], result["end_offset"], result["count"]) == (0, 1, 2)
        read = ask(server.address, "/consume", {"fetch_offset": 0, "partition_max_bytes": 100})
        assert (read["records"], read["next_offset"]) == (["a", {"base64": "/w=="}], 2)
        load = Load(server.address, "produce", "u", 2, 5, 10, 0.2)
        wrote = drive(load)
        assert wrote.records >= wrote.least * 2 > 0
        brought = drive(load._replace(action="consume", upto=wrote.least))
        assert brought.records > 0
        assert brought.records % 5 == 0
    with sqlite3.connect(tmp_path / "plain" / "index.db") as database:
        counts = [json.loads(value)["msg_count"] for (value,) in database.execute("SELECT value FROM entries")]
    database.close()
    assert sum(counts) == 2 + wrote.records


def test_the_bare_server_stores_what_it_answers(tmp_path: Path) -> None:
    with bare_http(tmp_path / "bare", 5) as server:
        wrote = drive(Load(server.address, "produce", "u", 2, 5, 10, 0.2))
    stored = b"".join(path.read_bytes() for path in (tmp_path / "bare" / "wal").iterdir())
    assert stored.count(b"POST /produce") * 5 == wrote.records > 0
    with sqlite3.connect(tmp_path / "bare" / "index.db") as database:
        assert database.execute("SELECT count(*) FROM entries").fetchone() == (wrote.records // 5,)
    database.close()


def test_how_far_anyone_can_be_ahead() -> None:
    found = list(bare_figures({"in": Measured(1000.0, 2.0)}, {"in": Measured(100.0, 8.0)}))
    assert [figure.value for figure in found] == [10.0, 2.0, 4.0]


def test_figures_compare_both() -> None:
    found = list(figures({"in": Measured(1000.0, 2.0)}, {"in": Measured(100.0, 8.0)}))
    assert [(figure.value, figure.met) for figure in found if figure.aim] == [(10.0, True), (4.0, False)]
