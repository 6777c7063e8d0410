"""The `ollama` package, at the address where Ollama's clients look."""

from __future__ import annotations

import contextlib
import json
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import httpx
import ollama
import pytest

from tests.clients.checks import HUB_MODEL, check
from tests.inference.served import DEADLINE_S, Served
from tests.inference.test_chat import SCHEMA, TOOL

MESSAGES = [{"role": "user", "content": "hello"}]
OPTIONS = {"temperature": 0, "num_predict": 12}


@contextmanager
def client_of(served: Served, prefix: str = "") -> Iterator[ollama.Client]:
    client = ollama.Client(host=served.daemon.url + prefix, timeout=DEADLINE_S)
    try:
        yield client
    finally:
        client._client.close()


@check("ollama", "list, show, ps")
def _models(served: Served) -> None:
    with client_of(served) as client:
        [listed] = [model for model in client.list().models if model.model == served.model]
        shown = client.show(served.model)
        [running] = [model for model in client.ps().models if model.model == served.model]
    assert listed.size
    assert listed.digest == running.digest
    assert running.model == served.model
    assert shown.capabilities
    assert "completion" in shown.capabilities
    assert shown.modelinfo
    architecture = shown.modelinfo["general.architecture"]
    assert shown.modelinfo[f"{architecture}.context_length"] == 4096


@check("ollama", "chat, whole and streamed, at `/api` and `/ollama/api`")
def _chat(served: Served) -> None:
    with client_of(served) as client, client_of(served, "/ollama") as prefixed:
        whole = client.chat(served.model, MESSAGES, options=OPTIONS)
        parts = list(
            prefixed.chat(f"{served.model}:latest", MESSAGES, options=OPTIONS, stream=True)
        )
    assert "".join(part.message.content or "" for part in parts) == whole.message.content
    assert [part.done for part in parts] == [False] * (len(parts) - 1) + [True]
    for last in (whole, parts[-1]):
        assert (last.done_reason, last.eval_count) == ("length", 12)
        assert last.total_duration
        assert last.eval_duration
        assert last.load_duration is not None
        assert last.prompt_eval_duration
        measured = last.load_duration + last.prompt_eval_duration + last.eval_duration
        assert measured <= last.total_duration


@check("ollama", "generate, with `system`, `raw` and `options`")
def _generate(served: Served) -> None:
    with client_of(served) as client:
        whole = client.generate(served.model, "hello", system="be brief", options=OPTIONS)
        parts = list(
            client.generate(
                served.model, "hello", system="be brief", options=OPTIONS, stream=True, think=False
            )
        )
        raw = client.generate(served.model, "hello", raw=True, options=OPTIONS)
        stopped = client.generate(
            served.model, "hello", system="be brief",
            options={**OPTIONS, "stop": [whole.response[4:7]]},
        )  # fmt: skip
        loaded = client.generate(served.model)
    assert "".join(part.response for part in parts) == whole.response
    assert (raw.prompt_eval_count or 0) < (whole.prompt_eval_count or 0)
    assert stopped.response == whole.response[: whole.response.index(whole.response[4:7])]
    assert stopped.done_reason == "stop"
    assert loaded.done_reason == "load"


@check("ollama", "tools and their results, `format` JSON and schema")
def _tools(served: Served) -> None:
    call = {"function": {"name": "paint", "arguments": {"colour": "red"}}}
    history: Any = [
        *MESSAGES,
        {"role": "assistant", "content": "", "tool_calls": [call]},
        {"role": "tool", "content": "painted", "tool_name": "paint"},
    ]
    limits = {**OPTIONS, "num_predict": 300}
    with client_of(served) as client:
        after = client.chat(served.model, history, tools=[TOOL], options=OPTIONS)
        typed = client.chat(served.model, MESSAGES, format=SCHEMA, options=limits)
        parts = client.chat(served.model, MESSAGES, format=SCHEMA, options=limits, stream=True)
        streamed = "".join(part.message.content or "" for part in parts)
    assert after.eval_count == 12
    assert json.loads(typed.message.content or "").keys() == {"colour", "count"}
    assert json.loads(streamed) == json.loads(typed.message.content or "")


@check("ollama", "pull, with progress")
def _pull(served: Served) -> None:
    with client_of(served) as client:
        lines = list(client.pull(HUB_MODEL, stream=True))
        assert HUB_MODEL in [model.model for model in client.list().models]
        with pytest.raises(ollama.ResponseError) as failed:
            client.pull("org/unknown")
    assert [lines[0].status, lines[-1].status] == ["pulling manifest", "success"]
    assert lines[-2].total
    assert lines[-2].completed == lines[-2].total
    assert failed.value.status_code == 404


@check("ollama", "errors: unknown model, bad value, overlong prompt, image, bad key, delete, copy")
def _errors(served: Served) -> None:
    picture: Any = [{"role": "user", "content": "hello", "images": ["aGk="]}]
    long: Any = [{"role": "user", "content": "a " * 9000}]
    with client_of(served) as client:
        bad: list[tuple[Any, int, str]] = [
            (lambda: client.chat("x/y", MESSAGES), 404, "x/y"),
            (lambda: client.chat(served.model, MESSAGES, options={"temperature": -1}), 400,
             "temperature"),
            (lambda: client.chat(served.model, long), 400, "context_length_exceeded"),
            (lambda: next(client.chat(served.model, long, stream=True)), 400, "context_length"),
            (lambda: client.chat(served.model, picture), 400, "images"),
            (lambda: client.show("x/y"), 404, "x/y"),
            (lambda: client.delete(served.model), 400, "skulkctl"),
            (lambda: client.copy(served.model, "x/y"), 400, "copied"),
        ]  # fmt: skip
        for call, status, named in bad:
            with pytest.raises(ollama.ResponseError, match=named) as failed:
                call()
            assert failed.value.status_code == status

    stranger = ollama.Client(
        host=served.daemon.url, headers={"Authorization": "Bearer skt_0000000000000000_none"}
    )
    with contextlib.closing(stranger._client), pytest.raises(ollama.ResponseError) as refused:
        stranger.list()
    assert refused.value.status_code == 401


@check("ollama", "cancelling a stream")
def _cancel(served: Served) -> None:
    with client_of(served) as client:
        stream = client.chat(served.model, MESSAGES, options={"num_predict": 2000}, stream=True)
        next(stream)
        stream.close()
    served.wait_idle()


@check("curl", "Ollama's own examples: JSON without a content type, `HEAD /`")
def _curl(served: Served) -> None:
    body = json.dumps({"model": served.model, "prompt": "hello", "options": {"num_predict": 2}})
    form = {"Content-Type": "application/x-www-form-urlencoded"}
    with httpx.Client(base_url=served.daemon.url, timeout=DEADLINE_S) as client:
        answer = client.post("/api/generate", content=body, headers=form)
        assert answer.headers["content-type"] == "application/x-ndjson"
        assert json.loads(answer.text.splitlines()[-1])["done"] is True
        for path in ("/", "/ollama/", "/api/version", "/ollama/api/version"):
            assert client.head(path).status_code == 200


@check("mswarm node 0.1.79", "its requests, replayed: version, tags, chat with options and format")
def _mswarm(served: Served) -> None:
    """The npm package is not in the registry: requests as its documentation says it makes them."""
    url = served.daemon.url
    assert httpx.get(f"{url}/api/version").json()["version"]
    [listed] = [
        model for model in httpx.get(f"{url}/api/tags").json()["models"]
        if model["name"] == served.model
    ]  # fmt: skip
    assert {"digest", "details"} <= listed.keys()
    body = {
        "model": served.model, "messages": MESSAGES, "stream": False, "format": SCHEMA,
        "options": {"temperature": 0, "top_p": 1, "num_predict": 300, "stop": ["#"]},
    }  # fmt: skip
    answer = httpx.post(f"{url}/api/chat", json=body, timeout=DEADLINE_S).json()
    assert json.loads(answer["message"]["content"]).keys() == {"colour", "count"}
    assert answer["prompt_eval_count"] > 0
    assert answer["eval_count"] > 0
