"""Every route of a live daemon with a store gets values that parsers fail on; none answers 500.

Schemathesis stays inside the schema's idea of a value. These are the ones outside of it: digits
without end, depth, lone surrogates, NaN, duplicate keys, bytes that are no text.
"""

from __future__ import annotations

import contextlib
import http.client
import json
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from urllib.parse import quote

import pytest

from skulkd.store.imports.tiny_model import TINY_MODEL_ID
from tests.cluster_live.cluster import free_port, make_cluster
from tests.cluster_live.live_node import LiveNode
from tests.embedding.models import ENCODER_ID, make_tiny_encoder
from tests.wire.schema_samples import Plain, Sampler

REQUEST_GUARD_S = 120.0
MARK = "@@hostile@@"

# JSON text, put in place of one field.
HOSTILE_JSON = {
    "400 digits": "9" * 400,
    "minus 400 digits": "-" + "9" * 400,
    "5000 digits": "1" * 5000,
    "over 64 bits": str(2**64),
    "huge float": "1e999",
    "NaN": "NaN",
    "minus infinity": "-Infinity",
    "lone surrogate": '"\\ud800"',
    "NUL": '"a\\u0000b"',
    "very long text": '"' + "x" * 200_000 + '"',
    "depth": "[" * 5000 + "]" * 5000,
    "depth of objects": '{"a":' * 150 + "1" + "}" * 150,
    "null": "null",
    "true": "true",
    "empty list": "[]",
    "empty object": "{}",
    "list of nulls": "[null]",
    "digits in text": '"' + "9" * 400 + '"',
    "line break": '"a\\r\\nb: c"',
    "path": '"../../../../etc/passwd"',
}
# Text in a query or a path.
HOSTILE_TEXT = [
    "9" * 400, "-" + "9" * 400, "1" * 5000, "1e999", "nan", "-inf", "%00", "%ed%a0%80", "%ff",
    "..%2f..%2fetc%2fpasswd", "%0d%0aX:y", "[" * 500, "a" * 4000, "", "0", "-1", "٣",
]  # fmt: skip
# Whole bodies.
HOSTILE_BODIES = [
    b"", b"{", b"\xff\xfe", b"null", b"[]", b'"x"', b"1" * 5000, b"[" * 50_000,
    b'{"a":1,"a":2}', b"\xef\xbb\xbf{}", b"{}" + b" " * 100_000, b'{"\\ud800": 1}',
]  # fmt: skip
# A restart would end the daemon under test; a stream has no end.
LEFT_OUT = {("post", "/admin/restart")}
ENDLESS = {"follow", "stream"}


@pytest.fixture
def storing(tmp_path: Path) -> Iterator[LiveNode]:
    """A node that serves a chat and an embedding model and hosts a store: all routes have work."""
    base = tmp_path / "cluster"
    config = (
        f"model_store:\n  store_host: kite1\n  store_http_host: 127.0.0.1\n"
        f"  store_port: {free_port()}\n  store_path: {base}/kite1/models\n"
    )
    cluster = make_cluster(base, 1, config=config)
    make_tiny_encoder(base / "kite1" / "models")
    try:
        cluster.start()
        cluster.place()
        cluster.place(model_id=ENCODER_ID)
        yield cluster.nodes[0]
    finally:
        cluster.end()


@dataclass(frozen=True)
class Hostile:
    """One request and what makes it hostile."""

    method: str
    path: str
    body: bytes | None
    what: str


def test_no_value_of_a_client_makes_a_server_error(storing: LiveNode) -> None:
    document = storing.get("/api/openapi.json")
    failed, routes = [], set()
    connection = http.client.HTTPConnection("127.0.0.1", storing.port, timeout=REQUEST_GUARD_S)
    with contextlib.closing(connection):
        for request in hostile_requests(document):
            connection.request(request.method.upper(), request.path, request.body, JSON_BODY)
            answer = connection.getresponse()
            answer.read()
            routes.add(request.path.partition("?")[0])
            # 501 and above say what is not there yet; 500 says that we did not think of it.
            if answer.status == 500:
                failed.append(f"{request.method} {request.path[:60]}: {request.what}")
    assert failed == []
    assert "unexpected error" not in storing.daemon.said()
    assert storing.get("/healthz")
    for family in (
        "/store/", "/v1/swarm/", "/v1/events", "/download/", "/v1/chat/", "/v1/messages",
        "/v1/responses", "/v1/emb", "/api/chat", "/api/generate", "/api/pull",
    ):  # fmt: skip
        assert any(path.startswith(family) for path in routes), family


JSON_BODY = {"Content-Type": "application/json"}
# What lets a request come far enough for its other values to matter.
SENSIBLE: dict[str, Any] = {
    "model": TINY_MODEL_ID,
    "messages": [{"role": "user", "content": "hello"}],
    "max_tokens": 2,
    "max_completion_tokens": 2,
    "max_output_tokens": 2,
    "options": {"num_predict": 2},
    "input": "hello",
    "prompt": "hello",
    "stream": False,
}
GENERATION = (
    "/completions", "/v1/messages", "/v1/responses", "/v1/emb", "/api/chat", "/api/generate",
    "/api/emb",
)  # fmt: skip


def hostile_requests(document: dict[str, Any]) -> Iterator[Hostile]:
    # Generation first: later requests may drain the node or delete its instance.
    paths = sorted(
        document["paths"].items(), key=lambda item: not any(part in item[0] for part in GENERATION)
    )
    for path, operations in paths:
        for method, operation in operations.items():
            if (method, path) in LEFT_OUT:
                continue
            yield from _in_parameters(method, path, operation)
            if "requestBody" in operation:
                yield from _in_body(method, path, operation, document)


def _in_parameters(method: str, path: str, operation: dict[str, Any]) -> Iterator[Hostile]:
    names = [(item["in"], item["name"]) for item in operation.get("parameters", [])]
    plain = _filled(path, names, {})
    for kind, name in names:
        for text in HOSTILE_TEXT if name not in ENDLESS else []:
            value = text if text.startswith(("%", "..%")) else quote(text, safe="")
            if kind == "query":
                yield Hostile(method, f"{plain}?{name}={value}", None, name)
            elif kind == "path" and value:
                yield Hostile(method, _filled(path, names, {name: value}), None, name)


def _filled(path: str, names: list[tuple[str, str]], values: dict[str, str]) -> str:
    for kind, name in names:
        if kind == "path":
            path = path.replace("{" + name + "}", values.get(name, "x"))
    return path


def _in_body(
    method: str, path: str, operation: dict[str, Any], document: dict[str, Any]
) -> Iterator[Hostile]:
    names = [(item["in"], item["name"]) for item in operation.get("parameters", [])]
    where = _filled(path, names, {})
    for body in HOSTILE_BODIES:
        yield Hostile(method, where, body, "body")
    content = operation["requestBody"]["content"].get("application/json")
    if content is None:
        return
    least = Sampler(document, Plain(optional=False)).sample(content["schema"])
    whole = Sampler(document, Plain(turn=1)).sample(content["schema"])
    if isinstance(whole, dict):
        sensible = SENSIBLE | ({"model": ENCODER_ID} if "embed" in path else {})
        least |= {key: value for key, value in sensible.items() if key in whole}
    for marked, place in _marked(least, whole):
        text = json.dumps(marked)
        for what, value in HOSTILE_JSON.items():
            body = text.replace(f'"{MARK}"', value).encode()
            yield Hostile(method, where, body, f"{place}: {what}")


def _marked(least: Any, whole: Any) -> Iterator[tuple[Any, str]]:
    """The smallest document with each field in turn, two levels deep, replaced by the mark."""
    if not isinstance(whole, dict):
        return
    for key, item in whole.items():
        yield {**least, key: MARK}, key
        if isinstance(item, dict):
            for inner in item:
                yield {**least, key: {**item, inner: MARK}}, f"{key}.{inner}"
