"""Catena's errors as Kafka's codes: the one place where they meet.

A client retries on its own what is retriable there. Where nothing was applied the code is one that does not make it ask
for metadata; where the outcome is unknown it is the time-out, which says just that.
"""

from __future__ import annotations

from catena import errors
from catena.wire.codes import Code

_CODES: dict[type[errors.CatenaError], Code] = {
    errors.RetryLater: Code.NOT_ENOUGH_REPLICAS,
    errors.OutcomeUnknown: Code.REQUEST_TIMED_OUT,
    errors.StaleView: Code.NOT_LEADER_OR_FOLLOWER,
    errors.UnknownTopic: Code.UNKNOWN_TOPIC_OR_PARTITION,
    errors.UnknownPartition: Code.UNKNOWN_TOPIC_OR_PARTITION,
    errors.TopicExists: Code.TOPIC_ALREADY_EXISTS,
    errors.InvalidTopic: Code.INVALID_TOPIC_EXCEPTION,
    errors.OffsetOutOfRange: Code.OFFSET_OUT_OF_RANGE,
    errors.LogSealed: Code.POLICY_VIOLATION,
    errors.InvalidBatch: Code.CORRUPT_MESSAGE,
    errors.BatchTooLarge: Code.MESSAGE_TOO_LARGE,
    errors.ProducerFenced: Code.INVALID_PRODUCER_EPOCH,
    errors.OutOfOrderSequence: Code.OUT_OF_ORDER_SEQUENCE_NUMBER,
    errors.ConfigError: Code.INVALID_CONFIG,
    errors.Rejected: Code.INVALID_REQUEST,
    errors.NeedsOperator: Code.KAFKA_STORAGE_ERROR,
    # As for a sealed log: whoever tried again would do so until a person has acted, and its user would hear of nothing.
    errors.MetaBehind: Code.POLICY_VIOLATION,
}


def code_of(error: errors.CatenaError) -> Code:
    """The code of its class, or of the nearest class above it."""
    for kind in type(error).__mro__:
        if kind in _CODES:
            return _CODES[kind]
    return Code.UNKNOWN_SERVER_ERROR
