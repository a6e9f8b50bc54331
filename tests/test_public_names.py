"""What users may rely on. A change here is a change for them: say so in the changelog."""

from __future__ import annotations

import inspect
import subprocess
import sys

import pytest

import catena

METHODS = {
    "append": ["topic", "value", "partition", "key", "headers", "timestamp_ms"],
    "append_batch": ["topic", "values", "partition", "compression"],
    "chain": ["topic", "partition"],
    "close": [],
    "create_topic": ["name", "partitions"],
    "delete_topic": ["name"],
    "find_time": ["topic", "timestamp_ms", "partition"],
    "follow": ["topic", "partition", "start"],
    "read": ["topic", "partition", "start", "limit"],
    "read_batches": ["topic", "partition", "start", "limit", "follow"],
    "reconfigure": ["topic", "partition", "kind"],
    "reopen": ["topic", "partition"],
    "seal": ["topic", "partition"],
    "start": ["topic", "partition"],
    "tail": ["topic", "partition"],
    "topic": ["name"],
    "topics": [],
    "trim": ["topic", "offset", "partition"],
}


def test_names() -> None:
    assert dir(catena) == ["Log", "Message", "Record", "errors", "open"]
    for name in catena.__all__:
        assert getattr(catena, name).__name__.rpartition(".")[2] == name


def test_a_name_that_is_none() -> None:
    with pytest.raises(AttributeError, match="it has Log, Message, Record, errors, open"):
        catena.__getattr__("Producer")


def test_methods() -> None:
    found = {
        name: [parameter for parameter in inspect.signature(method).parameters if parameter != "self"]
        for name, method in inspect.getmembers(catena.Log, inspect.isfunction)
        if not name.startswith("_")
    }
    assert found == METHODS
    assert list(inspect.signature(catena.open).parameters) == ["data", "config", "settings"]
    assert catena.Record._fields == ("offset", "timestamp", "key", "value", "headers")
    assert catena.Message._fields == ("value", "key", "headers", "timestamp_ms")


def test_every_name_is_explained() -> None:
    for name in METHODS:
        assert inspect.getdoc(getattr(catena.Log, name))
    assert inspect.getdoc(catena.open)


def test_the_package_alone_is_quick_to_import() -> None:
    code = (
        "import sys, catena; print([name for name in ('asyncio', 'msgspec', 'obstore', 'rich') if name in sys.modules])"
    )
    ran = subprocess.run([sys.executable, "-c", code], check=True, capture_output=True, text=True)
    assert ran.stdout.strip() == "[]"
