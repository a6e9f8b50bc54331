"""Every error that Catena raises, named by what the caller must do.

CatenaError
├── RetryLater             nothing was applied; the same call may be made again after a pause
│   ├── BackPressure           too many bytes in flight in this node
│   ├── StoreUnavailable       a store is down, throttles, or timed out before anything could be applied
│   └── Contended              lost a compare-and-set race too often
├── OutcomeUnknown         it may or may not have been applied; only a re-read can tell
├── StaleView              the caller's view is old: refresh it and go on
│   ├── Sealed                 this link takes no appends any more; the chain knows where the log goes on
│   ├── SessionExpired         the session is gone, and its ephemeral records with it
│   └── Conflict               a compare-and-set found something else; carries what it found
├── Rejected               the request is wrong as it stands; trying again does not help
│   ├── UnknownTopic, TopicExists, InvalidTopic, UnknownPartition
│   ├── OffsetOutOfRange       carries where the log starts and ends
│   ├── LogSealed              somebody sealed the whole log on purpose
│   ├── InvalidBatch           the bytes are not a sound RecordBatch; says at which byte
│   ├── BatchTooLarge
│   ├── ProducerFenced         a newer epoch of this producer id has written
│   ├── OutOfOrderSequence     a batch of this producer is missing before this one
│   └── ConfigError            a setting is unknown or makes no sense; names it
└── NeedsOperator          a person has to look
    ├── Corrupt                stored bytes are not what was stored; names object, byte and offset
    ├── ObjectMissing          an object that should exist does not
    ├── StoreFull              no space left; nothing was acked, nothing was torn
    ├── StoreRefused           the store cannot be used: it ignores conditions, or its format is newer
    ├── MetaBehind             the meta store was set back; nothing is written or deleted before a person has decided
    └── DataLoss               records that a query was to read are not there any more
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from catena.meta.base import Record


class CatenaError(Exception):
    """Root of the tree."""


class RetryLater(CatenaError):
    """Nothing was applied; the same call may be made again after a pause."""


class BackPressure(RetryLater):
    """Too many bytes are in flight in this node."""


class StoreUnavailable(RetryLater):
    """A store is down, throttles, or timed out before anything could be applied."""


class Contended(RetryLater):
    """Lost a compare-and-set race too often."""


class OutcomeUnknown(CatenaError):
    """The write may or may not have been applied; only a re-read can tell."""


class StaleView(CatenaError):
    """The caller's view is old: refresh it and go on."""


class Sealed(StaleView):
    """This link takes no appends any more; the chain knows where the log goes on."""


class SessionExpired(StaleView):
    """The session is gone, and its ephemeral records with it."""


class Conflict(StaleView):
    """A compare-and-set found something else than it expected.

    `current` is the record that was found (None when there was none), read linearizably at or after the
    moment of refusal, so that the caller can go on without another round trip. Object stores leave it None.
    """

    def __init__(self, key: str, current: Record | None = None) -> None:
        super().__init__(f"{key} is not what was expected")
        self.key = key
        self.current = current


class Rejected(CatenaError):
    """The request is wrong as it stands; trying again does not help."""


class UnknownTopic(Rejected):
    def __init__(self, topic: str) -> None:
        super().__init__(f"there is no topic {topic!r}")
        self.topic = topic


class TopicExists(Rejected):
    def __init__(self, topic: str) -> None:
        super().__init__(f"topic {topic!r} exists already")
        self.topic = topic


class InvalidTopic(Rejected):
    """A topic name or partition count that cannot be."""


class UnknownPartition(Rejected):
    def __init__(self, topic: str, partition: int, count: int) -> None:
        super().__init__(f"topic {topic!r} has partitions 0 to {count - 1}, not {partition}")
        self.topic, self.partition, self.count = topic, partition, count


class OffsetOutOfRange(Rejected):
    def __init__(self, offset: int, start: int, tail: int) -> None:
        super().__init__(f"offset {offset} is outside the log, which holds {start} up to (not including) {tail}")
        self.offset, self.start, self.tail = offset, start, tail


class LogSealed(Rejected):
    """Somebody sealed the whole log on purpose; it takes appends again once it is reopened."""


class InvalidBatch(Rejected):
    """The bytes are not a sound RecordBatch; the message says at which byte."""


class BatchTooLarge(Rejected):
    """One batch is larger than the log takes."""


class ProducerFenced(Rejected):
    """A newer epoch of this producer id has written."""


class OutOfOrderSequence(Rejected):
    """A batch of this producer is missing before this one."""


class ConfigError(Rejected):
    """A setting is unknown or makes no sense; the message names it."""


class NeedsOperator(CatenaError):
    """A person has to look."""


class Corrupt(NeedsOperator):
    """Stored bytes are not what was stored; the message names object, byte and offset as far as known."""


class ObjectMissing(NeedsOperator):
    """An object that should exist does not."""

    def __init__(self, key: str) -> None:
        super().__init__(f"object {key} does not exist")
        self.key = key


class StoreFull(NeedsOperator):
    """No space left; nothing was acked and nothing torn is visible."""


class StoreRefused(NeedsOperator):
    """The store cannot be used: it ignores conditions, or its format is newer than this version reads."""


class MetaBehind(NeedsOperator):
    """The meta store is older than the bucket, as after a restore: nothing is written or deleted, reads go on."""


class DataLoss(NeedsOperator):
    """Records that a query was to read are not there any more: trimmed, deleted, or of a topic that was."""
