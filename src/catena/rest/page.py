"""The OpenAPI document as a page for people: one file, no scripts, nothing from elsewhere."""

from __future__ import annotations

from collections.abc import Iterator
from html import escape
from typing import Any, TypeAlias

Json: TypeAlias = dict[str, Any]

_STYLE = """
:root { color-scheme: light dark; --line: #8884; --faint: #8882; --good: #1a7f37; --bad: #b35900; }
body { font: 16px/1.5 system-ui, sans-serif; margin: 0 auto; max-width: 60rem; padding: 2rem 1rem 6rem; }
h1 { margin-bottom: 0; } h2 { margin-top: 3rem; border-top: 1px solid var(--line); padding-top: 1.5rem; }
code, pre { font: 0.9em ui-monospace, monospace; } pre { background: var(--faint); padding: 0.8rem; overflow-x: auto; }
h2 code { font-size: 1em; } table { border-collapse: collapse; width: 100%; margin: 0.5rem 0 1rem; }
td, th { text-align: left; vertical-align: top; padding: 0.3rem 0.8rem 0.3rem 0; border-bottom: 1px solid var(--line); }
nav a { margin-right: 1rem; } .method { color: var(--good); } .bad { color: var(--bad); } .faint { opacity: 0.7; }
"""
_EXAMPLES = {
    "/produce": '{"topic_partitions": [{"topic": "orders", "partition": 0, "records": ["alpha", {"base64": "AAE="}]}]}',
    "/consume": '{"topic_partitions": [{"topic": "orders", "partition": 0, "fetch_offset": 0}], "max_wait_ms": 1000}',
    "/fence": '{"topic": "orders", "partition": 0}',
    "/unfence": '{"topic": "orders", "partition": 0}',
}


def page(document: Json) -> str:
    info = document["info"]
    operations = [
        (path, method.upper(), operation)
        for path, item in document["paths"].items()
        for method, operation in item.items()
    ]
    links = "".join(f'<a href="#{operation["operationId"]}">{escape(path)}</a> ' for path, _, operation in operations)
    schemas: Json = document["components"]["schemas"]
    return "".join(
        [
            f'<!doctype html><html lang="en"><meta charset="utf-8"><title>{escape(info["title"])}</title>',
            f'<meta name="viewport" content="width=device-width"><style>{_STYLE}</style><body>',
            f"<h1>{escape(info['title'])}</h1><p class=faint>HTTP API, version {escape(info['version'])}; ",
            'for programs: <a href="openapi.json">openapi.json</a></p>',
            f"<p>{_prose(info['description'])}</p><nav>{links}</nav>",
            *(part for path, method, operation in operations for part in _operation(path, method, operation)),
            "<h2>What the names stand for</h2>",
            *(part for name, schema in schemas.items() for part in _schema(name, schema)),
            "</body></html>\n",
        ]
    )


def _prose(text: str) -> str:
    """With `code` in it."""
    parts = escape(text).split("`")
    return "".join(f"<code>{part}</code>" if number % 2 else part for number, part in enumerate(parts))


def _operation(path: str, method: str, operation: Json) -> Iterator[str]:
    yield f'<h2 id="{operation["operationId"]}"><code><span class=method>{method}</span> {escape(path)}</code></h2>'
    yield f"<p><b>{escape(operation['summary'])}.</b> {_prose(operation.get('description', ''))}</p>"
    if path in _EXAMPLES:
        yield f"<pre>curl -X {method} http://HOST:PORT{escape(path)} -d '{escape(_EXAMPLES[path], quote=False)}'</pre>"
    if "requestBody" in operation:
        schema = operation["requestBody"]["content"]["application/json"]["schema"]
        yield f"<p>Takes {_type(schema)}.</p>"
    if parameters := operation.get("parameters"):
        rows = "".join(f"<tr><td><code>{escape(each['name'])}</code><td>{_type(each['schema'])}" for each in parameters)
        yield f"<table><tr><th>parameter<th>{rows}</table>"
    yield "<table><tr><th>status<th>when<th>body"
    for status, response in sorted(operation["responses"].items()):
        schema = response["content"]["application/json"]["schema"]
        kind = "" if status.startswith("2") else " class=bad"
        yield f"<tr><td{kind}>{status}<td>{_prose(response['description'])}<td>{_type(schema)}"
    yield "</table>"


def _schema(name: str, schema: Json) -> Iterator[str]:
    yield f'<h3 id="{escape(name)}"><code>{escape(name)}</code></h3>'
    if about := schema.get("description"):
        yield f"<p>{_prose(about)}</p>"
    if "properties" not in schema:
        yield f"<p>{_type(schema)}</p>"
        return
    yield "<table><tr><th>field<th>is<th>"
    for field, of in schema["properties"].items():
        may_lack = "" if field in schema["required"] else " <span class=faint>may be left out</span>"
        default = f", {of['default']} unless told" if "default" in of else ""
        about = _prose(of.get("description", "")) + escape(default)
        yield f"<tr><td><code>{escape(field)}</code>{may_lack}<td>{_type(of)}<td>{about}"
    yield "</table>"


def _type(schema: Json) -> str:
    if "$ref" in schema:
        name = escape(schema["$ref"].rpartition("/")[2])
        return f'<a href="#{name}"><code>{name}</code></a>'
    if "anyOf" in schema:
        return ", or ".join(map(_type, schema["anyOf"]))
    if "const" in schema or "enum" in schema:
        values = schema["enum"] if "enum" in schema else [schema["const"]]
        return " or ".join(
            f"<code>{escape(str(value).lower() if value in (True, False) else value)}</code>" for value in values
        )
    kind = schema["type"]
    if isinstance(kind, list):
        return " or ".join(map(escape, kind))
    if kind == "array":
        return f"a list of {_type(schema['items'])}"
    return {"string": "text", "integer": "a number", "object": "an object"}.get(kind, escape(kind))
