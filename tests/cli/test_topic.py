"""Topics by hand: what is printed for people, what for programs, and how it ends when it can't be."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.cli.conftest import Catena


def test_create_list_describe_delete(catena: Catena) -> None:
    assert catena("topic", "create", "orders", "--partitions", "3").out == "created topic orders with 3 partitions\n"
    assert catena("topic", "create", "single").out == "created topic single with 1 partition\n"

    header, orders, single = catena("topic", "list").out.splitlines()
    assert header.split() == ["TOPIC", "PARTITIONS", "CREATED"]
    assert (orders.split()[:2], single.split()[:2]) == (["orders", "3"], ["single", "1"])

    described = catena("topic", "describe", "orders").out.splitlines()
    assert described[0].startswith("topic orders, id ")
    assert [line.split() for line in described[3:]] == [
        [str(p), "0", "0", "open", "diskless", "1", "0"] for p in range(3)
    ]

    assert catena("topic", "delete", "orders", "--yes").out == "deleted topic orders\n"
    assert [topic["name"] for topic in catena("topic", "list", "--json").json] == ["single"]


def test_json(catena: Catena) -> None:
    created = catena("topic", "create", "orders", "--partitions", "2", "--json").json
    assert (created["name"], created["partitions"]) == ("orders", 2)
    assert catena("topic", "list", "--json").json == [created]
    described = catena("topic", "describe", "orders", "--json").json
    assert described["id"] == created["id"]
    assert described["partitions"] == [
        {"partition": p, "start": 0, "tail": 0, "state": "open", "kind": "diskless", "links": 1} for p in range(2)
    ]
    assert catena("topic", "delete", "orders", "--yes", "--json").json == {"deleted": "orders"}


def test_config(catena: Catena, tmp_path: Path) -> None:
    catena("topic", "create", "orders")
    assert catena("topic", "config", "orders").err.startswith("every config of topic orders has its default")
    schema = tmp_path / "orders.json"
    schema.write_text('{"type":\n "object"}')
    changed = catena("topic", "config", "orders", "table.enable=true", f"table.value.schema=@{schema}")
    assert changed.out.splitlines()[1:] == [
        "table.enable        true",
        'table.value.schema  {"type": "object"}',
    ]
    missing = catena("topic", "config", "orders", "table.value.schema=@nowhere.json")
    assert (missing.code, missing.err) == (
        2,
        "catena: topic config table.value.schema: nowhere.json: No such file or directory\n",
    )
    schema.write_bytes(b"\xff")
    assert "can't decode byte 0xff" in catena("topic", "config", "orders", f"table.value.schema=@{schema}").err
    reset = catena("topic", "config", "orders", "retention.ms=5000", "--default", "table.value.schema", "--json")
    assert reset.json == {"name": "orders", "configs": {"retention.ms": "5000", "table.enable": "true"}}
    everything = catena("topic", "config", "orders", "--all", "--json").json["configs"]
    assert (everything["retention.ms"], everything["table.format"]) == ("5000", "delta")


def test_no_topics_yet(catena: Catena) -> None:
    catena("topic", "create", "gone")
    catena("topic", "delete", "gone", "--yes")
    listed = catena("topic", "list")
    assert (listed.code, listed.out) == (0, "")
    assert "catena topic create NAME" in listed.err


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        (["create", "no spaces"], "'no spaces' is no topic name"),
        (["create", ".."], "'..' is no topic name"),
        (["create", "there"], "topic 'there' exists already; choose another name"),
        (["create", "x", "--partitions", "0"], "--partitions"),
        (["create", "x", "--partitions", "1000000"], "1 to 100000 partitions"),
        (["describe", "missing"], "there is no topic 'missing'; `catena topic list`"),
        (["delete", "missing", "--yes"], "there is no topic 'missing'"),
        (["config", "missing"], "there is no topic 'missing'"),
        (["config", "there", "retention.ms"], "sets nothing: say retention.ms=VALUE"),
        (["config", "there", "retention.ms=soon"], "is no whole number"),
        (["config", "there", "retention.ms=1", "--default", "retention.ms"], "is to be set twice"),
        (["config", "there", "nothing=1"], "there is no topic config 'nothing'"),
        (["describe", "../meta"], "is no topic name"),
    ],
)
def test_what_can_not_be(catena: Catena, arguments: list[str], says: str) -> None:
    catena("topic", "create", "there")
    result = catena("topic", *arguments)
    assert (result.code, result.out) == (2, "")
    assert says in result.err
    assert "Traceback" not in result.err


def test_only_create_makes_a_log(catena: Catena, tmp_path: Path) -> None:
    result = catena("topic", "list")
    assert result.code == 2
    assert "there is no log in the folder" in result.err
    assert list(tmp_path.iterdir()) == []


def test_nothing_is_deleted_unless_somebody_says_yes(catena: Catena) -> None:
    catena("topic", "create", "orders")
    refused = catena("topic", "delete", "orders")
    assert refused.code == 2
    assert "say --yes to delete it" in " ".join(refused.err.replace("│", " ").split())
    assert catena("topic", "list", "--json").json[0]["name"] == "orders"
