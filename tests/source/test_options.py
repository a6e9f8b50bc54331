"""Options as Spark's Kafka source has them; what it refuses is refused, by an error that names the option."""

from __future__ import annotations

import pytest

from catena.errors import ConfigError
from catena.source.options import (
    NAMES,
    Assigned,
    AtOffsets,
    AtTime,
    AtTimes,
    Edge,
    Limit,
    Subscribed,
    SubscribedPattern,
    parse_batch,
    parse_stream,
    wants_headers,
)

ORDERS = {"subscribe": "orders"}


def test_what_is_not_said() -> None:
    batch, stream = parse_batch(ORDERS), parse_stream(ORDERS)
    assert batch.start == Limit("startingOffsets", Edge.EARLIEST)
    assert stream.start == Limit("startingOffsets", Edge.LATEST)
    assert batch.end == stream.end == Limit("endingOffsets", Edge.LATEST)
    assert batch.fail_on_data_loss
    assert batch.fail_on_undecodable_batch
    assert not batch.latest_if_no_match
    assert not batch.include_headers
    assert batch[5:8] == (None, None, None)
    assert batch[9:13] == (None, None, None, None)
    assert (batch.is_stream, stream.is_stream) == (False, True)


def test_everything_said() -> None:
    options = parse_stream(
        {
            "ASSIGN": '{"orders": [2, 0, 2], "none": []}',
            "startingoffsets": ' {"orders": {"0": 23, "2": -2}} ',
            "FailOnDataLoss": "FALSE",
            "failOnUndecodableBatch": "false",
            "maxOffsetsPerTrigger": "100",
            "minPartitions": "7",
            "maxRecordsPerPartition": " 9 ",
            "includeHeaders": "true",
            "startingOffsetsByTimestampStrategy": "LATEST",
            "data": "logs",
            "config": "catena.toml",
            "kafka.bootstrap.servers": "localhost:9092",
            "kafka.group.id": "g",
            "groupIdPrefix": "p",
            "kafkaConsumer.pollTimeoutMs": "100",
        }
    )
    assert options.subscription == Assigned({"orders": (0, 2)})
    assert options.start == Limit("startingOffsets", AtOffsets({"orders": {0: 23, 2: -2}}))
    assert not options.fail_on_data_loss
    assert not options.fail_on_undecodable_batch
    assert options.latest_if_no_match
    assert options.include_headers
    assert options[5:8] == (100, 7, 9)
    assert options[9:13] == ("logs", "catena.toml", None, None)


def test_topics() -> None:
    assert parse_batch({"subscribe": " a, b,,a"}).subscription == Subscribed(("a", "b"))
    assert parse_batch({"subscribePattern": "orders-.*"}).subscription == SubscribedPattern("orders-.*")


def test_the_time_of_all_counts_more_than_that_of_each_and_that_more_than_offsets() -> None:
    given = {
        **ORDERS,
        "startingTimestamp": "1000",
        "startingOffsetsByTimestamp": '{"orders": {"0": 2000}}',
        "startingOffsets": "earliest",
        "endingOffsetsByTimestamp": '{"orders": {"0": 3000}}',
        "endingOffsets": "latest",
    }
    options = parse_batch(given)
    assert options.start == Limit("startingTimestamp", AtTime(1000))
    assert options.end == Limit("endingOffsetsByTimestamp", AtTimes({"orders": {0: 3000}}))
    del given["startingTimestamp"]
    assert parse_batch(given).start == Limit("startingOffsetsByTimestamp", AtTimes({"orders": {0: 2000}}))


@pytest.mark.parametrize(
    ("given", "told"),
    [
        ({}, "exactly one of the options subscribe, subscribePattern, assign"),
        ({"subscribe": "a", "assign": '{"a": [0]}'}, "subscribe and assign were given"),
        ({"subscribe": " , "}, "option subscribe names topics"),
        ({"subscribe": "or ders"}, "option subscribe: 'or ders' is no topic name"),
        ({"subscribePattern": ""}, "option subscribePattern"),
        ({"subscribePattern": "("}, "option subscribePattern: '\\(' is no regular expression"),
        ({"assign": "orders"}, "option assign is JSON such as"),
        ({"assign": "{}"}, "option assign names partitions"),
        ({"assign": '{"a": [-1]}'}, "option assign: partitions are numbered from 0 on"),
        ({**ORDERS, "startingOffsets": "oldest"}, "option startingOffsets is JSON such as earliest, latest or"),
        ({**ORDERS, "startingOffsets": '{"orders": {"0": -3}}'}, "option startingOffsets: an offset is 0 or more"),
        ({**ORDERS, "startingOffsets": '{"orders": {"-1": 3}}'}, "option startingOffsets: there is no partition -1"),
        ({**ORDERS, "startingOffsets": '{"orders": {"x": 3}}'}, "option startingOffsets is JSON"),
        ({**ORDERS, "startingTimestamp": "yesterday"}, "option startingTimestamp is a whole number from 0"),
        ({**ORDERS, "startingTimestamp": "-1"}, "option startingTimestamp is a whole number from 0"),
        ({**ORDERS, "startingOffsetsByTimestamp": '{"orders": {"0": -1}}'}, "option startingOffsetsByTimestamp: times"),
        ({**ORDERS, "startingOffsetsByTimestampStrategy": "earliest"}, "is error or latest, not 'earliest'"),
        ({**ORDERS, "failOnDataLoss": "no"}, "option failOnDataLoss is true or false, not 'no'"),
        ({**ORDERS, "maxOffsetsPerTrigger": "0"}, "option maxOffsetsPerTrigger is a whole number from 1"),
        ({**ORDERS, "minPartitions": "9" * 20}, "option minPartitions is a whole number"),
        ({**ORDERS, "startingOffset": "earliest"}, "option startingOffset is not known; was startingOffsets meant"),
        ({**ORDERS, "zzz": "1"}, "option zzz is not known; there are subscribe, "),
        ({**ORDERS, "kafka.auto.offset.reset": "earliest"}, "offset.reset is not supported: startingOffsets"),
        ({**ORDERS, "kafka.value.deserializer": "x"}, "kafka.value.deserializer is not supported"),
    ],
)
def test_what_is_refused(given: dict[str, str], told: str) -> None:
    with pytest.raises(ConfigError, match=told):
        parse_batch(given)
    with pytest.raises(ConfigError, match=told):
        parse_stream(given)


@pytest.mark.parametrize(
    ("given", "told"),
    [
        ({"startingOffsets": "Latest"}, "option startingOffsets: a batch query can't begin at latest,"),
        ({"startingOffsets": '{"orders": {"0": 1, "1": -1}}'}, "can't begin at latest of orders/1,"),
        ({"endingOffsets": "earliest"}, "option endingOffsets: a batch query can't end at earliest,"),
        ({"endingOffsets": '{"orders": {"0": -2}}'}, "can't end at earliest of orders/0,"),
    ],
)
def test_what_makes_no_sense_for_a_batch(given: dict[str, str], told: str) -> None:
    with pytest.raises(ConfigError, match=told):
        parse_batch({**ORDERS, **given})


@pytest.mark.parametrize("name", ["endingOffsets", "ENDINGTIMESTAMP", "endingOffsetsByTimestamp"])
def test_a_stream_has_no_end(name: str) -> None:
    with pytest.raises(ConfigError, match="a stream has no end"):
        parse_stream({**ORDERS, name: "latest"})


def test_headers_are_asked_for_before_it_is_known_what_kind_of_query_it_is() -> None:
    assert wants_headers({"INCLUDEHEADERS": "True"})
    assert not wants_headers(ORDERS)


def test_names_differ_by_more_than_case() -> None:
    assert len({name.lower() for name in NAMES}) == len(NAMES)


def test_a_node_is_asked_instead_of_the_stores() -> None:
    options = parse_batch({**ORDERS, "Node": "http://localhost:8080", "token": "t"})
    assert (options.node, options.token) == ("http://localhost:8080", "t")
    for other in ("data", "config"):
        with pytest.raises(ConfigError, match=r"option node: .* leave out data and config"):
            parse_batch({**ORDERS, "node": "http://localhost:8080", other: "x"})
