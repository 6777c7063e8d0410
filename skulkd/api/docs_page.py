"""The reference page at `/api/docs`, rendered from the OpenAPI document.

Pure and self-contained: no script, no network, every text escaped.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from html import escape
from typing import Any

STYLE = """
:root{color-scheme:light dark;--edge:#8886;--soft:#8881}
body{font:16px/1.5 system-ui,sans-serif;max-width:60rem;margin:0 auto;padding:1rem}
code,.path{font:0.9em ui-monospace,monospace}
section{margin:2rem 0}
article{border:1px solid var(--edge);border-radius:6px;margin:.75rem 0;padding:.5rem 1rem}
h3{margin:.25rem 0}.method{display:inline-block;min-width:4em;font-weight:700}
table{border-collapse:collapse;width:100%}
td,th{border-top:1px solid var(--edge);padding:.25rem .5rem;text-align:left;vertical-align:top}
th{background:var(--soft)}nav li{display:inline-block;margin-right:1rem}
nav ul{padding:0;list-style:none}
@media(max-width:40rem){body{padding:.5rem}td,th{padding:.25rem}}
"""

Document = dict[str, Any]


def render_docs(document: Document) -> str:
    """A whole HTML page."""
    info = document["info"]
    title = escape(f"{info['title']} {info['version']}")
    tags = _by_tag(document)
    return "".join(
        [
            "<!doctype html><html lang='en'><head><meta charset='utf-8'>",
            "<meta name='viewport' content='width=device-width,initial-scale=1'>",
            f"<title>{title} API</title><style>{STYLE}</style></head><body>",
            f"<header><h1>{title} API</h1><p>The same as a machine reads it: ",
            "<a href='/api/openapi.json'>/api/openapi.json</a>. From other machines send ",
            "<code>Authorization: Bearer TOKEN</code>, with an access token or the cluster secret."
            "</p></header>",
            _navigation(list(tags)),
            "<main>",
            *(_section(tag, operations) for tag, operations in tags.items()),
            *_schemas(document["components"]["schemas"]),
            "</main></body></html>",
        ]
    )


def _by_tag(document: Document) -> dict[str, list[tuple[str, str, Document]]]:
    tags: dict[str, list[tuple[str, str, Document]]] = {}
    for path, operations in document["paths"].items():
        for method, operation in operations.items():
            for tag in operation["tags"]:
                tags.setdefault(tag, []).append((method.upper(), path, operation))
    return tags


def _navigation(tags: list[str]) -> str:
    names = [*tags, "schemas"]
    items = "".join(f"<li><a href='#{escape(name)}'>{escape(name)}</a></li>" for name in names)
    return f"<nav aria-label='Sections'><ul>{items}</ul></nav>"


def _section(tag: str, operations: list[tuple[str, str, Document]]) -> str:
    articles = "".join(_operation(*operation) for operation in operations)
    return f"<section id='{escape(tag)}'><h2>{escape(tag)}</h2>{articles}</section>"


def _operation(method: str, path: str, operation: Document) -> str:
    parts = [
        f"<article><h3><span class='method'>{escape(method)}</span> ",
        f"<span class='path'>{escape(path)}</span></h3><p>{escape(operation['summary'])}</p>",
        f"<p>Scope: {escape(_scope(operation))}</p>",
    ]
    parameters = operation.get("parameters", [])
    if parameters:
        rows = [(f"{p['name']} ({p['in']})", _shape(p["schema"])) for p in parameters]
        parts.append(_table(("Parameter", "Type"), rows))
    if "requestBody" in operation:
        content = next(iter(operation["requestBody"]["content"].values()))
        parts.append(f"<p>Body: {_shape(content['schema'])}</p>")
    rows = [
        (f"{status} {response['description']}", _content(response))
        for status, response in operation["responses"].items()
    ]
    return "".join([*parts, _table(("Answer", "Body"), rows), "</article>"])


def _scope(operation: Document) -> str:
    """What a token needs for it, in a word."""
    for alternative in operation["security"]:
        if "token" in alternative:
            return ", ".join(alternative["token"]) or "any token"
    return "none, open to all"


def _content(response: Document) -> str:
    return ", ".join(
        f"<code>{escape(kind)}</code> {_shape(content['schema'])}"
        for kind, content in response["content"].items()
    )


def _schemas(schemas: Document) -> Iterator[str]:
    yield "<section id='schemas'><h2>schemas</h2>"
    for name, schema in sorted(schemas.items()):
        yield f"<article id='schema-{escape(name)}'><h3>{escape(name)}</h3>"
        if text := schema.get("description"):
            yield f"<p>{escape(text)}</p>"
        yield _schema_body(schema)
        yield "</article>"
    yield "</section>"


def _schema_body(schema: Document) -> str:
    properties = schema.get("properties")
    if not properties:
        return f"<p>{_shape({k: v for k, v in schema.items() if k != 'description'})}</p>"
    required = set(schema.get("required", []))
    rows = [
        (name, _shape(facts), "yes" if name in required else "", escape(_about(facts)))
        for name, facts in properties.items()
    ]
    return _table(("Field", "Type", "Required", "Meaning"), rows)


def _about(facts: Document) -> str:
    return str(facts.get("description", ""))


def _table(head: tuple[str, ...], rows: Sequence[tuple[str, ...]]) -> str:
    """The first cell of a row is plain text; the others are already HTML."""
    cells = "".join(f"<th scope='col'>{escape(text)}</th>" for text in head)
    lines = "".join(
        f"<tr><td><code>{escape(first)}</code></td>"
        + "".join(f"<td>{cell}</td>" for cell in rest)
        + "</tr>"
        for first, *rest in rows
    )
    return f"<table><thead><tr>{cells}</tr></thead><tbody>{lines}</tbody></table>"


def _shape(schema: Any) -> str:
    """A type in one line of HTML, with a link where it is a component."""
    if not isinstance(schema, dict) or not schema:
        return "any"
    if reference := schema.get("$ref"):
        name = escape(str(reference).rpartition("/")[2])
        return f"<a href='#schema-{name}'>{name}</a>"
    if options := schema.get("anyOf", schema.get("oneOf")):
        return " or ".join(_shape(option) for option in options)
    if "const" in schema or "enum" in schema:
        values = schema.get("enum", [schema.get("const")])
        return " · ".join(f"<code>{escape(str(value))}</code>" for value in values)
    return _plain_shape(schema)


def _plain_shape(schema: Document) -> str:
    kind = schema.get("type", "any")
    if kind == "array":
        return f"list of {_shape(schema.get('items'))}"
    if kind == "object" and isinstance(schema.get("additionalProperties"), dict):
        return f"map to {_shape(schema['additionalProperties'])}"
    if kind == "object" and "properties" in schema:
        fields = (f"{escape(key)}: {_shape(value)}" for key, value in schema["properties"].items())
        return "{" + ", ".join(fields) + "}"
    return escape(str(kind))
