"""Access tokens on a live cluster: made on one node, used on the other, revoked, and kept."""

from __future__ import annotations

import http.client
import json
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import pytest

from skulkd.store.imports.tiny_model import TINY_MODEL_ID
from tests.cluster_live.chatting import ENDLESS, Answer, question
from tests.cluster_live.cluster import LiveCluster, live_cluster
from tests.cluster_live.live_node import LiveNode
from tests.daemon_process import wait_until

CHAT = {"model": TINY_MODEL_ID, "messages": [{"role": "user", "content": "hi"}], "max_tokens": 1}
ALLOWED = {
    ("GET", "/v1/models"): {"read", "infer", "operate"},
    ("GET", "/readyz"): {"read", "infer", "operate"},
    ("GET", "/state"): {"read", "operate"},
    ("GET", "/v1/events"): {"read", "operate"},
    ("GET", "/metrics"): {"read", "operate"},
    ("GET", "/config"): {"read", "operate"},
    ("GET", "/v1/diagnostics/node/logs"): {"read", "operate"},
    ("GET", "/v1/traces/nothing"): {"read", "operate"},
    ("POST", "/v1/chat/completions"): {"infer", "operate"},
    ("POST", "/v1/cancel/nothing"): {"infer", "operate"},
    ("PUT", "/v1/tracing"): {"operate"},
    ("DELETE", "/instance/nothing"): {"operate"},
    ("POST", "/v1/diagnostics/node/capture"): {"operate"},
    ("GET", "/v1/cluster/tokens"): {"operate"},
    ("DELETE", "/v1/cluster/tokens/nothing"): {"operate"},
}
BODIES: dict[str, Any] = {"/v1/chat/completions": CHAT, "/v1/tracing": {"enabled": False}}


@dataclass(frozen=True)
class Said:
    status: int
    kind: str | None
    text: str


def ask(node: LiveNode, method: str, path: str, token: str, body: object = None) -> Said:
    connection = http.client.HTTPConnection("127.0.0.1", node.port, timeout=600)
    try:
        headers = {"Content-Type": "application/json", "Authorization": f"Bearer {token}"}
        payload = None if body is None else json.dumps(body)
        connection.request(method, path, payload, headers)
        answer = connection.getresponse()
        text = answer.read().decode()
    finally:
        connection.close()
    kind = None
    if answer.status in (401, 403, 429):
        kind = json.loads(text)["error"]["refusal"]["kind"]
    return Said(answer.status, kind, text)


def create(node: LiveNode, name: str, *scopes: str, **limits: Any) -> str:
    wish = {"name": name, "scopes": list(scopes), **limits}
    reply = node.post("/v1/cluster/tokens", wish)
    assert reply.status == 200, reply
    token: str = reply.body["token"]
    return token


def wait_known(cluster: LiveCluster, token: str) -> None:
    for node in cluster.nodes:
        wait_until(lambda n=node: ask(n, "GET", "/readyz", token).status == 200, "the token")


def wait_revoked(cluster: LiveCluster, token: str) -> None:
    for node in cluster.nodes:
        wait_until(
            lambda n=node: ask(n, "GET", "/readyz", token).kind == "token_revoked", "the end of it"
        )


@pytest.fixture(scope="module")
def two(tmp_path_factory: pytest.TempPathFactory) -> Iterator[LiveCluster]:
    with live_cluster(tmp_path_factory.mktemp("tokens"), 2) as made:
        made.place(on=made.nodes[0])
        yield made


def test_a_token_made_on_one_node_does_on_the_other_what_its_scopes_allow(
    two: LiveCluster,
) -> None:
    here, there = two.nodes
    tokens = {scope: create(here, f"only-{scope}", scope) for scope in ("read", "infer", "operate")}
    for token in tokens.values():
        wait_known(two, token)
    for (method, path), allowed in ALLOWED.items():
        for scope, token in tokens.items():
            said = ask(there, method, path, token, BODIES.get(path))
            assert (said.status != 403) == (scope in allowed), (method, path, scope, said)
            assert said.status != 401
            if said.status == 403:
                assert said.kind == "scope_missing"
    lines = [
        line for line in there.said() if "audit: PUT /v1/tracing by token only-operate" in line
    ]
    assert len(lines) == 1
    assert "-> 200 enabled=False request_id=" in lines[0]
    # A token may revoke itself, and gets its answer.
    own = ask(here, "DELETE", "/v1/cluster/tokens/only-operate", tokens["operate"])
    assert own.status == 200, own
    wait_revoked(two, tokens["operate"])


def test_neither_tokens_nor_digests_are_in_any_view_or_log(two: LiveCluster) -> None:
    here = two.nodes[0]
    token = create(here, "unseen-one", "operate")
    wait_known(two, token)
    on_disk = "".join(file.read_text() for file in (here.home / "cluster").glob("placements*"))
    digest = on_disk.partition('"name":"unseen-one"')[2].partition('"digest":"')[2][:64]
    assert len(digest) == 64
    for node in two.nodes:
        views = ["/state", "/events", "/v1/events", "/v1/cluster", "/v1/diagnostics/node"]
        texts = [ask(node, "GET", path, token).text for path in views]
        texts += [ask(node, "POST", "/v1/diagnostics/node/capture", token, {}).text]
        texts += [ask(node, "GET", "/v1/diagnostics/node/logs", token).text, *node.said()]
        assert all(token not in text and digest not in text for text in texts)
        assert all("unseen-one" not in text for text in texts[:2])
        assert "unseen-one" in texts[2]


def test_a_stream_fills_a_place_until_it_is_cancelled_and_only_by_its_own_token(
    two: LiveCluster,
) -> None:
    here, there = two.nodes
    mine = create(here, "mine", "infer", concurrency=1)
    other = create(here, "other", "infer")
    for token in (mine, other):
        wait_known(two, token)
    header = {"Authorization": f"Bearer {mine}"}
    answer = Answer(there, question(ENDLESS), authorization=header).begin()
    answer.wait_tokens(3)
    assert ask(there, "POST", "/v1/chat/completions", mine, CHAT).kind == "too_many_requests"
    # Limits are of each node.
    assert ask(here, "POST", "/v1/chat/completions", mine, CHAT).status == 200
    cancel = f"/v1/cancel/{answer.command_id}"
    assert ask(here, "POST", cancel, other).status == 404
    assert ask(there, "POST", cancel, other).status == 404
    assert not answer.done
    assert ask(here, "POST", cancel, mine).status == 200
    answer.wait_end()
    wait_until(
        lambda: ask(there, "POST", "/v1/chat/completions", mine, CHAT).status == 200, "a free place"
    )


def test_a_revocation_counts_on_both_nodes_and_ends_streams(two: LiveCluster) -> None:
    here, there = two.nodes
    token = create(here, "leaked", "infer")
    wait_known(two, token)
    header = {"Authorization": f"Bearer {token}"}
    answers = [Answer(node, question(ENDLESS), authorization=header).begin() for node in two.nodes]
    for answer in answers:
        answer.wait_tokens(3)
    assert there.ask("DELETE", "/v1/cluster/tokens/leaked").status == 200
    wait_revoked(two, token)
    for answer in answers:
        answer.wait_end()
        assert not answer.finished


def test_what_was_acknowledged_survives_the_death_of_all_nodes(two: LiveCluster) -> None:
    here, there = two.nodes
    revoked = create(here, "revoked", "read")
    kept = create(there, "kept", "read")
    assert here.ask("DELETE", "/v1/cluster/tokens/revoked").status == 200
    for node in two.nodes:
        node.daemon.process.kill()
    for node in two.nodes:
        node.kill()
    two.start()
    two.wait_formed()
    wait_known(two, kept)
    wait_revoked(two, revoked)
    names = {one["name"] for one in here.get("/v1/cluster/tokens")["tokens"]}
    assert "kept" in names
    assert "revoked" not in names
