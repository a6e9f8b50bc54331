"""Options of writes: their names, what they need beside them, and what is refused."""

from __future__ import annotations

import itertools

import pytest

from catena.errors import ConfigError
from catena.source.write_options import WriteOptions, parse_batch_write, parse_stream_write


def test_a_batch() -> None:
    given = {"TOPIC": "orders", "txnappid": "job", "txnVersion": "7", "data": "d", "config": "c", "kafka.acks": "all"}
    assert parse_batch_write(given) == WriteOptions("orders", "job", 7, "d", "c")
    assert parse_batch_write({"includeHeaders": "true"}) == WriteOptions(None, None, None, None, None)


def test_a_stream() -> None:
    given = {"checkpointLocation": "there", "txnAppId": "job"}
    assert parse_stream_write(given) == WriteOptions(None, "job", None, None, None)
    with pytest.raises(ConfigError, match="option txnVersion: a stream has the numbers of its batches"):
        parse_stream_write({"txnAppId": "job", "txnVersion": "1"})


@pytest.mark.parametrize(
    ("given", "told"),
    [
        ({"topics": "a"}, "option topics is not known; was topic meant"),
        ({"topic": "a b"}, "option topic: 'a b' is no topic name"),
        ({"txnAppId": "a"}, "option txnAppId needs txnVersion beside it"),
        ({"txnVersion": "1"}, "option txnVersion needs txnAppId beside it"),
        ({"txnAppId": "a", "txnVersion": "-1"}, "option txnVersion is a whole number from 0"),
        ({"txnAppId": "x" * 300, "txnVersion": "1"}, "can't be the id of an application"),
        ({"kafka.partitioner.class": "x"}, "rows go to the partition of their column"),
        ({"subscribe": "a"}, "option subscribe is not known"),
    ],
)
def test_what_is_refused(given: dict[str, str], told: str) -> None:
    with pytest.raises(ConfigError, match=told):
        parse_batch_write(given)


def test_an_application_writes_each_version_once_to_each_topic() -> None:
    def writer(**given: str) -> str | None:
        return parse_batch_write({"txnVersion": "1", **given}).writer

    assert writer(txnAppId="app", topic="a") != writer(txnAppId="app", topic="b")
    assert writer(txnAppId="app", topic="a") == writer(txnAppId="app", topic="a")
    assert writer(txnAppId="app") == "app"
    assert writer(txnAppId="x orders") != writer(txnAppId="x", topic="orders")
    long = writer(txnAppId="a" * 200, topic="t" * 200)
    assert long is not None
    assert len(long) == 64


def test_writers_are_told_apart() -> None:
    apps = ["".join(letters) for size in range(1, 6) for letters in itertools.product("a ", repeat=size)]
    pairs = list(itertools.product(apps, (None, "a", "aa")))
    writers = {WriteOptions(topic, app, 1, None, None).writer for app, topic in pairs}
    assert len(writers) == len(pairs) > 100
