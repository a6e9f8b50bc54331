"""What the HTTP API takes and answers, as an OpenAPI document: for programs that read it, and for `page`.

Tests hold it against a running node with schemathesis: what it allows is taken, what it does not is refused, and what
is answered is as it says.
"""

from __future__ import annotations

from typing import Any, TypeAlias

from catena.rest.bodies import (
    INT32_MAX,
    INT64_MAX,
    MAX_BYTES,
    MAX_PARTITIONS,
    MAX_RECORDS,
    MAX_WAIT_MS,
    PARTITION_MAX_BYTES,
)

Json: TypeAlias = dict[str, Any]

ABOUT = (
    "Records in and out of a Catena cluster. Any node answers. Offsets count from 0, as Kafka's do. What is written "
    "here Kafka's clients read, and the other way round. Where the cluster has a token, it is sent as "
    "`Authorization: Bearer TOKEN`."
)


def document(version: str) -> Json:
    return {
        "openapi": "3.1.0",
        "info": {"title": "Catena", "version": version, "description": ABOUT},
        "paths": {**_paths_of_records(), **_paths_of_fencing(), **_paths_of_nodes()},
        "components": {
            "schemas": {**_parts(), **_requests(), **_answers()},
            "securitySchemes": {"token": {"type": "http", "scheme": "bearer"}},
        },
    }


def _ref(name: str) -> Json:
    return {"$ref": f"#/components/schemas/{name}"}


def _object(required: Json, optional: Json | None = None, closed: bool = False, about: str = "") -> Json:
    found: Json = {"type": "object", "properties": {**required, **(optional or {})}, "required": list(required)}
    if closed:
        found["additionalProperties"] = False
    return {"description": about, **found} if about else found


def _integer(about: str = "", least: int = 0, most: int = INT64_MAX, **more: Any) -> Json:
    found: Json = {"type": "integer", "minimum": least, "maximum": most, **more}
    return {**found, "description": about} if about else found


def _text(about: str = "", **more: Any) -> Json:
    return {"type": "string", **more, **({"description": about} if about else {})}


def _list(items: Json, least: int = 0, about: str = "", most: int | None = None) -> Json:
    found: Json = {"type": "array", "items": items}
    if least:
        found["minItems"] = least
    if most is not None:
        found["maxItems"] = most
    return {**found, "description": about} if about else found


def _json(schema: Json, **more: Any) -> Json:
    return {"content": {"application/json": {"schema": schema}}, **more}


def _said(about: str, schema: str, **headers: str) -> Json:
    found = _json(_ref(schema), description=about)
    if headers:
        found["headers"] = {
            name.replace("_", "-"): {"schema": _text(), "description": text} for name, text in headers.items()
        }
    return found


_REFUSED: Json = {
    "400": _said("It is no JSON, or not of this form: `at` says where. Nothing was done.", "Refused"),
    "401": _said("There is a token, and it was not sent.", "Message"),
    "404": _said("This node does not do this, by its roles.", "Message"),
    "413": _said("The body is too large.", "Message"),
    "429": _said("The node is asked too often.", "Message", Retry_After="seconds"),
    "503": _said("Not now: the node starts, or has too much to do.", "Message", Retry_After="seconds"),
}
MANY = f"up to {MAX_PARTITIONS} of them"
_OPEN: list[Json] = [{}, {"token": []}]


def _paths_of_records() -> Json:
    return {
        "/produce": {
            "post": {
                "operationId": "produce",
                "summary": "Append records",
                "description": (
                    "One batch for each entry, each with an outcome of its own; there is no atomic commit of several. "
                    "A topic that is not there is made, if the cluster is set to. What was answered is durable."
                ),
                "security": _OPEN,
                "requestBody": _json(_ref("ProduceRequest"), required=True),
                "responses": {
                    **_REFUSED,
                    "200": _said("All were appended.", "ProduceResponse"),
                    "409": _said("Some or all were not; each result says why.", "ProduceResponse"),
                    "503": _json(
                        {"anyOf": [_ref("ProduceResponse"), _ref("Message")]},
                        description="All were refused since too many bytes are on their way: slow down.",
                    ),
                },
            }
        },
        "/consume": {
            "post": {
                "operationId": "consume",
                "summary": "Read records, and wait for them",
                "description": (
                    "From `fetch_offset` of each partition on. If there is less than `min_bytes` the answer waits for "
                    "up to `max_wait_ms`. Go on from `next_offset`."
                ),
                "security": _OPEN,
                "requestBody": _json(_ref("ConsumeRequest"), required=True),
                "responses": {
                    **_REFUSED,
                    "200": _said("All were read.", "ConsumeResponse"),
                    "409": _said("Some or all could not be read; each result says why.", "ConsumeResponse"),
                },
            }
        },
    }


def _paths_of_fencing() -> Json:
    answers = {
        **_REFUSED,
        "200": _said("How the log stands now.", "LogState"),
        "404": _said("There is no such log.", "Message"),
        "409": _said("It could not be done, or nobody knows whether it was; `error_type` says which.", "Message"),
    }
    posts = {
        "/fence": ("fence", "End a log for now", "It takes no appends, of anybody, until it is unfenced."),
        "/unfence": ("unfence", "Let a fenced log go on", "One that is open is left as it is."),
    }
    paths: Json = {
        path: {
            "post": {
                "operationId": name,
                "summary": summary,
                "description": about,
                "security": _OPEN,
                "requestBody": _json(_ref("LogName"), required=True),
                "responses": answers,
            }
        }
        for path, (name, summary, about) in posts.items()
    }
    parameters = [
        {"name": "topic", "in": "query", "required": True, "schema": _text(minLength=1)},
        {"name": "partition", "in": "query", "required": True, "schema": _integer(most=INT32_MAX)},
    ]
    paths["/state"] = {
        "get": {
            "operationId": "state",
            "summary": "How a log stands",
            "description": "Whether it takes appends, where it starts and ends, and the links that it is made of.",
            "security": _OPEN,
            "parameters": parameters,
            "responses": answers,
        }
    }
    return paths


def _paths_of_nodes() -> Json:
    def get(name: str, summary: str, responses: Json) -> Json:
        return {"get": {"operationId": name, "summary": summary, "responses": responses}}

    return {
        "/health": get("health", "Whether the process lives", {"200": _said("It does.", "Health")}),
        "/ready": get(
            "ready",
            "Whether clients should be sent to it",
            {"200": _said("They should.", "Ready"), "503": _said("They should not; `state` says why.", "Ready")},
        ),
    }


def _parts() -> Json:
    data = {"anyOf": [_text("its bytes are UTF-8"), _ref("Base64"), {"type": "null"}]}
    partition = {"topic": _text(minLength=1), "partition": _integer(most=INT32_MAX)}
    record = _object(
        {"value": data},
        {
            "key": data,
            "headers": _list(_ref("Header")),
            "timestamp": {**_integer("milliseconds since 1970", most=INT64_MAX - 1), "type": ["integer", "null"]},
        },
        closed=True,
        about="A record with more than a value. Left out, its time is that of the append.",
    )
    return {
        "Base64": _object({"base64": _text(contentEncoding="base64", pattern=BASE64)}, closed=True),
        "Header": _object({"name": _text()}, {"value": data}, closed=True),
        "Record": {"anyOf": [_text("its bytes are UTF-8"), _ref("Base64"), _ref("RecordInFull")]},
        "RecordInFull": record,
        "ProducePartition": _object(
            {**partition, "records": _list(_ref("Record"), 1, most=MAX_RECORDS)},
            closed=True,
            about="What is appended to one partition.",
        ),
        "ConsumePartition": _object(
            {**partition, "fetch_offset": _integer("the first offset that is wanted")},
            {"partition_max_bytes": _integer("of records of this partition", default=PARTITION_MAX_BYTES)},
            closed=True,
        ),
        "Data": data,
    }


BASE64 = "^(?:[A-Za-z0-9+/]{4})*(?:[A-Za-z0-9+/]{2}==|[A-Za-z0-9+/]{3}=)?$"


def _requests() -> Json:
    return {
        "ProduceRequest": _object({"topic_partitions": _list(_ref("ProducePartition"), 1, MANY)}, closed=True),
        "ConsumeRequest": _object(
            {"topic_partitions": _list(_ref("ConsumePartition"), 1, MANY)},
            {
                "max_wait_ms": _integer("how long to wait for more", most=MAX_WAIT_MS, default=0),
                "min_bytes": _integer("with less than that it waits; of batches as they are stored", default=1),
                "max_bytes": _integer(f"of records; never more than {MAX_BYTES}", default=MAX_BYTES),
                "details": {
                    "type": "boolean",
                    "default": False,
                    "description": "records with offset, time, key and headers, instead of their values alone",
                },
            },
            closed=True,
        ),
        "LogName": _object({"topic": _text(minLength=1), "partition": _integer(most=INT32_MAX)}, closed=True),
    }


def _answers() -> Json:
    partition = {"topic": _text(), "partition": _integer()}
    offset = _integer()
    no_number = {"type": ["integer", "null"]}
    failed = {"error_type": _text("what to tell errors apart by"), "error": _text("for people")}
    counts = {"success_count": _integer(), "error_count": _integer()}
    record = {"offset": offset, "timestamp": {"type": "integer"}, "key": _ref("Data"), "value": _ref("Data")}
    link = {"kind": _text(), "epoch": _integer(), "base": offset, "end": no_number}
    node = {"state": _text(), "node_id": no_number, "cluster_id": {"type": ["string", "null"]}}
    no_text = {"type": ["string", "null"]}
    return {
        "Produced": _object(
            {
                **partition,
                "ok": {"const": True},
                "start_offset": offset,
                "end_offset": _integer("of the last record"),
                "count": _integer(),
                "index_key": {**no_text, "description": "where the meta store has it; null if the log is not diskless"},
                "wal_uri": {**no_text, "description": "the object that holds it"},
            }
        ),
        "Failed": _object({**partition, "ok": {"const": False}, **failed}),
        "ProduceResponse": _object({"results": _list({"anyOf": [_ref("Produced"), _ref("Failed")]}), **counts}),
        "RecordWithOffset": _object({**record, "headers": _list(_ref("Header"))}),
        "Consumed": _object(
            {
                **partition,
                "ok": {"const": True},
                "start_offset": _integer("of the first record"),
                "next_offset": _integer("to fetch from next"),
                "high_watermark": _integer("after the last record of the log"),
                "log_start_offset": _integer("of the log, as last seen", least=-1),
                "count": _integer(),
                "records": _list({"anyOf": [_ref("Data"), _ref("RecordWithOffset")]}),
            },
            {"offsets": _list(offset, about="of each record, only where they are not one after the other")},
        ),
        "NotConsumed": _object(
            {**partition, "ok": {"const": False}, **failed}, {"high_watermark": offset, "log_start_offset": offset}
        ),
        "ConsumeResponse": _object({"results": _list({"anyOf": [_ref("Consumed"), _ref("NotConsumed")]}), **counts}),
        "LogState": _object(
            {
                **partition,
                "state": _text(enum=["OPEN", "FENCED"]),
                "start_offset": offset,
                "tail": _integer("after the last record"),
                "boundary": _integer("below it, records are tiered"),
                "epoch": _integer("of the last link"),
                "links": _list(_object(link)),
            }
        ),
        "Health": _object(
            {
                "status": {"const": "ok"},
                "broker_id": no_text,
                "host": _text(),
                "port": _integer(),
                "started_at_ms": _integer(),
                **node,
                "version": _text(),
                "uptime_s": {"type": "number"},
            },
            {"reason": _text()},
        ),
        "Ready": _object(node, {"reason": _text("why it is read-only")}),
        "Message": _object({"message": _text()}, {"error_type": _text()}),
        "Refused": _object({"message": _text()}, {"at": _text("the place in the JSON")}),
    }
