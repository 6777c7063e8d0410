"""Access tokens at the API of one node: who is let in, to what, how often, and what is logged."""

from __future__ import annotations

import asyncio
import json
import logging
from collections.abc import Callable
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import aiohttp
import pytest
from aiohttp import web
from hypothesis import given
from hypothesis import strategies as st

from skulkd.api.app import all_routes
from skulkd.api.auth import (
    EXPIRED_TOKEN,
    NO_TOKEN,
    REVOKED_TOKEN,
    SECRET_OFF,
    UNKNOWN_TOKEN,
    AuthRefusal,
    Policy,
    decide,
    own_names,
)
from skulkd.api.callers import CLUSTER_SECRET, LOCAL, Caller, Need, allows
from skulkd.api.errors import ApiError, ok
from skulkd.api.openapi import build_openapi
from skulkd.api.routes import RouteTable
from skulkd.api.services import Services
from skulkd.api.streams import open_stream
from skulkd.api.token_metrics import MAX_NAMES, OTHER, TokenCollector
from skulkd.api.token_uses import TokenBucket, TokenUses
from skulkd.cluster.token_admin import (
    AMBIGUOUS,
    NAME_TAKEN,
    TOO_MANY,
    UNKNOWN,
    decide_create,
    decide_revoke,
)
from skulkd.cluster.token_text import digest_of, fits, id_of, new_token
from skulkd.cluster.tokens import TokenTable
from skulkd.log import JsonFormatter
from skulkd.machine.redact import redact_text
from skulkd.peers import PeerRefused
from skulkd.wire.events import TokenCreated, TokenRevoked
from skulkd.wire.ids import NodeId, TokenId
from skulkd.wire.instances import WHOLE
from skulkd.wire.tokens import SCOPES, AccessToken, CreateTokenRequest, Scope, parse_rate
from tests.api.in_process import serving, some_services
from tests.local_commands import leading_core

NOW = datetime(2026, 1, 2, tzinfo=UTC)
SECRET = "correct-horse-battery"
ME = NodeId("node-test")


def a_token(
    name: str = "ci", scopes: tuple[Scope, ...] = ("read",), **more: Any
) -> tuple[AccessToken, str]:
    """A token and its text."""
    token_id, text = new_token()
    facts = {"created": NOW, "digest": digest_of(text), **more}
    return AccessToken(token_id=token_id, name=name, scopes=list(scopes), **facts), text


# Who is let in.

GOOD, GOOD_TEXT = a_token("good")
OLD, OLD_TEXT = a_token("old", expires=NOW)
FRESH, FRESH_TEXT = a_token("fresh", expires=NOW + timedelta(seconds=1))
GONE, GONE_TEXT = a_token("gone")
TABLE = TokenTable([GOOD, OLD, FRESH, GONE], [GONE.token_id])
OPEN = Policy(SECRET, own_names("kite1"), tokens=lambda: TABLE, clock=NOW.timestamp)
OFF = replace(OPEN, secret_for_operators=False)
CLOSED_OFF = replace(OFF, token_on_loopback=True)
FAR, NEAR = "10.0.0.9", "127.0.0.1"


@pytest.mark.parametrize(
    ("peer", "shown", "policy", "expected"),
    [
        pytest.param(FAR, GOOD_TEXT, OPEN, Caller("token", GOOD), id="valid"),
        pytest.param(NEAR, GOOD_TEXT, OPEN, Caller("token", GOOD), id="a token counts on loopback"),
        pytest.param(FAR, FRESH_TEXT, OPEN, Caller("token", FRESH), id="not expired yet"),
        pytest.param(FAR, OLD_TEXT, OPEN, EXPIRED_TOKEN, id="expired"),
        pytest.param(FAR, GONE_TEXT, OPEN, REVOKED_TOKEN, id="revoked"),
        pytest.param(NEAR, GONE_TEXT, OPEN, REVOKED_TOKEN, id="revoked, on loopback"),
        pytest.param(FAR, new_token()[1], OPEN, UNKNOWN_TOKEN, id="never made"),
        pytest.param(FAR, GOOD_TEXT[:-1], OPEN, UNKNOWN_TOKEN, id="cut"),
        pytest.param(FAR, f"{GOOD_TEXT}x", OPEN, UNKNOWN_TOKEN, id="longer"),
        pytest.param(FAR, "skt_", OPEN, UNKNOWN_TOKEN, id="prefix only"),
        pytest.param(FAR, f"skt_{GOOD.token_id}é", OPEN, UNKNOWN_TOKEN, id="not ASCII"),
        pytest.param(FAR, SECRET, OPEN, CLUSTER_SECRET, id="secret"),
        pytest.param(FAR, SECRET, OFF, SECRET_OFF, id="secret switched off"),
        pytest.param(NEAR, SECRET, OFF, LOCAL, id="loopback stays open"),
        pytest.param(NEAR, SECRET, CLOSED_OFF, SECRET_OFF, id="closed loopback, secret off"),
        pytest.param(NEAR, None, CLOSED_OFF, NO_TOKEN, id="closed loopback, nothing"),
        pytest.param(NEAR, GOOD_TEXT, CLOSED_OFF, Caller("token", GOOD), id="closed, token"),
    ],
)
def test_a_token_is_judged_by_its_text_and_its_end(
    peer: str, shown: str | None, policy: Policy, expected: Caller | AuthRefusal
) -> None:
    header = None if shown is None else f"Bearer {shown}"
    assert decide(peer, header, "127.0.0.1:1", None, policy) == expected


def test_tokens_are_hard_to_guess_and_their_digest_does_not_tell_them() -> None:
    token_id, text = new_token()
    assert id_of(text) == token_id
    assert len(text) >= len("skt_") + 12 + 43
    assert fits(text, digest_of(text))
    assert text not in digest_of(text)
    assert redact_text(f"sent {text} by mistake") == "sent *** by mistake"


# To what.

POSTS_THAT_READ = ("/api/show",)  # Ollama's description of a model
OF_READING = {
    "/v1/cluster/tokens": ("operate",),
    "/v1/responses/{response_id}": ("infer",),  # the reply to a caller's own request
}


def test_every_route_names_its_scope_and_only_reading_is_for_readers() -> None:
    for route in all_routes():
        what = f"{route.method} {route.path}"
        if route.method == "GET":
            assert route.scope in OF_READING.get(route.path, ("anyone", "any", "read")), what
        elif route.path not in POSTS_THAT_READ:
            assert route.scope in ("infer", "operate"), what
            assert route.audited or route.scope == "infer", what


def test_what_needs_no_token_is_a_short_list() -> None:
    assert {route.path for route in all_routes() if route.open_to_all} == {"/healthz", "/node_id"}


def test_a_route_without_a_scope_cannot_be_declared() -> None:
    with pytest.raises(TypeError, match="scope"):
        RouteTable("test").get("/x", summary="x", answer=str)(lambda request: request)


def test_the_document_of_the_api_names_the_scopes() -> None:
    paths = build_openapi(all_routes(), "0")["paths"]
    assert paths["/state"]["get"]["security"][2] == {"token": ["read"]}
    assert paths["/v1/chat/completions"]["post"]["security"][2] == {"token": ["infer"]}
    assert paths["/v1/models"]["get"]["security"][2] == {"token": []}
    assert paths["/healthz"]["get"]["security"] == [{}]


@pytest.mark.parametrize("need", ["anyone", "any", *SCOPES])
@pytest.mark.parametrize("scope", SCOPES)
def test_operate_includes_the_others_and_nothing_else_does(scope: Scope, need: Need) -> None:
    assert allows([scope], need) == (scope == "operate" or need in ("anyone", "any", scope))


async def test_a_token_ends_its_own_requests_and_no_others(tmp_path: Path) -> None:
    requests = some_services(tmp_path).requests
    mine, other = a_token()[0], a_token()[0]
    async with requests.open(mine.token_id) as opened:
        assert not await requests.cancel(opened.command_id, other.token_id)
        assert await requests.cancel(opened.command_id, mine.token_id)
    async with requests.open() as opened:
        assert not await requests.cancel(opened.command_id, mine.token_id)
        assert await requests.cancel(opened.command_id)


# How often.


@given(
    st.integers(1, 50),
    st.sampled_from([1, 60, 3600]),
    st.lists(st.floats(0, 200), max_size=60),
)
def test_a_bucket_admits_no_more_than_its_rate_in_any_window(
    count: int, per_s: int, pauses: list[float]
) -> None:
    now, admitted = 0.0, []
    bucket = TokenBucket(count, per_s, now)
    for pause in pauses:
        now += pause
        wait_s = bucket.take(now)
        if wait_s == 0:
            admitted.append(now)
        else:
            assert 0 < wait_s <= per_s / count + 1e-6
    for first, start in enumerate(admitted):
        for last in range(first, len(admitted)):
            most = count + (admitted[last] - start) * count / per_s
            assert last - first + 1 <= most + 1e-6


@given(st.integers(1, 20), st.sampled_from([1, 60]))
def test_whoever_waits_as_told_is_admitted(count: int, per_s: int) -> None:
    bucket = TokenBucket(count, per_s, 0.0)
    assert [bucket.take(0.0) for _ in range(count)] == [0.0] * count
    now = 0.0
    for _ in range(50):
        now += bucket.take(now)
        assert bucket.take(now) == 0.0


@pytest.mark.parametrize("text", ["", "5", "0/s", "-1/s", "5/day", "1000000/s", "5 /s", "x/min"])
def test_a_rate_that_makes_no_sense_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match="60/min"):
        parse_rate(text)


async def _open_request(uses: TokenUses, token: AccessToken, begun: asyncio.Event) -> None:
    with uses.admitted(token, counted=True):
        begun.set()
        await asyncio.Event().wait()


async def _begin(uses: TokenUses, token: AccessToken) -> asyncio.Task[None]:
    begun = asyncio.Event()
    task = asyncio.create_task(_open_request(uses, token, begun))
    await asyncio.wait({task, asyncio.create_task(begun.wait())}, return_when="FIRST_COMPLETED")
    return task


async def test_places_are_free_again_however_requests_end() -> None:
    token, uses = a_token(concurrency=3)[0], TokenUses()
    for _ in range(20):
        tasks = [await _begin(uses, token) for _ in range(5)]
        over = [task for task in tasks if task.done()]
        assert [type(task.exception()) for task in over] == [ApiError, ApiError]
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        assert len(uses.all()[0].tasks) == 0
    with pytest.raises(RuntimeError), uses.admitted(token, counted=True):
        raise RuntimeError
    assert len(uses.all()[0].tasks) == 0
    assert uses.all()[0].results == {"admitted": 61, "too_many_requests": 40}


async def test_a_revocation_ends_open_requests_of_that_token_only() -> None:
    table = TokenTable()
    uses = TokenUses(lambda: table)
    bad, good = a_token("bad")[0], a_token("good")[0]
    for token in (bad, good):
        table.apply(TokenCreated(token=token))
    cut, kept = await _begin(uses, bad), await _begin(uses, good)
    uses.end_revoked()
    table.apply(TokenRevoked(token_id=bad.token_id, name="bad"))
    uses.end_revoked()
    await asyncio.gather(cut, return_exceptions=True)
    assert cut.cancelled()
    assert not kept.done()
    kept.cancel()


def test_a_scrape_has_a_bounded_number_of_names() -> None:
    uses = TokenUses()
    for number in range(MAX_NAMES + 5):
        uses.refused(a_token(f"t{number}")[0], "scope_missing")
    [requests, _] = TokenCollector(uses).collect()
    labels = [sample.labels["token"] for sample in requests.samples]
    assert len(labels) == MAX_NAMES + 1
    assert OTHER in labels


# What the master decides.


def _kind(call: Callable[[], object]) -> str:
    with pytest.raises(PeerRefused) as caught:
        call()
    return caught.value.kind


def test_a_name_is_used_once_and_a_token_is_revoked_by_name_or_id(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    token = a_token("ci")[0]
    body = token.model_dump_json(context=WHOLE).encode()
    table = TokenTable()
    [event] = decide_create(ME, table, body).events
    assert isinstance(event, TokenCreated)
    assert event.token.digest == token.digest
    table.apply(event)
    assert _kind(lambda: decide_create(ME, table, body)) == NAME_TAKEN
    monkeypatch.setattr("skulkd.cluster.token_admin.TOKENS", 1)
    other = a_token("other")[0].model_dump_json(context=WHOLE).encode()
    assert _kind(lambda: decide_create(ME, table, other)) == TOO_MANY
    for wanted in ("ci", token.token_id):
        asked = json.dumps({"token": wanted}).encode()
        [gone] = decide_revoke(ME, table, asked).events
        assert isinstance(gone, TokenRevoked)
        assert gone.token_id == token.token_id
    assert _kind(lambda: decide_revoke(ME, table, b'{"token": "c"}')) == UNKNOWN
    table.apply(TokenCreated(token=a_token("ci")[0]))
    assert _kind(lambda: decide_revoke(ME, table, b'{"token": "ci"}')) == AMBIGUOUS


# A node that serves.


async def new_header(node: Services, name: str, *scopes: Scope, **limits: Any) -> dict[str, str]:
    """The header with a new token."""
    request = CreateTokenRequest(name=name, scopes=list(scopes), **limits)
    return {"Authorization": f"Bearer {(await node.tokens.create(request)).token}"}


def _slow_routes(begun: asyncio.Semaphore) -> RouteTable:
    routes = RouteTable("test")

    @routes.get("/slow", summary="Never ends", scope="read", answer=str)
    async def get_slow(request: web.Request) -> web.StreamResponse:
        stream = await open_stream(request, {"Content-Type": "text/plain"})
        begun.release()
        while True:
            await stream.write(b"x")
            await asyncio.sleep(0.01)

    @routes.put("/broken", summary="Fails", scope="operate", answer=str)
    async def put_broken(request: web.Request) -> web.Response:
        raise ZeroDivisionError

    @routes.post("/quick", summary="Ends at once", scope="infer", answer=str)
    async def post_quick(request: web.Request) -> web.Response:
        return ok(b'"done"')

    return routes


async def test_a_stream_counts_until_its_client_goes_or_its_token_is_revoked(
    tmp_path: Path,
) -> None:
    begun = asyncio.Semaphore(0)
    node = some_services(tmp_path)
    header = await new_header(node, "web", "read", concurrency=1)
    async with serving(node, _slow_routes(begun)) as url, aiohttp.ClientSession(url) as http:
        first = await http.get("/slow", headers=header)
        await begun.acquire()
        async with http.get("/slow", headers=header) as refused:
            error = (await refused.json())["error"]
            assert (refused.status, error["refusal"]["kind"]) == (429, "too_many_requests")
            assert (error["refusal"]["token"], error["refusal"]["limit"]) == ("web", 1)
            assert refused.headers["Retry-After"] == "1"
        first.close()
        async with asyncio.timeout(300):
            while (second := await http.get("/slow", headers=header)).status == 429:
                second.close()
        await node.tokens.revoke("web")
        with pytest.raises(aiohttp.ClientError):
            await asyncio.wait_for(second.read(), 300)
        async with http.get("/state", headers=header) as answer:
            assert (await answer.json())["error"]["refusal"]["kind"] == "token_revoked"
    assert not node.token_uses.all() or len(node.token_uses.all()[0].tasks) == 0


async def test_a_rate_is_answered_with_when_to_come_again(tmp_path: Path) -> None:
    node = some_services(tmp_path)
    header = await new_header(node, "slow", "read", rate="2/h")
    async with serving(node) as url, aiohttp.ClientSession(url) as http:
        statuses = [(await http.get("/state", headers=header)).status for _ in range(3)]
        assert statuses == [200, 200, 429]
        async with http.get("/state", headers=header) as answer:
            error = (await answer.json())["error"]
            assert (error["refusal"]["kind"], error["refusal"]["limit"]) == ("rate_limited", "2/h")
            assert 0 < int(answer.headers["Retry-After"]) <= 1800
        # What needs no token is not counted.
        assert (await http.get("/healthz", headers=header)).status == 200


async def test_every_change_is_one_line_with_who_what_and_result(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    node = some_services(tmp_path)
    reader = await new_header(node, "reader", "read")
    operator = await new_header(node, "boss", "operate")
    caplog.set_level(logging.INFO, "skulkd.audit")
    async with (
        serving(node, _slow_routes(asyncio.Semaphore(0))) as url,
        aiohttp.ClientSession(url) as http,
    ):
        for header in (reader, operator, {}, {"Authorization": "Bearer a-secret-of-the-tests"}):
            await http.put("/v1/tracing", headers=header, json={"enabled": True})
        await http.put("/v1/tracing", headers=operator, json={"enabled": "?"})
        await http.put("/broken", headers=operator)
        await http.post("/quick", headers=operator)
        await http.get("/state", headers=operator)
        await http.put("/v1/tracing", headers={"Authorization": "Bearer skt_no"}, json={})
    lines = [record.getMessage() for record in caplog.records if record.name == "skulkd.audit"]
    change = "audit: PUT /v1/tracing by"
    assert lines == [
        f"{change} token reader from 127.0.0.1 -> 403",
        f"{change} token boss from 127.0.0.1 -> 200 enabled=True",
        f"{change} local from 127.0.0.1 -> 200 enabled=True",
        f"{change} cluster secret from 127.0.0.1 -> 200 enabled=True",
        f"{change} token boss from 127.0.0.1 -> 422",
        "audit: PUT /broken by token boss from 127.0.0.1 -> 500",
    ]
    [_, boss, *_] = [one for one in caplog.records if one.name == "skulkd.audit"]
    shown = json.loads(JsonFormatter(redact_text, "kite1").format(boss))
    assert shown["component"] == "audit"
    assert shown["audit"] == {
        "who": "token", "name": "boss", "address": "127.0.0.1", "method": "PUT",
        "path": "/v1/tracing", "result": 200, "details": {"enabled": "True"},
    }  # fmt: skip


@pytest.mark.parametrize(
    "body",
    [
        {"name": "", "scopes": ["read"]},
        {"name": "a b", "scopes": ["read"]},
        {"name": "x" * 65, "scopes": ["read"]},
        {"name": "x", "scopes": []},
        {"name": "x", "scopes": ["root"]},
        {"name": "x", "scopes": ["read"], "rate": "5/day"},
        {"name": "x", "scopes": ["read"], "concurrency": 0},
        {"name": "x", "scopes": ["read"], "expiresInS": 0},
        {"name": "x", "scopes": ["read"], "expiresInS": 1e12},
        {"name": "x", "scopes": ["read"], "digest": "0" * 64},
    ],
    ids=str,
)
async def test_a_bad_wish_for_a_token_is_refused_and_makes_none(
    tmp_path: Path, body: dict[str, object]
) -> None:
    core = leading_core(NodeId("node-test"))
    async with (
        serving(some_services(tmp_path, core=core)) as url,
        aiohttp.ClientSession(url) as http,
    ):
        assert (await http.post("/v1/cluster/tokens", json=body)).status == 422
    assert not core.tokens.tokens


async def test_a_token_is_shown_once_and_listed_without_itself(tmp_path: Path) -> None:
    core = leading_core(NodeId("node-test"))
    wish = {"name": "ci", "scopes": ["operate", "read", "read"], "expiresInS": 60}
    async with (
        serving(some_services(tmp_path, core=core)) as url,
        aiohttp.ClientSession(url) as http,
    ):
        answer = await http.post("/v1/cluster/tokens", json=wish)
        made = await answer.json()
        assert answer.headers["Cache-Control"] == "no-store"
        assert made["scopes"] == ["read", "operate"]
        header = {"Authorization": f"Bearer {made['token']}"}
        text = await (await http.get("/v1/cluster/tokens", headers=header)).text()
        [listed] = json.loads(text)["tokens"]
        assert (listed["name"], listed["expired"]) == ("ci", False)
        assert listed["lastUsed"] is not None
        assert made["token"] not in text
        assert core.tokens.tokens[TokenId(made["tokenId"])].digest not in text
        gone = await http.delete("/v1/cluster/tokens/ci", headers=header)
        assert (gone.status, (await gone.json())["name"]) == (200, "ci")
        missing = await http.delete("/v1/cluster/tokens/ci")
        assert (await missing.json())["error"]["refusal"]["kind"] == UNKNOWN
