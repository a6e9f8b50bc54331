"""POST /produce: one batch for each partition that a request names, appended beside each other.

A request is checked as a whole before anything is appended. After that each batch has an outcome of its own, and
nothing is undone. What goes in with other requests in the meantime shares a blob with them, as always.

Crash: what was not answered may be in the log, or not. HTTP's producers have no sequence numbers, so one that sends it
again may write it twice. `OutcomeUnknown` says the same of a batch whose commit could not be settled.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import NamedTuple

import msgspec

from catena.broker.base import OpenLog, TopicDefaults
from catena.broker.handling import TopicLookup
from catena.errors import (
    BackPressure,
    BatchTooLarge,
    CatenaError,
    Rejected,
    UnknownPartition,
    UnknownTopic,
)
from catena.formats.compression import Compression
from catena.formats.recompress import timestamp_fault
from catena.http.base import HttpRequest, HttpResponse
from catena.loglets.base import Entry, Receipt
from catena.rest import bodies
from catena.rest.answers import RETRY_AFTER, answer, name_of
from catena.rest.bodies import Failed, Produced, ProduceRequest, ProduceResponse
from catena.rest.encoding import Contents, contents_of, entry_of
from catena.rest.hot import HotRecords, Text, text_of
from catena.runtime import Clock
from catena.types import Offset
from catena.virtual_log.log import VirtualLog
from catena.virtual_log.topic_configs import settings_of
from catena.virtual_log.topic_view import TopicView
from catena.virtual_log.topics import TopicRecord, Topics

_decoder = msgspec.json.Decoder(ProduceRequest)


class _Batch(NamedTuple):
    topic: str
    partition: int
    contents: Contents
    text: Text | None
    """As those are told of it who read it soon; None: it is not kept for them."""


class _Append(NamedTuple):
    log: VirtualLog
    entry: Entry
    receipt: Receipt


class Produce:
    def __init__(
        self,
        topics: Topics,
        view: TopicView,
        open_log: OpenLog,
        clock: Clock,
        defaults: TopicDefaults,
        address_of: Callable[[str], str],
        hot: HotRecords,
    ) -> None:
        """`address_of` an object, by its key. `hot` is told of what was appended."""
        self._topics = topics
        self._view = view
        self._open_log = open_log
        self._clock = clock
        self._defaults = defaults
        self._address_of = address_of
        self._hot = hot

    async def produce(self, request: HttpRequest) -> HttpResponse:
        batches = self._batches_of(request.body)
        lookup = TopicLookup(self._view)
        placed: list[_Append | CatenaError] = []
        for each in batches:
            try:
                topic = await lookup.find_or_create(each.topic, self._topics, self._defaults, each.partition)
                placed.append(self._place(topic, each.partition, each.contents))
            except CatenaError as error:
                placed.append(error)
            if len(each.contents) > bodies.LONG:
                await self._clock.sleep(0)  # to encode them took a while: let others go on
            each.contents.clear()  # copied into the batch
        if len(placed) == 1:
            outcomes = [await self._append(placed[0])]
        else:
            outcomes = await asyncio.gather(*map(self._append, placed))
        results: list[Produced | Failed] = []
        for each, append, outcome in zip(batches, placed, outcomes, strict=True):
            if isinstance(outcome, CatenaError):
                results.append(Failed(each.topic, each.partition, name_of(outcome), str(outcome)))
            else:
                assert isinstance(append, _Append)
                if each.text is not None:
                    self._hot.add(append.log.tp, outcome, append.entry.data, each.text)
                results.append(self._produced(append, outcome))
        return _answer(results, outcomes)

    def _batches_of(self, body: bytes) -> list[_Batch]:
        """Raises InvalidBody."""
        asked = bodies.decode(_decoder, body).topic_partitions
        # Then no record of it has anything in it that JSON escapes.
        is_plain = b"\\" not in body and body.isascii()
        batches = []
        for number, each in enumerate(asked):
            contents = contents_of(each.records, f"topic_partitions[{number}].records")
            text = text_of(each.records, is_plain) if self._hot.takes(len(body)) else None
            batches.append(_Batch(each.topic, each.partition, contents, text))
        return batches

    def _place(self, topic: TopicRecord, partition: int, contents: Contents) -> _Append:
        if partition >= topic.partitions:
            raise UnknownPartition(topic.name, partition, topic.partitions)
        settings = settings_of(topic.configs)
        now_ms = self._clock.now_ms()
        compression = settings.compression or Compression.NONE
        entry = entry_of(contents, compression, now_ms, settings.log_append_time)
        if entry.size > settings.max_message_bytes:
            raise BatchTooLarge(
                f"{entry.header.count} records make a batch of {entry.size} bytes, and max.message.bytes of the topic "
                f"is {settings.max_message_bytes}: send fewer at once"
            )
        before, after = settings.timestamp_before_max_ms, settings.timestamp_after_max_ms
        if not settings.log_append_time and (before is not None or after is not None):
            fault = timestamp_fault(entry.data, now_ms, before, after)
            if fault is not None:
                raise Rejected(fault)
        receipt = Receipt()
        return _Append(self._open_log(topic, partition), entry._replace(receipt=receipt), receipt)

    async def _append(self, append: _Append | CatenaError) -> Offset | CatenaError:
        if isinstance(append, CatenaError):
            return append
        try:
            return await append.log.append(append.entry)
        except CatenaError as error:
            if isinstance(error, UnknownTopic):
                self._view.forget(error.topic)
            return error

    def _produced(self, append: _Append, offset: Offset) -> Produced:
        tp, count, receipt = append.log.tp, append.entry.header.count, append.receipt
        uri = None if receipt.object_key is None else self._address_of(receipt.object_key)
        return Produced(tp.topic, tp.partition, offset, offset + count - 1, count, receipt.index_key, uri)


def _answer(results: list[Produced | Failed], outcomes: list[Offset | CatenaError]) -> HttpResponse:
    errors = [outcome for outcome in outcomes if isinstance(outcome, CatenaError)]
    response = ProduceResponse(results, len(results) - len(errors), len(errors))
    if not errors:
        return answer(response)
    if len(errors) == len(results) and all(isinstance(error, BackPressure) for error in errors):
        return answer(response, 503, RETRY_AFTER)
    return answer(response, 409)
