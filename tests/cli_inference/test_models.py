"""`skulkctl models` and `model`: the catalogue, cards, and files brought by a child process."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from skulkctl.errors import CliError
from skulkctl.models.sources import run_store
from skulkctl.output.messages import Messages
from tests.cli.builders import completed, downloads
from tests.cli.conftest import Cli
from tests.cli.stock import KITE2, Reply
from tests.cli_inference.model_node import (
    CATALOGUE,
    MODEL,
    ModelNode,
    a_state,
    error_body,
)
from tests.daemon_process import wait_until
from tests.skulkctl_process import start_skulkctl

TINY = "skulk/tiny-llama"


def test_models_shows_the_catalogue_with_files_and_placement(cli: Cli, node: ModelNode) -> None:
    state = a_state()
    state["downloads"] = downloads(**{KITE2: completed(KITE2, MODEL)})
    node.on("GET", "/state", state)
    assert cli("models") == (
        0,
        "MODEL                                         SIZE  CONTEXT  QUANT  TAGS    HERE   "
        "PLACED\n"
        "mlx-community/Llama-3.2-1B-Instruct-4bit  696.0MiB   131072  4bit   tensor  kite2  "
        "ready\n"
        "mlx-community/Qwen3-0.6B-4bit             696.0MiB        -  4bit   -       -      -\n"
        "skulk/tiny-llama                            2.0MiB   131072  fp32   tensor  yes    -\n",
        "",
    )


def test_models_can_be_narrowed(cli: Cli, node: ModelNode) -> None:
    assert cli("models", "--downloaded", "-q").out == f"{MODEL}\n{TINY}\n"
    assert cli("models", "--filter", "QWEN3 4bit", "-q").out == "mlx-community/Qwen3-0.6B-4bit\n"
    result = cli("models", "--filter", "nothing", "--columns", "model")
    assert (result.code, result.out) == (0, "MODEL\n")
    assert result.err.startswith("hint: no such model:")


def test_models_of_an_unreachable_daemon_is_exit_5(cli: Cli) -> None:
    assert cli("models", "--endpoint", "127.0.0.1:1").code == 5


def test_adding_a_card_sends_its_id(cli: Cli, node: ModelNode) -> None:
    node.on("POST", "/models/add", CATALOGUE[1])
    assert cli("model", "add", MODEL) == (0, f"added {MODEL}\n", "")
    assert node.bodies("/models/add") == [{"model_id": MODEL}]
    refusal = Reply(400, error_body("Failed to fetch model: no such repository", 400))
    node.on("POST", "/models/add", refusal)
    assert cli("model", "add", "a/b") == (
        4,
        "",
        "error: cannot add a/b\n  Failed to fetch model: no such repository\n",
    )


def test_a_dry_run_sends_nothing(cli: Cli, node: ModelNode) -> None:
    assert cli("model", "add", MODEL, "--dry-run").out == f"would add {MODEL}\n"
    assert not node.seen


def test_a_dry_run_of_a_removal_names_the_card_it_matches(cli: Cli, node: ModelNode) -> None:
    note = f"note: tiny matches model {TINY}\n"
    assert cli("model", "rm", "tiny", "--dry-run") == (0, f"would remove {TINY}\n", note)
    assert cli("model", "rm", "tin", "--dry-run").code == 2
    assert cli("model", "rm", "nothing", "--dry-run") == (
        3,
        "",
        "error: nothing has no user-added card\nhint: skulkctl models -o wide\n",
    )
    assert {seen.method for seen in node.seen} == {"GET"}


def test_removing_a_card_asks_and_keeps_the_files(
    cli: Cli, process: Cli, node: ModelNode, home: Path
) -> None:
    files = home / "models" / "skulk--tiny-llama"
    files.mkdir(parents=True)
    node.on("DELETE", f"/models/custom/{TINY}", {"message": "Model card deleted", "model_id": TINY})
    assert process("model", "rm", TINY).code == 9
    assert cli("model", "rm", TINY, "--yes") == (
        0,
        f"removed {TINY}\n",
        f"hint: to delete its files on this machine, run:  rm -r {files}\n",
    )
    assert node.seen[-1].path == "/models/custom/skulk%2Ftiny-llama"


def test_a_card_that_is_not_custom_is_not_found(cli: Cli, node: ModelNode) -> None:
    missing = Reply(404, error_body("Custom model card not found", 404))
    node.on("DELETE", f"/models/custom/{MODEL}", missing)
    assert cli("model", "rm", MODEL, "--yes") == (
        3,
        "",
        f"error: {MODEL} has no user-added card\n"
        "  Custom model card not found\n"
        "hint: skulkctl models -o wide\n",
    )


def test_pulling_tiny_makes_a_model_on_this_machine(cli: Cli, home: Path) -> None:
    directory = home / "models" / "skulk--tiny-llama"
    assert cli("model", "pull", "tiny") == (
        0,
        f"pulled {TINY} into {directory}\n",
        f"hint: skulkctl place {TINY} --wait\n",
    )
    assert (directory / "config.json").exists()
    assert cli("model", "pull", "tiny", "-q") == (0, f"{TINY}\n", "")
    copy = cli("model", "import", str(directory), "--id", "me/copy", "-o", "json")
    assert json.loads(copy.out) == {
        "apiVersion": "skulkctl/v1",
        "kind": "Model",
        "modelId": "me/copy",
        "path": str(home / "models" / "me--copy"),
        "action": "imported",
    }
    assert "copying 100 %: " in copy.err
    again = cli("model", "import", str(directory), "--id", "me/copy", "-q")
    assert (again.code, again.out) == (4, "")
    assert cli("model", "import", str(directory), "--id", "me/copy", "--replace", "-q").code == 0


def test_a_cluster_that_does_not_answer_gets_no_model_unless_it_is_kept_here(
    cli: Cli, home: Path
) -> None:
    remote = ("--endpoint", "http://127.0.0.1:9")
    result = cli(*remote, "model", "pull", "tiny")
    assert (result.code, result.out) == (5, "")
    assert "hint: keep it on this machine:  add --here" in result.err
    assert not (home / "models").exists()
    kept = cli(*remote, "model", "pull", "tiny", "--here")
    assert kept.code == 0
    assert (home / "models" / "skulk--tiny-llama").is_dir()


def test_what_cannot_be_imported_is_refused_with_the_reason(cli: Cli, home: Path) -> None:
    file = home / "x.gguf"
    file.write_bytes(b"nonsense")
    result = cli("model", "import", str(file))
    assert (result.code, result.out) == (4, "")
    assert result.err.startswith(f"error: cannot import {file}\n  ")
    assert cli("model", "import", str(home / "gone")) == (
        3,
        "",
        f"error: {home / 'gone'} does not exist\n",
    )
    assert cli("model", "pull", "everything").code == 2


def test_a_missing_node_extra_is_told(
    cli: Cli, home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PYTHONPATH", _fake_store(home, "import numpy_that_is_not_there"))
    assert cli("model", "pull", "tiny") == (
        1,
        "",
        "error: cannot pull tiny\n"
        "  the node extra is not installed here: numpy_that_is_not_there is missing\n"
        f"hint: {sys.executable} -m pip install 'skulk-toolkit[node]'\n",
    )


def test_a_child_that_dies_is_told_with_its_last_words(
    home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    program = "import sys; print('noise'); print('out of luck', file=sys.stderr); sys.exit(9)"
    monkeypatch.setenv("PYTHONPATH", _fake_store(home, program))
    with pytest.raises(CliError) as raised:
        run_store(["pull", "tiny"], "pull tiny", Messages())
    assert raised.value.why == ("the import process exited with 9", "out of luck")


def test_ctrl_c_ends_the_child_too(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    mark = home / "pid"
    program = (
        "import os, pathlib, time\n"
        f"pathlib.Path({str(mark)!r}).write_text(str(os.getpid()))\n"
        "time.sleep(60)\n"
    )
    monkeypatch.setenv("PYTHONPATH", _fake_store(home, program))
    child = start_skulkctl("model", "pull", "tiny", stderr=subprocess.PIPE, stdout=subprocess.PIPE)
    wait_until(lambda: mark.exists() and mark.read_text(), "the child")
    child.send_signal(signal.SIGINT)
    out, said = child.communicate(timeout=600)
    assert (child.returncode, out) == (130, b"")
    assert said == b"warning: interrupted; no model was registered\n"
    with pytest.raises(ProcessLookupError):
        os.kill(int(mark.read_text()), 0)


def _fake_store(home: Path, program: str) -> str:
    """A PYTHONPATH on which skulkd.store is this program, and all else is as it was."""
    package = home / "fake" / "skulkd"
    package.mkdir(parents=True)
    real = Path(__file__).parents[2] / "skulkd"
    (package / "__init__.py").write_text(
        f"__path__.append({str(real)!r})\n__version__ = '0'\nSERVER_NAME = 'skulkd'\n",
        encoding="utf-8",
    )
    (package / "store").mkdir()
    (package / "store" / "__init__.py").write_text("")
    (package / "store" / "__main__.py").write_text(program)
    return os.pathsep.join([str(home / "fake"), str(real.parent)])
