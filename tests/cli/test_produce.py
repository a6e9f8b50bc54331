"""Lines become records: in which partition, with which key, and which lines when something is wrong."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from catena.cli.partitioning import partition_of
from tests.cli.conftest import Catena


def consumed(catena: Catena, *args: str) -> list[dict[str, Any]]:
    return [json.loads(line) for line in catena("consume", "t", "--json", *args).out.splitlines()]


def write(tmp_path: Path, content: bytes, name: str = "lines") -> Path:
    (tmp_path / name).write_bytes(content)
    return tmp_path / name


def test_files_one_after_the_other(catena: Catena, tmp_path: Path) -> None:
    catena("topic", "create", "t")
    one, two = write(tmp_path, b"a\nb\n", "one"), write(tmp_path, b"c\n\nd", "two")
    assert catena("produce", "t", one, two).out == "5 records acked\n  partition 0: 5 records, offsets 0 to 4\n"
    assert [record["value"] for record in consumed(catena)] == ["a", "b", "c", "", "d"]


def test_lines_go_to_all_partitions_in_turn_and_keep_their_order(catena: Catena, tmp_path: Path) -> None:
    catena("topic", "create", "t", "--partitions", "3")
    file = write(tmp_path, b"".join(b"%d\n" % number for number in range(10_000)))
    summary = catena("produce", "t", file, "--json").json
    assert summary["acked"] == 10_000
    assert [each["partition"] for each in summary["partitions"]] == [0, 1, 2]
    found = consumed(catena)
    for partition in range(3):
        values = [int(record["value"]) for record in found if record["partition"] == partition]
        assert len(values) > 2_000
        assert values == sorted(values)
    assert sorted(int(record["value"]) for record in found) == list(range(10_000))


def test_one_partition(catena: Catena, tmp_path: Path) -> None:
    catena("topic", "create", "t", "--partitions", "3")
    file = write(tmp_path, b"a\nb\n")
    assert "partition 2: 2 records, offsets 0 to 1" in catena("produce", "t", file, "--partition", "2").out
    wrong = catena("produce", "t", file, "--partition", "3")
    assert (wrong.code, wrong.err) == (2, "catena: topic 't' has partitions 0 to 2, not 3\n")


def test_keys_go_where_kafka_sends_them(catena: Catena, tmp_path: Path) -> None:
    catena("topic", "create", "t", "--partitions", "4")
    lines = b"".join(b"key %d: value: %d\n" % (number, number) for number in range(50)) + b"no key\n"
    catena("produce", "t", write(tmp_path, lines), "--key-separator", ": ")
    found = consumed(catena)
    assert len(found) == 51
    for record in found:
        if record["key"] is None:
            assert record["value"] == "no key"
        else:
            assert record["partition"] == partition_of(record["key"].encode(), 4)
            assert record["value"] == f"value: {record['key'].removeprefix('key ')}"


def test_base64(catena: Catena, tmp_path: Path) -> None:
    catena("topic", "create", "t")
    file = write(tmp_path, b"AP8K:/w==\nb2s=\n")
    catena("produce", "t", file, "--base64", "--key-separator", ":")
    binary, text = consumed(catena)
    assert (binary["key_base64"], binary["value_base64"]) == ("AP8K", "/w==")
    assert (text["key"], text["value"]) == (None, "ok")


def test_a_line_that_is_not_base64_stops_it_there(catena: Catena, tmp_path: Path) -> None:
    catena("topic", "create", "t")
    file = write(tmp_path, b"b25l\nnot base64\nb25l\n")
    ran = catena("produce", "t", file, "--base64")
    assert ran.code == 1
    acked, offsets, failure, stopped = ran.out.splitlines()
    assert (acked, offsets.strip()) == ("1 record acked", "partition 0: 1 record, offsets 0 to 0")
    assert failure.strip().startswith(f"line 2 of {file} failed: it is not base64")
    assert "nothing after line 2" in stopped
    assert [record["value"] for record in consumed(catena)] == ["one"]


def test_what_can_not_be(catena: Catena, tmp_path: Path) -> None:
    file = write(tmp_path, b"a\n")
    catena("topic", "create", "t")
    unknown = catena("produce", "missing", file, "--json")
    assert (unknown.code, json.loads(unknown.err)["error"]) == (2, "UnknownTopic")
    assert catena("produce", "t", tmp_path / "missing").code == 2
    assert catena("produce", "t", file, "--key-separator", "").code == 2


@pytest.mark.parametrize("content", [b"", b"one line without an end"])
def test_little_input(catena: Catena, tmp_path: Path, content: bytes) -> None:
    catena("topic", "create", "t")
    summary = catena("produce", "t", write(tmp_path, content), "--json").json
    assert summary["acked"] == (1 if content else 0)
    assert summary["failed"] == []
