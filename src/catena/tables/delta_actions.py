"""Entries of a Delta table's log: lines of JSON, one for each action. Pure.

Only what every reader and writer of Delta knows is used (reader version 1, writer version 2). How far the table is
stands in `txn` actions, Delta's own place for it: an app id for each partition, whose version is the next offset.
"""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any

import msgspec

from catena.tables.columns import DAY, METADATA
from catena.tables.committer import Change, DataFile, Span
from catena.types import TopicId

LETTERS, FENCE = "catena/dead-letters", "catena/fence"
TOPIC_ID, TOPIC = "catena.topic_id", "catena.topic"
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_MAX_US = 253_402_300_799_999_999
"""The last microsecond of 9999: beyond it no text stands for a time."""


def progress_app(topic_id: TopicId, partition: int) -> str:
    return f"catena/{topic_id}/{partition}"


def entry_key(prefix: str, version: int) -> str:
    return f"{prefix}/_delta_log/{version:020d}.json"


def first_entry(metadata: dict[str, Any], nonce: str, now_ms: int) -> bytes:
    protocol = {"protocol": {"minReaderVersion": 1, "minWriterVersion": 2}}
    return _lines([_info("CREATE TABLE", nonce, now_ms), protocol, {"metaData": metadata}])


def metadata_entry(metadata: dict[str, Any], nonce: str, now_ms: int) -> bytes:
    return _lines([_info("ADD COLUMNS", nonce, now_ms), {"metaData": metadata}])


def change_entry(change: Change, topic_id: TopicId, nonce: str, now_ms: int) -> bytes:
    operation = "WRITE" if change.is_data else "OPTIMIZE" if change.added else "DELETE"
    is_rewrite = bool(change.added) and not change.is_data
    actions = [_info(operation, nonce, now_ms)]
    versions = {progress_app(topic_id, number): offset for number, offset in sorted(change.progress.items())}
    if change.letters is not None:
        versions[LETTERS] = change.letters
    if change.fence is not None:
        versions[FENCE] = change.fence
    actions += [{"txn": {"appId": app, "version": at, "lastUpdated": now_ms}} for app, at in versions.items()]
    actions += [{"remove": _removed(file, now_ms, not is_rewrite)} for file in change.removed]
    actions += [{"add": _added(file, now_ms, not is_rewrite)} for file in change.added]
    return _lines(actions)


def metadata_of(table_id: str, schema_json: str, created_at_ms: int, configuration: dict[str, str]) -> dict[str, Any]:
    return {
        "id": table_id,
        "format": {"provider": "parquet", "options": {}},
        "schemaString": schema_json,
        "partitionColumns": [DAY],
        "createdTime": created_at_ms,
        "configuration": configuration,
    }


def nonce_of(entry: bytes) -> str | None:
    """Of the change that made this entry; None if it is not ours."""
    try:
        first = msgspec.json.decode(entry.split(b"\n", 1)[0])
        nonce = first["commitInfo"]["txnId"]
    except (msgspec.DecodeError, KeyError, TypeError):
        return None
    return nonce if isinstance(nonce, str) else None


def _info(operation: str, nonce: str, now_ms: int) -> dict[str, Any]:
    info = {"timestamp": now_ms, "operation": operation, "operationParameters": {}, "engineInfo": "catena"}
    return {"commitInfo": {**info, "txnId": nonce}}


def _added(file: DataFile, now_ms: int, is_change: bool) -> dict[str, Any]:
    return {
        "path": file.path,
        "partitionValues": {DAY: file.day},
        "size": file.bytes,
        "modificationTime": now_ms,
        "dataChange": is_change,
        "stats": msgspec.json.encode({"numRecords": file.rows, **_bounds(file.span)}).decode(),
    }


def _removed(file: DataFile, now_ms: int, is_change: bool) -> dict[str, Any]:
    return {
        "path": file.path,
        "deletionTimestamp": now_ms,
        "dataChange": is_change,
        "extendedFileMetadata": True,
        "partitionValues": {DAY: file.day},
        "size": file.bytes,
    }


def _bounds(span: Span | None) -> dict[str, Any]:
    if span is None:
        return {}
    least: dict[str, Any] = {"partition": span.partition[0], "offset": span.offset[0]}
    greatest: dict[str, Any] = {"partition": span.partition[1], "offset": span.offset[1]}
    first, last = span.timestamp_us
    if first >= 0 and last <= _MAX_US:
        least["timestamp"], greatest["timestamp"] = _time(first), _time(last)
    return {
        "minValues": {METADATA: least},
        "maxValues": {METADATA: greatest},
        "nullCount": {METADATA: dict.fromkeys(least, 0)},
    }


def _time(microseconds: int) -> str:
    return (_EPOCH + timedelta(microseconds=microseconds)).strftime("%Y-%m-%dT%H:%M:%S.%fZ")


def _lines(actions: list[dict[str, Any]]) -> bytes:
    return b"\n".join(map(msgspec.json.encode, actions))
