"""A plain broker to measure against: the HTTP broker of the leaderless log's document, in the shape that it has there.

`ThreadingHTTPServer`, the standard library's json, a thread for each connection. Handler threads put what they have
into one buffer, and one at a time, under a lock, writes all of it: one file for each flush, with fsync of it and of its
folder, then the index entries of the flush in one transaction of SQLite, which syncs as well. So what is answered
is as durable as with Catena on a folder and SQLite. Records are kept in memory as they came in, and served from there:
reads touch no disk at all. `python -m bench.http_plain FOLDER` says its port and serves until it is ended.
"""

from __future__ import annotations

import base64
import binascii
import json
import sys
import threading
from concurrent.futures import Future
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any, NamedTuple

from bench.http_files import Files


class Invalid(Exception):
    pass


class Group(NamedTuple):
    topic: str
    partition: int
    values: list[bytes]
    result: Future[dict[str, Any]]


class Log:
    """Partitions in memory, and what makes them durable."""

    def __init__(self, folder: Path) -> None:
        self._files = Files(folder)
        self.partitions: dict[tuple[str, int], list[bytes]] = {}
        self._buffer: list[Group] = []
        self._buffer_lock = threading.Lock()
        self._writer_lock = threading.Lock()

    def append_shared(self, groups: list[Group]) -> None:
        with self._buffer_lock:
            self._buffer += groups
        with self._writer_lock:
            with self._buffer_lock:
                groups, self._buffer = self._buffer, []
            if groups:
                self._flush(groups)

    def _flush(self, groups: list[Group]) -> None:
        bodies = [b"".join(len(value).to_bytes(4, "big") + value for value in group.values) for group in groups]
        path = self._files.store(bodies)
        rows, results, at = [], [], 0
        for group, body in zip(groups, bodies, strict=True):
            records = self.partitions.setdefault((group.topic, group.partition), [])
            start, end = len(records), len(records) + len(group.values) - 1
            key = f"llog/{group.topic}/partitions/{group.partition}/index/{end:020d}"
            entry = {"data_key": path.name, "byte_offset": at, "byte_length": len(body), "msg_count": len(group.values)}
            rows.append((key, json.dumps(entry)))
            at += len(body)
            records += group.values
            results.append({"ok": True, "start_offset": start, "end_offset": end, "index_key": key})
        self._files.index(rows)
        for group, result in zip(groups, results, strict=True):
            named = {"topic": group.topic, "partition": group.partition, "count": len(group.values)}
            group.result.set_result({**named, **result, "wal_uri": path.as_uri()})


def value_of(record: Any) -> bytes:
    if isinstance(record, str):
        return record.encode()
    if isinstance(record, dict) and set(record) == {"base64"}:
        try:
            return base64.b64decode(record["base64"], validate=True)
        except (binascii.Error, TypeError) as error:
            raise Invalid(str(error)) from error
    raise Invalid("a record is a string, or has base64")


def record_of(value: bytes) -> Any:
    try:
        return value.decode()
    except UnicodeDecodeError:
        return {"base64": base64.b64encode(value).decode()}


class Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    disable_nagle_algorithm = True
    log_: Log

    def do_POST(self) -> None:
        try:
            body = json.loads(self.rfile.read(int(self.headers["content-length"])))
            parts = body["topic_partitions"]
            if not isinstance(parts, list) or not parts:
                raise Invalid("topic_partitions is a list")
            results = self._produce(parts) if self.path == "/produce" else self._consume(parts)
            self._answer(200, {"results": results, "success_count": len(results), "error_count": 0})
        except (Invalid, KeyError, ValueError) as error:
            self._answer(400, {"message": str(error)})

    def _produce(self, parts: list[Any]) -> list[dict[str, Any]]:
        groups = []
        for part in parts:
            topic, partition, records = part["topic"], part["partition"], part["records"]
            if not (isinstance(topic, str) and topic and isinstance(partition, int) and partition >= 0):
                raise Invalid("topic and partition")
            if not isinstance(records, list) or not records:
                raise Invalid("records is a list")
            groups.append(Group(topic, partition, [value_of(record) for record in records], Future()))
        self.log_.append_shared(groups)
        return [group.result.result() for group in groups]

    def _consume(self, parts: list[Any]) -> list[dict[str, Any]]:
        results = []
        for part in parts:
            values = self.log_.partitions[part["topic"], part["partition"]]
            offset, left = part["fetch_offset"], part["partition_max_bytes"]
            records: list[Any] = []
            for at in range(offset, len(values)):
                value = values[at]
                left -= len(value)
                if left < 0 and records:
                    break
                records.append(record_of(value))
            named = {"topic": part["topic"], "partition": part["partition"], "ok": True, "start_offset": offset}
            tail = {"next_offset": offset + len(records), "high_watermark": len(values), "log_start_offset": 0}
            results.append({**named, **tail, "count": len(records), "records": records})
        return results

    def _answer(self, status: int, value: Any) -> None:
        body = json.dumps(value).encode()
        self.send_response(status)
        self.send_header("content-type", "application/json")
        self.send_header("content-length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, format: str, *args: Any) -> None:
        pass


class Server(ThreadingHTTPServer):
    daemon_threads = True
    request_queue_size = 128


def main() -> None:
    Handler.log_ = Log(Path(sys.argv[1]))
    with Server(("127.0.0.1", 0), Handler) as server:
        print(json.dumps({"http": f"127.0.0.1:{server.server_port}"}), flush=True)
        server.serve_forever()


if __name__ == "__main__":
    main()
