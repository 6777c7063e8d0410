"""Completion: the candidates, the 300 ms, and a real bash that asks for them."""

from __future__ import annotations

import contextlib
import os
import shutil
import socket
import subprocess
import sys
from pathlib import Path

import pytest

from skulkctl.cli.completion import SCRIPTS
from skulkctl.cli.root import COMMANDS
from skulkctl.contexts import Context, ContextFile, write_contexts
from tests.cli.completing import candidates as values
from tests.cli.conftest import Cli
from tests.cli.stock import HANG, StockNode


@pytest.mark.parametrize(
    ("words", "expected"),
    [
        (("",), list(COMMANDS)),
        (("no",), ["nodes"]),
        (("config", ""), ["show", "path", "set", "validate"]),
        (("nodes", "-o", "j"), ["json", "jsonl"]),
        (("-o", "y"), ["yaml"]),
        (("nodes", "--output=w"), ["wide"]),
        (("nodes", "--columns", "disk"), ["disk", "disk-size"]),
        (("nodes", "--columns", "name,he"), ["name,health"]),
        (("nodes", "--sort", "fre"), ["free"]),
        (("nodes", "--no-c"), ["--no-color"]),
        (("doctor", "--strict", "--columns", "r"), ["result"]),
        (("context", "ls", "--columns", "prot"), ["protected"]),
        (("config", "set", "inference.kv"), ["inference.kv_cache_backend"]),
        (("config", "set", "logging.enabled", ""), ["true", "false"]),
        (("config", "set", "inference.kv_cache_backend", "turbo"),
         ["turboquant", "turboquant_adaptive"]),
        (("config", "validate", ""), []),
        (("nodes", "list", ""), []),
        (("completion", ""), ["bash", "zsh", "fish", "install"]),
        (("completion", "install", ""), ["bash", "zsh", "fish"]),
        (("man", "skulk"), ["skulkd"]),
        (("api", "P"), ["POST", "PUT", "PATCH"]),
        (("help", "ex"), ["exit-codes"]),
        (("nodes", "--color", "a"), ["auto", "always"]),
        (("nonsense", "no"), ["nodes"]),
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
    stock: StockNode,
) -> None:
    assert values("diagnose", "kite2") == ["kite2"]
    stock.on("GET", "/state", HANG)
    assert values("diagnose", "kite") == ["kite1", "kite2", "kite3"]
    assert values("diagnose", "--endpoint", "127.0.0.1:1", "") == []


LOADED = """
import sys
from skulkctl.main import main
try:
    main([])
except SystemExit:
    loaded = {name for name, module in sys.modules.items() if module is not None}
    print(*sorted(n for n in loaded if n.startswith("skulkctl.commands.")), file=sys.stderr)
    print(*sorted(loaded & {"httpx", "rich", "yaml", "skulkd.wire"}), file=sys.stderr)
"""


@pytest.mark.parametrize(
    ("typed", "shown", "loaded"),
    [
        ("skulkctl no", "nodes\tList the nodes", ""),
        ("skulkctl nodes --o", "--output\tPrint as table, wide", "skulkctl.commands.nodes"),
    ],
)
def test_completion_imports_only_the_command_at_hand(
    home: Path, typed: str, shown: str, loaded: str
) -> None:
    asked = {
        "_SKULKCTL_COMPLETE": "complete_fish",
        "_TYPER_COMPLETE_FISH_ACTION": "get-args",
        "_TYPER_COMPLETE_ARGS": typed,
    }
    done = subprocess.run(
        [sys.executable, "-c", LOADED],
        env={**os.environ, **asked},
        capture_output=True,
        text=True,
        check=True,
    )
    assert done.stdout.startswith(shown)
    assert done.stderr == f"{loaded}\n\n"


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
        (["nodes", "--color", "="], ["auto", "always", "never"]),
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
