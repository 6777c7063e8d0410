"""Bodies and queries through a real server: the four error bodies, limits and deadlines."""

from __future__ import annotations

import asyncio
import contextlib
import gzip
import json
import logging
from pathlib import Path
from typing import Any

import aiohttp
import pytest
from aiohttp import web
from pydantic import TypeAdapter

from skulkd.api.bodies import is_json, parse_body, parse_query, read_body
from skulkd.api.errors import ApiError, InvalidRequest, ok
from skulkd.api.routes import RouteTable
from skulkd.api.services import services
from skulkd.wire.base import CamelModel, SnakeModel
from tests.api.in_process import serving, some_services

LIMIT = 1024**2


class Order(CamelModel):
    model_id: str
    node_count: int = 1


class Page(SnakeModel):
    size: int = 10


def _routes() -> RouteTable:
    routes = RouteTable("test")

    @routes.post("/order", scope="read", summary="s", body=Order, answer=Order)
    async def order(_request: web.Request, body: Order) -> web.Response:
        return ok(body.model_dump_json().encode())

    @routes.get("/page", scope="read", summary="s", query=Page, answer=Page)
    async def page(_request: web.Request, query: Page) -> web.Response:
        return ok(query.model_dump_json().encode())

    @routes.get("/bug", scope="read", summary="s", answer=str)
    async def bug(_request: web.Request) -> web.Response:
        raise ZeroDivisionError("secret detail of the bug")

    @routes.get("/refused", scope="read", summary="s", answer=str)
    async def refused(_request: web.Request) -> web.Response:
        raise ApiError(409, "not now")

    @routes.post("/slow", scope="read", summary="s", answer=str)
    async def slow(request: web.Request) -> web.Response:
        limit = services(request).settings.max_body_bytes
        return ok(json.dumps(len(await read_body(request, limit, deadline_s=0.2))).encode())

    return routes


@pytest.fixture
async def url(tmp_path: Path) -> Any:
    node = some_services(tmp_path, {"api.max_body_mib": 1})
    async with serving(node, _routes()) as address:
        yield address


@pytest.fixture
async def client() -> Any:
    async with aiohttp.ClientSession() as session:
        yield session


@pytest.mark.parametrize("body", [{"modelId": "m", "nodeCount": 2}, {"model_id": "m"}])
async def test_a_valid_body_in_either_spelling_reaches_the_handler(
    url: str, client: aiohttp.ClientSession, body: dict[str, Any]
) -> None:
    async with client.post(f"{url}/order", json=body) as answer:
        assert answer.status == 200
        assert (await answer.json())["modelId"] == "m"


@pytest.mark.parametrize(
    ("data", "content_type", "kind", "loc"),
    [
        pytest.param(b'{"modelId": 1}', "application/json", "string_type", ["body", "modelId"]),
        pytest.param(b'{"nodeCount": 1}', "application/json", "missing", ["body", "modelId"]),
        pytest.param(
            b'{"modelId": "m", "x": 1}', "application/json", "extra_forbidden", ["body", "x"]
        ),
        pytest.param(b'{"modelId": ', "application/json", "json_invalid", ["body"]),
        pytest.param(b"\xff\xfe", "application/json", "json_invalid", ["body"]),
        pytest.param(b"[" * 100_000, "application/json", "json_invalid", ["body"]),
        pytest.param(b"", "application/json", "missing", ["body"]),
        pytest.param(
            b'{"modelId": "m"}',
            "application/x-www-form-urlencoded",
            "model_attributes_type",
            ["body"],
        ),
        pytest.param(b'{"modelId": "m"}', "text/plain", "model_attributes_type", ["body"]),
    ],
    ids=lambda value: str(value)[:20],
)
async def test_a_body_that_breaks_its_schema_is_a_422_with_details(
    url: str,
    client: aiohttp.ClientSession,
    data: bytes,
    content_type: str,
    kind: str,
    loc: list[str],
) -> None:
    headers = {"Content-Type": content_type}
    async with client.post(f"{url}/order", data=data, headers=headers) as answer:
        assert answer.status == 422
        [item] = (await answer.json())["detail"]
    assert (item["type"], item["loc"]) == (kind, loc)
    assert {"msg", "input"} <= item.keys()


async def test_a_json_type_with_parameters_or_suffix_counts_as_json(
    url: str, client: aiohttp.ClientSession
) -> None:
    headers = {"Content-Type": "application/json; charset=utf-8"}
    async with client.post(f"{url}/order", data=b'{"modelId":"m"}', headers=headers) as answer:
        assert answer.status == 200
    assert is_json("application/problem+json")
    assert not is_json("text/json")


async def test_a_long_input_is_not_echoed_whole(url: str, client: aiohttp.ClientSession) -> None:
    async with client.post(f"{url}/order", json={"modelId": ["x" * 500_000]}) as answer:
        assert answer.status == 422
        assert len(await answer.read()) < 10_000


@pytest.mark.parametrize(("query", "status"), [("size=5", 200), ("", 200), ("size=many", 422)])
async def test_a_query_is_read_from_text(
    url: str, client: aiohttp.ClientSession, query: str, status: int
) -> None:
    async with client.get(f"{url}/page?{query}") as answer:
        assert answer.status == status
        if status == 422:
            assert (await answer.json())["detail"][0]["loc"] == ["query", "size"]


async def test_a_deliberate_error_is_the_envelope(url: str, client: aiohttp.ClientSession) -> None:
    async with client.get(f"{url}/refused") as answer:
        assert answer.status == 409
        assert await answer.json() == {
            "error": {"message": "not now", "type": "Conflict", "param": None, "code": 409}
        }


async def test_an_uncaught_error_is_an_envelope_whose_id_is_in_the_log(
    url: str, client: aiohttp.ClientSession, caplog: pytest.LogCaptureFixture
) -> None:
    with caplog.at_level(logging.ERROR):
        async with client.get(f"{url}/bug") as answer:
            body = await answer.json()
            request_id = answer.headers["X-Request-Id"]
    assert answer.status == 500
    assert body["error"]["type"] == "Internal Server Error"
    assert request_id in body["error"]["message"]
    assert "secret detail" not in body["error"]["message"]
    assert any(
        record.exc_info and "secret detail" in str(record.exc_info[1]) for record in caplog.records
    )


async def test_a_body_announced_too_large_is_refused_unread(
    url: str, client: aiohttp.ClientSession
) -> None:
    """Only the head is sent; the answer must come without the body."""
    host, port = url.removeprefix("http://").split(":")
    reader, writer = await asyncio.open_connection(host, int(port))
    writer.write(
        b"POST /order HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n"
        b"Expect: 100-continue\r\nContent-Length: 99999999\r\n\r\n"
    )
    head = await asyncio.wait_for(reader.readuntil(b"\r\n\r\n"), 300)
    writer.close()
    assert head.startswith(b"HTTP/1.1 413 Content Too Large")


async def test_a_client_that_waits_for_100_continue_is_invited(
    url: str, client: aiohttp.ClientSession
) -> None:
    async with client.post(f"{url}/order", json={"modelId": "m"}, expect100=True) as answer:
        assert answer.status == 200


async def test_a_body_of_unknown_length_is_cut_at_the_limit(
    url: str, client: aiohttp.ClientSession
) -> None:
    async def endless() -> Any:
        for _ in range(64):
            yield b"x" * 65536

    async with client.post(f"{url}/slow", data=endless()) as answer:
        assert answer.status == 413
        assert (await answer.json())["error"]["code"] == 413


@pytest.mark.parametrize("encoding", ["gzip", "deflate", "br", "gzip, gzip", "nonsense"])
async def test_a_compressed_body_is_refused_unread(
    url: str, client: aiohttp.ClientSession, encoding: str
) -> None:
    headers = {"Content-Encoding": encoding}
    body = gzip.compress(b"{}")
    async with client.post(f"{url}/slow", data=body, headers=headers) as answer:
        assert answer.status == 415
        assert encoding in (await answer.json())["error"]["message"]


async def test_a_body_that_never_comes_is_a_408(url: str) -> None:
    host, port = url.removeprefix("http://").split(":")
    reader, writer = await asyncio.open_connection(host, int(port))
    writer.write(b"POST /slow HTTP/1.1\r\nHost: localhost\r\nContent-Length: 9\r\n\r\nab")
    head = await asyncio.wait_for(reader.readuntil(b"\r\n\r\n"), 300)
    writer.close()
    assert head.startswith(b"HTTP/1.1 408 Request Timeout")
    assert b"Connection: close" in head


async def test_a_connection_that_dribbles_its_head_is_closed(tmp_path: Path) -> None:
    async with serving(some_services(tmp_path), idle_limit_s=0.3) as url:
        host, port = url.removeprefix("http://").split(":")
        reader, writer = await asyncio.open_connection(host, int(port))

        async def dribble() -> None:
            writer.write(b"GET /node_id HTTP/1.1\r\nX-Slow: ")
            while not writer.is_closing():
                writer.write(b"x")
                await asyncio.sleep(0.05)

        dribbling = asyncio.create_task(dribble())
        # Closed with our bytes unread, the kernel may say so with a reset.
        with contextlib.suppress(ConnectionResetError):
            assert await asyncio.wait_for(reader.read(), 300) == b""
        dribbling.cancel()
        writer.close()


@pytest.mark.parametrize("digits", ["9" * 400, str(2**63), f"-{2**63}"])
def test_an_integer_beyond_64_bits_is_refused_by_the_name_of_its_field(digits: str) -> None:
    body = json.dumps({"modelId": "m", "nodeCount": int(digits)}).encode()
    with pytest.raises(InvalidRequest) as in_body:
        parse_body(body, "application/json", TypeAdapter(Order))
    with pytest.raises(InvalidRequest) as in_query:
        parse_query({"size": digits}, Page)
    assert in_body.value.items[0]["loc"] == ["body", "node_count"]
    assert in_query.value.items[0]["loc"] == ["query", "size"]


def test_the_largest_64_bit_integer_passes() -> None:
    assert parse_query({"size": str(2**63 - 1)}, Page).size == 2**63 - 1
