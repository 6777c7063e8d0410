"""Clients with an environment of their own, which `make clients` installs: a process per call."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from tests.clients.checks import check
from tests.inference.served import DEADLINE_S, Served
from tests.inference.test_chat import SCHEMA, TOOL

SCRIPTS = Path(__file__).parent / "others"
HOME = Path(sys.prefix) / "clients"
PYTHON = HOME / "bin" / "python"
# They ask for lists of models and report on themselves otherwise.
ENVIRON = {"LITELLM_LOCAL_MODEL_COST_MAP": "True", "LANGSMITH_TRACING": "false"}

PYTHON_CALLS = {
    "chat": "chat, whole and streamed",
    "responses": "Responses",
    "tools": "tools",
    "schema": "JSON schema",
    "errors": "errors: unknown model, bad key, overlong prompt",
    "cancel": "cancelling a stream",
}
LITELLM_CALLS = {
    **PYTHON_CALLS,
    "chat": "chat, whole and streamed, as `openai/`, `anthropic/` and `ollama_chat/`",
}
NODE_CALLS = {
    "list": "models.list, models.retrieve",
    "chat": "chat, whole, streamed and with the stream helper",
    "responses": "responses.create, whole and streamed, retrieve",
    "tools": "tools",
    "schema": "JSON schema",
    "errors": "errors: unknown model, bad value, overlong prompt, bad key",
    "cancel": "cancelling a stream",
}


def _facts(served: Served) -> str:
    facts = {"url": served.daemon.url, "model": served.model, "schema": SCHEMA, "tool": TOOL}
    return json.dumps(facts)


def _run(*command: str) -> None:
    done = subprocess.run(
        command, env={**os.environ, **ENVIRON}, capture_output=True, text=True,
        timeout=DEADLINE_S, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stdout[-2000:] + done.stderr[-4000:]


def _python(script: str, package: str, call: str, served: Served) -> None:
    if not any(HOME.glob(f"lib/python*/site-packages/{package}")):
        pytest.skip(f"{package} is not installed; run: make clients")
    _run(str(PYTHON), str(SCRIPTS / script), call, _facts(served))


def _node(call: str, served: Served) -> None:
    node = shutil.which("node")
    if node is None or not (HOME / "node_modules" / "openai").is_dir():
        pytest.skip("node or its package openai is not installed; run: make clients")
    _run(node, str(SCRIPTS / "openai_calls.mjs"), call, _facts(served), str(HOME))


for _call, _text in NODE_CALLS.items():
    check("openai (Node)", _text)(lambda served, call=_call: _node(call, served))
for _call, _text in LITELLM_CALLS.items():
    check("litellm", _text)(
        lambda served, call=_call: _python("litellm_calls.py", "litellm", call, served)
    )
for _call, _text in PYTHON_CALLS.items():
    check("langchain-openai", _text)(
        lambda served, call=_call: _python("langchain_calls.py", "langchain_openai", call, served)
    )
