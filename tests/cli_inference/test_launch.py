"""`skulkctl launch`: settings as text, and real processes that are run with them."""

from __future__ import annotations

import json
import os
import subprocess
from pathlib import Path

import pytest
import yaml

from skulkctl.contexts import Context, ContextFile, Target, write_contexts
from skulkctl.launch.keys import find_key
from skulkctl.launch.page import assignments, launch_item, page
from skulkctl.launch.tools import RECIPES, Cluster, Tool
from tests.cli.conftest import Cli
from tests.cli_inference.model_node import MODEL, ModelNode

TOKEN = "skt_0123456789abcdef_secret"
REMOTE = Cluster("https://kite1:52415", MODEL, ca="/etc/ca.pem")


def install(directory: Path, name: str) -> None:
    """A program that prints its arguments and the environment it was given."""
    directory.mkdir(exist_ok=True)
    program = directory / name
    program.write_text('#!/bin/sh\necho "$0" "$@"\nexec env\n')
    program.chmod(0o755)


def use_token_file(home: Path, url: str) -> Path:
    file = home / "a token"
    file.write_text(f"{TOKEN}\n")
    file.chmod(0o600)
    context = Context("lab", (url,), token_file=str(file))
    write_contexts(home / "skulkctl.toml", ContextFile("lab", {"lab": context}))
    return file


def evaluate(script: str, variable: str) -> str:
    """What a shell makes of the lines."""
    command = f'{script}\nprintf %s "${variable}"'
    done = subprocess.run(["sh", "-c", command], capture_output=True, text=True, check=True)
    return done.stdout


@pytest.mark.parametrize("tool", list(Tool))
def test_every_tool_gets_address_model_and_key(tool: Tool) -> None:
    key = find_key(Target(Context("lab", ()), token=None), "http://127.0.0.1:1", {})
    text = page(tool, REMOTE, key, show_token=False)
    assert REMOTE.url in text
    assert MODEL in text
    recipe = RECIPES[tool]
    assert f"export {recipe.key}=none" in text
    assert f"export {recipe.ca}=/etc/ca.pem" in text
    item = launch_item(tool, REMOTE, key, show_token=False)
    assert item["environment"][recipe.key] == "none"
    assert item["environment"][recipe.ca] == "/etc/ca.pem"
    assert [f"{name}={text}" for name, text in item["environment"].items()] == assignments(
        tool, REMOTE, key, show_token=False
    )


def test_the_secret_of_this_machine_is_given_to_no_tool() -> None:
    target = Target(Context("lab", (REMOTE.url,)), token=None, local_secret="cluster secret")
    key = find_key(target, REMOTE.url, {})
    assert (key.source, key.value, key.shell) == ("missing", None, "TOKEN")


def test_the_page_is_for_a_shell_and_the_config_for_continue(node: ModelNode, cli: Cli) -> None:
    code, out, err = cli("launch", "openai")
    assert (code, err) == (0, "")
    assert evaluate(out, "OPENAI_BASE_URL") == f"{node.url}/v1"
    assert evaluate(out, "OPENAI_API_KEY") == "none"
    code, out, err = cli("launch", "continue")
    assert (code, err) == (0, "")
    [model] = yaml.safe_load(out)["models"]
    assert (model["model"], model["apiBase"]) == (MODEL, f"{node.url}/v1")


def test_a_token_is_read_by_the_shell_and_shown_only_when_asked_for(
    node: ModelNode, cli: Cli, home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("SKULK_ENDPOINT")
    file = use_token_file(home, node.url)
    for options in ((), ("-o", "env"), ("-o", "json"), ("-o", "yaml")):
        code, out, _ = cli("launch", "claude-code", *options)
        assert code == 0
        assert TOKEN not in out
        assert cli("launch", "claude-code", "--show-token", *options).out.count(TOKEN) == 1
    document = yaml.safe_load(out)
    assert document["environment"]["ANTHROPIC_AUTH_TOKEN"] is None
    assert document["key"] == {
        "variable": "ANTHROPIC_AUTH_TOKEN", "source": "file", "file": str(file),
    }  # fmt: skip
    lines = cli("launch", "claude-code", "-o", "env").out
    assert evaluate(lines, "ANTHROPIC_AUTH_TOKEN") == TOKEN
    assert evaluate(lines, "ANTHROPIC_DEFAULT_HAIKU_MODEL") == MODEL
    monkeypatch.setenv("SKULK_TOKEN", TOKEN)
    shown = cli("launch", "openai", "-o", "env").out
    assert TOKEN not in shown
    assert evaluate(shown, "OPENAI_API_KEY") == TOKEN


def test_exec_becomes_the_tool(
    node: ModelNode, process: Cli, home: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("SKULK_ENDPOINT")
    use_token_file(home, node.url)
    programs = tmp_path / "bin"
    for name in ("claude", "cn", "app"):
        install(programs, name)
    monkeypatch.setenv("PATH", f"{programs}:{os.environ['PATH']}")
    code, out, err = process("launch", "claude-code", "--exec", "--", "--print", "a b")
    assert (code, out.splitlines()[0]) == (0, f"{programs}/claude --print a b")
    assert f"ANTHROPIC_AUTH_TOKEN={TOKEN}" in out.splitlines()
    assert f"ANTHROPIC_BASE_URL={node.url}" in out.splitlines()
    assert err == f"note: running claude with {MODEL} at {node.url}\n"
    code, out, _ = process("launch", "langchain", "--exec", "--", "app", "-x")
    assert (code, out.splitlines()[0]) == (0, f"{programs}/app -x")
    assert f"OPENAI_API_BASE={node.url}/v1" in out.splitlines()
    code, out, _ = process("launch", "continue", "--exec")
    _, option, file = out.splitlines()[0].split()
    assert (code, option) == (0, "--config")
    text = Path(file).read_text()
    assert yaml.safe_load(text)["models"][0]["model"] == MODEL
    assert TOKEN not in text
    assert f"SKULK_API_KEY={TOKEN}" in out.splitlines()


@pytest.mark.parametrize(
    ("arguments", "code", "said"),
    [
        (("claude-code", "--exec"), 3, "error: claude is not installed"),
        (("openai", "--exec"), 2, "error: openai is a library"),
        (("openai", "python"), 2, "hint: skulkctl launch openai --exec -- python"),
        (("cursor",), 2, "error: TOOL: 'cursor' is not one of 'openai', 'claude-code'"),
        (("openai", "-o", "wide"), 2, "'wide' is not one of 'env', 'json', 'yaml'"),
    ],
)
def test_what_cannot_be_done_is_said(
    node: ModelNode, cli: Cli, tmp_path: Path, monkeypatch: pytest.MonkeyPatch,
    arguments: tuple[str, ...], code: int, said: str,
) -> None:  # fmt: skip
    monkeypatch.setenv("PATH", str(tmp_path))
    result = cli("launch", *arguments)
    assert (result.code, result.out) == (code, "")
    assert said in result.err


def test_a_model_that_is_not_placed_is_taken_by_its_name_with_a_warning(
    node: ModelNode, cli: Cli
) -> None:
    code, out, err = cli("launch", "aider", "--model", "org/other", "-o", "json")
    assert (code, json.loads(out)["model"]) == (0, "org/other")
    assert "org/other is not placed" in err
    assert (
        json.loads(cli("launch", "aider", "--model", "Llama", "-o", "json").out)["model"] == MODEL
    )
