"""The OpenAPI 3.1 document, made from the routes and the models the handlers use.

Pure: tables in, document out. It runs no handler.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import Any

from pydantic import TypeAdapter
from pydantic.json_schema import JsonSchemaMode

from skulkd.api.errors import JSON_TYPE, phrase
from skulkd.api.routes import Route
from skulkd.wire.errors import DetailError, ErrorEnvelope, HTTPValidationError

REF = "#/components/schemas/{model}"
_PATH_PARAMETER = re.compile(r"\{(\w+)(?::[^}]*)?\}")
_EVERY_ROUTE = (401, 403, 429, 503)

Schema = dict[str, Any]
_Key = tuple[Any, JsonSchemaMode]


class _Schemas:
    """Collects every type first, so that shared models become one component."""

    def __init__(self, routes: Iterable[Route]) -> None:
        wanted: dict[str, _Key] = {}
        for kind, mode in _types_of(routes):
            wanted.setdefault(_name(kind, mode), (kind, mode))
        inputs: list[tuple[str, JsonSchemaMode, TypeAdapter[Any]]] = [
            (name, mode, TypeAdapter(kind)) for name, (kind, mode) in wanted.items()
        ]
        found, definitions = TypeAdapter.json_schemas(inputs, ref_template=REF)
        self._found = {name: schema for (name, _), schema in found.items()}
        self.components: Schema = definitions.get("$defs", {})

    def of(self, kind: Any, mode: JsonSchemaMode = "serialization") -> Schema:
        return self._found[_name(kind, mode)]


def build_openapi(routes: Iterable[Route], version: str) -> Schema:
    """The whole document."""
    routes = tuple(routes)
    schemas = _Schemas(routes)
    paths: dict[str, Schema] = {}
    for route in routes:
        path = _PATH_PARAMETER.sub(r"{\1}", route.path)
        paths.setdefault(path, {})[route.method.lower()] = _operation(route, schemas)
    return {
        "openapi": "3.1.0",
        "info": {"title": "skulkd", "version": version},
        "paths": paths,
        "components": {
            "schemas": schemas.components,
            "securitySchemes": {
                "clusterSecret": {"type": "http", "scheme": "bearer"},
                "token": {
                    "type": "http",
                    "scheme": "bearer",
                    "description": "An access token; each operation names the scope it needs.",
                },
            },
        },
    }


def _types_of(routes: Iterable[Route]) -> Iterable[_Key]:
    for error in (ErrorEnvelope, HTTPValidationError, DetailError):
        yield error, "serialization"
    for route in routes:
        yield route.answer, "serialization"
        for _, kind in route.other_answers:
            yield kind, "serialization"
        for kind in (route.query, route.body, route.raw_body):
            if kind is not None:
                yield kind, "validation"


def _name(kind: Any, mode: JsonSchemaMode) -> str:
    return f"{kind!r} {mode}"


def _operation(route: Route, schemas: _Schemas) -> Schema:
    operation: Schema = {
        "summary": route.summary,
        "tags": [route.tag],
        "operationId": route.handler.__name__,
        "responses": _responses(route, schemas),
    }
    if route.aliases:
        operation["description"] = f"Also: {', '.join(route.aliases)}"
    if parameters := _path_parameters(route) + _query_parameters(route, schemas):
        operation["parameters"] = parameters
    body = route.body if route.body is not None else route.raw_body
    if body is not None:
        content = {JSON_TYPE: {"schema": schemas.of(body, "validation")}}
        operation["requestBody"] = {"required": True, "content": content}
    operation["security"] = _security(route)
    return operation


def _security(route: Route) -> list[Schema]:
    """The empty alternative: requests from the machine itself need no token."""
    if route.open_to_all:
        return [{}]
    scopes = [] if route.scope == "any" else [route.scope]
    return [{}, {"clusterSecret": []}, {"token": scopes}]


def _responses(route: Route, schemas: _Schemas) -> Schema:
    responses = {"200": _response(200, schemas.of(route.answer), route.content_type)}
    for kind in route.files:
        file = {"schema": {"type": "string", "format": "binary"}}
        responses["200"]["content"][kind] = file
    for status, kind in route.other_answers:
        responses[str(status)] = _response(status, schemas.of(kind))
    refusals = route.errors if route.open_to_all else (*route.errors, *_EVERY_ROUTE)
    for status in refusals:
        responses.setdefault(str(status), _response(status, schemas.of(ErrorEnvelope)))
    validated = route.query is not None or route.body is not None
    if validated and route.error_format is None and "422" not in responses:
        responses["422"] = _response(422, schemas.of(HTTPValidationError))
    return dict(sorted(responses.items()))


def _response(status: int, schema: Schema, content_type: str = JSON_TYPE) -> Schema:
    description = "OK" if status == 200 else phrase(status)
    return {"description": description, "content": {content_type: {"schema": schema}}}


def _path_parameters(route: Route) -> list[Schema]:
    return [
        {"name": name, "in": "path", "required": True, "schema": {"type": "string"}}
        for name in _PATH_PARAMETER.findall(route.path)
    ]


def _query_parameters(route: Route, schemas: _Schemas) -> list[Schema]:
    if route.query is None:
        return []
    schema = schemas.of(route.query, "validation")
    if reference := schema.get("$ref"):
        schema = schemas.components[str(reference).rpartition("/")[2]]
    required = schema.get("required", [])
    return [
        {
            "name": name,
            "in": "query",
            "required": name in required,
            "schema": facts,
            **({"description": facts["description"]} if "description" in facts else {}),
        }
        for name, facts in schema.get("properties", {}).items()
    ]
