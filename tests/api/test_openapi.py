"""The OpenAPI document of a real daemon, and the page made from it."""

from __future__ import annotations

import json
import re
from html.parser import HTMLParser
from typing import Any

import jsonschema
import pytest

from skulkd.api.app import all_routes
from skulkd.api.docs_page import render_docs
from skulkd.api.openapi import build_openapi
from tests.api.test_endpoints import check_schema, fetch
from tests.daemon_process import DaemonProcess

DOCUMENT = build_openapi(all_routes(), "1.2.3")
METHODS = {"get", "put", "post", "delete"}


def _references(value: Any) -> set[str]:
    if isinstance(value, dict):
        own = {value["$ref"]} if isinstance(value.get("$ref"), str) else set()
        return own.union(*(_references(item) for item in value.values()))
    if isinstance(value, list):
        return set().union(*(_references(item) for item in value))
    return set()


def test_every_schema_is_valid_and_every_reference_is_there() -> None:
    schemas = DOCUMENT["components"]["schemas"]
    for schema in schemas.values():
        jsonschema.Draft202012Validator.check_schema(schema)
    assert _references(DOCUMENT) <= {f"#/components/schemas/{name}" for name in schemas}


def test_every_operation_is_described_and_named_once() -> None:
    operations = [op for path in DOCUMENT["paths"].values() for op in path.values()]
    ids = [operation["operationId"] for operation in operations]
    assert len(set(ids)) == len(ids) == len(all_routes())
    for path, methods in DOCUMENT["paths"].items():
        assert methods.keys() <= METHODS
        for operation in methods.values():
            assert operation["summary"]
            assert "200" in operation["responses"]
            named = {p["name"] for p in operation.get("parameters", []) if p["in"] == "path"}
            assert named == set(re.findall(r"\{(\w+)\}", path))


def test_models_shared_by_routes_are_one_component() -> None:
    paths = DOCUMENT["paths"]
    schemas = [
        paths[path]["get"]["responses"]["200"]["content"]["application/json"]["schema"]
        for path in ("/v1/diagnostics/node", "/v1/diagnostics/cluster/{node_id}")
    ]
    assert schemas == [{"$ref": "#/components/schemas/NodeDiagnostics"}] * 2


def test_the_daemon_serves_the_document_of_its_own_routes(shared_daemon: DaemonProcess) -> None:
    served = shared_daemon.get("/api/openapi.json")
    assert served["openapi"] == "3.1.0"
    assert served["paths"].keys() == DOCUMENT["paths"].keys()


@pytest.mark.parametrize(
    "path",
    [
        "/node_id", "/node/identity", "/state", "/config", "/v1/diagnostics/node",
        "/v1/diagnostics/cluster", "/v1/diagnostics/cluster/timeline", "/v1/cluster/timeline",
        "/v1/traces", "/v1/traces/cluster", "/v1/cluster/traces", "/events", "/healthz", "/readyz",
    ],
)  # fmt: skip
def test_answers_are_as_the_document_says(shared_daemon: DaemonProcess, path: str) -> None:
    document = shared_daemon.get("/api/openapi.json")
    content = document["paths"][path]["get"]["responses"]["200"]["content"]
    check_schema(document, content["application/json"]["schema"], shared_daemon.get(path))


@pytest.mark.parametrize(
    ("path", "method", "status"),
    [
        ("/v1/diagnostics/cluster/nobody", "GET", 404),
        ("/admin/restart?node_id=nobody", "POST", 404),
    ],
)
def test_refusals_are_as_the_document_says(
    shared_daemon: DaemonProcess, path: str, method: str, status: int
) -> None:
    got, _, body = fetch(shared_daemon, path, method)
    assert got == status
    envelope = DOCUMENT["components"]["schemas"]["ErrorEnvelope"]
    check_schema(DOCUMENT, envelope, json.loads(body))


class _Page(HTMLParser):
    """Collects what a browser would load, link to and show; fails on unbalanced tags."""

    void = frozenset({"meta", "link", "br", "img", "input"})

    def __init__(self) -> None:
        super().__init__()
        self.open: list[str] = []
        self.loads: list[str] = []
        self.links: list[str] = []
        self.ids: list[str] = []
        self.tags: set[str] = set()

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        facts = dict(attrs)
        self.tags.add(tag)
        if tag not in self.void:
            self.open.append(tag)
        if "src" in facts:
            self.loads.append(facts["src"] or "")
        if tag == "a":
            self.links.append(facts.get("href") or "")
        if "id" in facts:
            self.ids.append(facts["id"] or "")

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag


def test_the_page_needs_no_network_and_every_link_leads_somewhere() -> None:
    page = _Page()
    page.feed(render_docs(DOCUMENT))
    assert page.open == []
    assert page.loads == []
    assert not page.tags & {"script", "iframe", "link"}
    assert len(set(page.ids)) == len(page.ids)
    inner = {link for link in page.links if link.startswith("#")}
    assert inner <= {f"#{name}" for name in page.ids}
    assert set(page.links) - inner == {"/api/openapi.json"}


def test_the_page_shows_every_operation_and_schema() -> None:
    text = render_docs(DOCUMENT)
    for path in DOCUMENT["paths"]:
        assert path in text
    for name in DOCUMENT["components"]["schemas"]:
        assert f"id='schema-{name}'" in text


def test_the_page_escapes_what_it_shows() -> None:
    evil = "<script>alert('x')</script>"
    document = {
        "info": {"title": evil, "version": evil},
        "paths": {
            f"/{evil}": {
                "get": {
                    "summary": evil,
                    "tags": [evil],
                    "security": [{}, {"token": [evil]}],
                    "parameters": [{"name": evil, "in": "query", "schema": {"const": evil}}],
                    "responses": {
                        evil: {
                            "description": evil,
                            "content": {evil: {"schema": {"type": evil}}},
                        }
                    },
                }
            }
        },
        "components": {
            "schemas": {
                evil: {
                    "description": evil,
                    "properties": {evil: {"enum": [evil], "description": evil}},
                }
            }
        },
    }
    assert "<script" not in render_docs(document)


def test_the_served_page_forbids_scripts(shared_daemon: DaemonProcess) -> None:
    status, headers, body = fetch(shared_daemon, "/api/docs")
    assert status == 200
    assert headers["Content-Type"] == "text/html; charset=utf-8"
    assert "default-src 'none'" in headers["Content-Security-Policy"]
    assert b"/v1/diagnostics/cluster/{node_id}" in body
