"""Completion: the candidates, the 300 ms, and a real bash that asks for them."""

from __future__ import annotations

import contextlib
import shutil
import socket
import subprocess
import sys
from pathlib import Path

import pytest

from skulkctl.commands.complete import join_split_words
from skulkctl.complete import complete
from skulkctl.contexts import Context, ContextFile, write_contexts
from skulkctl.root import COMMANDS, build
from skulkctl.shells import SCRIPTS
from tests.cli.conftest import Cli
from tests.cli.stock import HANG, StockNode


def values(*words: str) -> list[str]:
    return [value for value, _ in complete(words, build())]


VISIBLE = [name for name, entry in COMMANDS.items() if not entry.hidden]


@pytest.mark.parametrize(
    ("words", "expected"),
    [
        (("",), VISIBLE),
        (("no",), ["nodes"]),
        (("config", ""), ["show", "path", "set", "validate"]),
        (("nodes", "-o", "j"), ["json", "jsonl"]),
        (("-o", "y"), ["yaml"]),
        (("nodes", "--output=w"), ["--output=wide"]),
        (("nodes", "--columns", "disk"), ["disk", "disk-size"]),
        (("nodes", "--columns", "name,he"), ["name,health"]),
        (("nodes", "--sort", "-fre"), ["-free"]),
        (("nodes", "--no-c"), ["--no-color"]),
        (("doctor", "--strict", "--columns", "r"), ["result"]),
        (("context", "ls", "--columns", "prot"), ["protected"]),
        (("config", "set", "inference.kv"), ["inference.kv_cache_backend"]),
        (("config", "set", "logging.enabled", ""), ["true", "false"]),
        (("config", "set", "inference.kv_cache_backend", "turbo"),
         ["turboquant", "turboquant_adaptive"]),
        (("config", "validate", ""), [":files"]),
        (("context", "add", "x", "y", "--token-file", "a"), [":files"]),
        (("completion", ""), ["bash", "zsh", "fish"]),
        (("api", "P"), ["POST", "PUT", "PATCH"]),
        (("help", "ex"), ["exit-codes"]),
        (("nodes", "--color", "a"), ["auto", "always"]),
        (("nonsense", ""), []),
        (("nodes", ""), ["list", "forget"]),
        (("nodes", "forget", "--y"), ["--yes"]),
        (("nodes", "--nonsense=x"), []),
        (("nodes", "--timeout", ""), []),
    ],
)  # fmt: skip
def test_candidates_follow_the_command_tree(
    home: Path, words: tuple[str, ...], expected: list[str]
) -> None:
    assert values(*words) == expected


def test_an_option_is_not_offered_twice(home: Path) -> None:
    assert "--output" not in values("nodes", "-o", "json", "--")


def test_contexts_are_completed_from_the_file_and_a_broken_file_is_silent(
    home: Path, cli: Cli
) -> None:
    cli("context", "add", "lab", "kite1")
    assert values("nodes", "--context", "") == ["lab"]
    assert values("context", "use", "l") == ["lab"]
    (home / "skulkctl.toml").write_text("nonsense")
    assert values("context", "use", "") == []


def test_nodes_are_asked_from_the_daemon(stock: StockNode) -> None:
    assert values("restart", "k") == ["kite1", "kite2", "kite3"]
    assert values("restart", "kite1", "") == []
    assert values("diagnose", "--endpoint", "127.0.0.1:1", "") == []


def test_a_daemon_that_is_slow_or_gone_is_replaced_by_memory_and_then_silence(
    stock: StockNode, cli: Cli
) -> None:
    assert values("diagnose", "kite2") == ["kite2"]
    stock.on("GET", "/state", HANG)
    result = cli("__complete", "bash", "diagnose", "kite")
    assert result.out == (
        "kite1\t12D3KooWAa1fXk3Jw8Zq\nkite2\t12D3KooWBb2gYm4Kx9Vr\nkite3\t12D3KooWBc3hZn5Ly7Ws\n"
    )
    assert result.err == ""
    assert cli("__complete", "bash", "diagnose", "--endpoint", "127.0.0.1:1", "") == (0, "", "")


@pytest.mark.skipif(sys.platform != "linux", reason="fills the backlog of a socket as Linux does")
def test_the_limit_counts_for_all_endpoints_together(stock: StockNode, home: Path) -> None:
    with contextlib.ExitStack() as open_sockets:
        deaf = open_sockets.enter_context(socket.create_server(("127.0.0.1", 0), backlog=0))
        address = deaf.getsockname()
        for _ in range(3):
            caller = open_sockets.enter_context(socket.socket())
            caller.setblocking(False)
            caller.connect_ex(address)
        endpoints = (f"http://127.0.0.1:{address[1]}", stock.url)
        contexts = ContextFile(None, {"lab": Context("lab", endpoints)})
        write_contexts(home / "skulkctl.toml", contexts)
        assert values("diagnose", "--context", "lab", "") == []
        assert stock.seen == []


def test_a_home_that_cannot_be_written_does_not_spoil_completion(
    stock: StockNode, home: Path
) -> None:
    (home / "completion.json").mkdir()
    assert values("diagnose", "kite1") == ["kite1"]


@pytest.mark.parametrize(
    ("words", "joined"),
    [
        (["nodes", "--output", "=", "js"], ["nodes", "--output=js"]),
        (["nodes", "--output", "="], ["nodes", "--output="]),
        (["nodes", "--output", "js"], ["nodes", "--output", "js"]),
        ([""], [""]),
        (["=", "x"], ["=", "x"]),
    ],
)
def test_words_that_bash_split_at_equals_are_joined(words: list[str], joined: list[str]) -> None:
    assert join_split_words(words) == joined


@pytest.mark.parametrize("shell", sorted(SCRIPTS))
def test_the_command_prints_the_script_of_a_shell(
    cli: Cli, shell: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert cli("completion", shell) == (0, SCRIPTS[shell], "")
    monkeypatch.setenv("SHELL", f"/usr/bin/{shell}")
    assert cli("completion").out == SCRIPTS[shell]


def test_zsh_and_fish_have_no_syntax_errors(home: Path) -> None:
    checked = 0
    for shell in ("bash", "zsh", "fish"):
        if shutil.which(shell):
            subprocess.run([shell, "-n"], input=SCRIPTS[shell], text=True, check=True)
            checked += 1
    assert checked


@pytest.mark.skipif(not shutil.which("bash"), reason="needs bash")
@pytest.mark.parametrize(
    ("words", "expected"),
    [
        (["res"], ["restart"]),
        (["restart", "kite"], [r"kite\ two", "kite1", "kite3"]),
        (["restart", r"kite\ t"], [r"kite\ two"]),
        (["nodes", "--output", "=", "j"], ["json", "jsonl"]),
        (["config", "validate", "x"], []),
    ],
)
def test_a_real_bash_completes(
    stock: StockNode, tmp_path: Path, words: list[str], expected: list[str]
) -> None:
    from tests.cli.stock import KITE2, recorded

    state = recorded("state")
    state["nodeIdentities"][KITE2]["friendlyName"] = "kite two"
    stock.on("GET", "/state", state)
    program = tmp_path / "bin" / "skulkctl"
    program.parent.mkdir()
    program.write_text(f'#!/bin/sh\nexec "{sys.executable}" -m skulkctl "$@"\n')
    program.chmod(0o755)
    (tmp_path / "skulkctl.bash").write_text(SCRIPTS["bash"])
    typed = " ".join(f"'{word}'" for word in ["skulkctl", *words])
    script = f"""
        PATH="{program.parent}:$PATH"
        source "{tmp_path}/skulkctl.bash"
        complete -p skulkctl >/dev/null || exit 1
        COMP_WORDS=({typed}); COMP_CWORD={len(words)}
        _skulkctl
        [ ${{#COMPREPLY[@]}} -eq 0 ] || printf '%s\\n' "${{COMPREPLY[@]}}"
    """
    done = subprocess.run(
        ["bash", "--norc", "-c", script], capture_output=True, text=True, timeout=600, check=True
    )
    assert done.stdout.splitlines() == expected
    assert done.stderr == ""
