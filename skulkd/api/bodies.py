"""Reading what a client sent: size and time limits, JSON, and validation to typed values.

Knows no route; raises `ApiError` and `InvalidRequest`.
"""

from __future__ import annotations

import asyncio
import re
from collections.abc import AsyncIterator, Mapping
from typing import Any, TypeVar, get_origin

from aiohttp import web
from multidict import MultiMapping
from pydantic import BaseModel, TypeAdapter, ValidationError

from skulkd.api.errors import ApiError, InvalidRequest

BODY_DEADLINE_S = 10.0
BODY_SILENCE_S = 30.0

Model = TypeVar("Model", bound=BaseModel)


async def read_body(
    request: web.Request, limit: int, *, deadline_s: float = BODY_DEADLINE_S
) -> bytes:
    """The whole body, refused as soon as it is known to be too large or too slow."""
    if request.content_length is not None and request.content_length > limit:
        raise _too_large(limit)
    _refuse_encoding(request.headers.get("Content-Encoding", ""))
    await _invite(request)
    body = bytearray()
    try:
        async with asyncio.timeout(deadline_s):
            while chunk := await request.content.readany():
                body += chunk
                if len(body) > limit:
                    raise _too_large(limit)
    except TimeoutError:
        raise ApiError(
            408, f"the request body did not arrive within {deadline_s:g} s", headers=_CLOSE
        ) from None
    except web.RequestPayloadError as error:
        raise ApiError(400, f"the request body is broken: {error}", headers=_CLOSE) from error
    return bytes(body)


async def body_pieces(
    request: web.Request, *, silence_s: float = BODY_SILENCE_S
) -> AsyncIterator[bytes]:
    """A body of any size while it arrives; each piece must come within `silence_s`."""
    _refuse_encoding(request.headers.get("Content-Encoding", ""))
    await _invite(request)
    try:
        while True:
            async with asyncio.timeout(silence_s):
                piece = await request.content.readany()
            if not piece:
                return
            yield piece
    except TimeoutError:
        message = f"nothing of the request body arrived for {silence_s:g} s"
        raise ApiError(408, message, headers=_CLOSE) from None
    except web.RequestPayloadError as error:
        raise ApiError(400, f"the request body is broken: {error}", headers=_CLOSE) from error


def parse_body(raw: bytes, content_type: str, adapter: TypeAdapter[Any]) -> Any:
    """A typed value from a JSON body; the errors a strict reader of the schema would raise."""
    if not raw:
        raise InvalidRequest(
            [{"type": "missing", "loc": ["body"], "msg": "Field required", "input": None}]
        )
    if not is_json(content_type):
        raise InvalidRequest(
            [
                {
                    "type": "model_attributes_type",
                    "loc": ["body"],
                    "msg": "Input should be a valid dictionary or object to extract fields from",
                    "input": raw.decode("utf-8", "replace"),
                }
            ]
        )
    try:
        value = adapter.validate_json(raw)
    except ValidationError as error:
        raise InvalidRequest([_located(item, "body") for item in _items(error)]) from error
    if _MANY_DIGITS.search(raw):
        _refuse_large_integers(value, "body")
    return value


def parse_query(query: Mapping[str, str], model: type[Model]) -> Model:
    """The query as its model; values arrive as text, so numbers and booleans are read from it.

    A key of the model that is a list may be repeated.
    """
    values: dict[str, Any] = dict(query)
    for name, field in model.model_fields.items():
        if get_origin(field.annotation) is list and isinstance(query, MultiMapping):
            values[name] = query.getall(name, [])
    try:
        parsed = model.model_validate(values, strict=False)
    except ValidationError as error:
        raise InvalidRequest([_located(item, "query") for item in _items(error)]) from error
    _refuse_large_integers(parsed, "query")
    return parsed


def is_json(content_type: str) -> bool:
    """Whether a media type (without parameters) says JSON."""
    kind, _, subtype = content_type.partition("/")
    return kind == "application" and (subtype == "json" or subtype.endswith("+json"))


_CLOSE = {"Connection": "close"}
# Larger ones have no meaning here, and Python's floats and clocks fail on them.
_LARGEST_INTEGER = 2**63 - 1
_MANY_DIGITS = re.compile(rb"[0-9]{19}")


def _refuse_large_integers(document: Any, place: str) -> None:
    """Raises InvalidRequest that names the first integer beyond 64 bits."""
    todo: list[tuple[list[str | int], Any]] = [([place], document)]
    while todo:
        path, value = todo.pop()
        if isinstance(value, BaseModel):
            value = dict(value)
        if isinstance(value, dict):
            todo += [([*path, key], item) for key, item in value.items()]
        elif isinstance(value, list):
            todo += [([*path, index], item) for index, item in enumerate(value)]
        elif isinstance(value, int) and abs(value) > _LARGEST_INTEGER:
            raise InvalidRequest(
                [
                    {
                        "type": "int_parsing_size",
                        "loc": path,
                        "msg": "Integer should fit into 64 bits",
                        "input": f"{str(value)[:20]}…",
                    }
                ]
            )


def _too_large(limit: int) -> ApiError:
    return ApiError(
        413, f"the request body is larger than {limit} bytes (api.max_body_mib)", headers=_CLOSE
    )


def _refuse_encoding(encoding: str) -> None:
    if encoding.strip().lower() not in {"", "identity"}:
        raise ApiError(
            415,
            f"Content-Encoding {encoding!r} is not supported: send the body uncompressed",
            headers={**_CLOSE, "Accept-Encoding": "identity"},
        )


async def _invite(request: web.Request) -> None:
    # The router leaves "100 Continue" to us, so that a body too large is never sent.
    if request.headers.get("Expect", "").lower() == "100-continue":
        await request.writer.write(b"HTTP/1.1 100 Continue\r\n\r\n")
        request.writer.output_size = 0


def _items(error: ValidationError) -> list[dict[str, Any]]:
    return [dict(item) for item in error.errors(include_url=False)]


def _located(item: dict[str, Any], place: str) -> dict[str, Any]:
    if item["type"] == "json_invalid":
        return {
            "type": "json_invalid",
            "loc": [place],
            "msg": "JSON decode error",
            "input": {},
            "ctx": {"error": str(item.get("ctx", {}).get("error", item["msg"]))},
        }
    return {**item, "loc": [place, *item["loc"]]}
