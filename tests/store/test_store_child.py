"""`python -m skulkd.store`: what it prints, how it ends, and what a kill leaves behind."""

from __future__ import annotations

import json
import os
import signal
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from skulkd.settings.paths import Paths
from skulkd.store.imports.tiny_model import TINY_MODEL_ID, TinyShape, make_tiny_model
from skulkd.store.library import ModelLibrary
from tests.store.child import DEADLINE_S, ROOT, run_child, run_mlx, store_command
from tests.store.gguf_samples import Sample, Type

GREEDY = """
import json, sys
import mlx.core as mx
from mlx_lm import load, stream_generate
model, tokenizer = load(sys.argv[1])
tokenizer._eos_token_ids = set()
ids = [r.token for r in stream_generate(model, tokenizer, "Hello", max_tokens=64)]
chat = tokenizer.apply_chat_template([{"role": "user", "content": "hi"}], return_dict=False)
texts = [tokenizer.decode([i]) for i in range(512)]
print(json.dumps({"ids": ids, "chat": tokenizer.decode(chat), "texts": texts}))
"""


@pytest.fixture
def environ(tmp_path: Path) -> dict[str, str]:
    return {**os.environ, "SKULK_HOME": str(tmp_path / "skulk")}


def test_import_of_a_file_prints_progress_and_the_result(
    tmp_path: Path, paths: Paths, environ: dict[str, str]
) -> None:
    file = Sample(type=Type.Q8_0).write(tmp_path / "Small.Q8_0.gguf")
    child = run_child(["import", str(file), "--packed"], environ)
    assert (child.status, child.stderr) == (0, "")
    assert child.last == {
        "event": "done",
        "model_id": "local/Small.Q8_0",
        "path": str(paths.models / "local--Small.Q8_0"),
    }
    assert child.events[0]["event"] == "progress"
    assert ModelLibrary(paths, {}).find("local/Small.Q8_0") is not None


def test_import_of_a_directory_keeps_its_id_and_can_be_repeated(
    tiny: Path, paths: Paths, environ: dict[str, str]
) -> None:
    assert run_child(["import", str(tiny)], environ).last["model_id"] == TINY_MODEL_ID
    refused = run_child(["import", str(tiny)], environ)
    assert (refused.status, refused.last["kind"]) == (1, "model_exists")
    assert "--replace" in refused.last["hint"]
    assert run_child(["import", str(tiny), "--replace"], environ).status == 0
    assert run_child(["import", str(tiny), "--id", "org/other"], environ).status == 0
    assert len(ModelLibrary(paths, {}).list()) == 2


def test_a_refusal_is_one_event_and_status_one(tmp_path: Path, environ: dict[str, str]) -> None:
    file = Sample(architecture="mamba").write(tmp_path / "x.gguf")
    child = run_child(["import", str(file)], environ)
    assert (child.status, child.stderr) == (1, "")
    assert child.events == [
        {
            "event": "error",
            "kind": "unsupported_model",
            "message": 'the architecture "mamba" cannot be imported',
            "hint": "supported architectures: llama, qwen2, qwen3",
        }
    ]


@pytest.mark.parametrize(
    ("arguments", "changes", "kind"),
    [
        (["import", "no/such/path"], {}, "broken_model"),
        (["import", "README.md", "--id", "../x"], {}, "bad_model_id"),
        (["pull", "tiny"], {"SKULK_MODELS_DIR": "/dev/null/models"}, "file_access"),
        (["pull", "tiny"], {"XDG_DATA_HOME": "relative", "SKULK_HOME": ""}, "settings"),
    ],
)
def test_every_failure_is_an_event(
    environ: dict[str, str], arguments: list[str], changes: dict[str, str], kind: str
) -> None:
    child = run_child(arguments, {**environ, **changes})
    assert (child.status, child.stderr) == (1, "")
    assert child.last["kind"] == kind


def test_a_wrong_command_line_is_status_two(environ: dict[str, str]) -> None:
    child = run_child(["fly"], environ)
    assert (child.status, child.events) == (2, [])


@contextmanager
def _importing(file: Path, environ: dict[str, str]) -> Iterator[subprocess.Popen[str]]:
    """A child that has begun to write the model."""
    process = subprocess.Popen(
        store_command("import", str(file), "--id", "local/big"),
        cwd=ROOT,
        env=environ,
        stdout=subprocess.PIPE,
        text=True,
    )
    try:
        assert process.stdout is not None
        assert json.loads(process.stdout.readline())["event"] == "progress"
        yield process
    finally:
        process.kill()
        process.wait(DEADLINE_S)
        process.stdout.close()


@pytest.fixture(scope="module")
def big_file(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Enough work that a signal always comes in the middle."""
    sample = Sample(layers=20, hidden=1024, feed_forward=4096, type=Type.F16, empty=True)
    return sample.write_empty(tmp_path_factory.mktemp("big") / "big.gguf")


def test_a_kill_leaves_nothing_that_looks_like_a_model(
    big_file: Path, paths: Paths, environ: dict[str, str]
) -> None:
    with _importing(big_file, environ) as process:
        process.send_signal(signal.SIGSTOP)
        process.kill()
        assert process.wait(DEADLINE_S) == -signal.SIGKILL
    library = ModelLibrary(paths, {})
    assert library.find("local/big") is None
    assert library.list() == ()
    leftovers = list(paths.models.iterdir())
    assert [path.name.startswith(".building-") for path in leftovers] == [True]
    # The next import works, and cleans up.
    make_tiny_model(paths.models)
    assert [path.name for path in paths.models.iterdir()] == ["skulk--tiny-llama"]


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_a_signal_to_stop_cleans_up(
    big_file: Path, paths: Paths, environ: dict[str, str], number: signal.Signals
) -> None:
    with _importing(big_file, environ) as process:
        process.send_signal(number)
        assert process.wait(DEADLINE_S) == 128 + number
    assert list(paths.models.iterdir()) == []


def test_an_import_ends_when_nobody_listens(
    big_file: Path, paths: Paths, environ: dict[str, str]
) -> None:
    with _importing(big_file, environ) as process:
        assert process.stdout is not None
        process.stdout.close()
        assert process.wait(DEADLINE_S) == 1
    assert list(paths.models.iterdir()) == []


def test_the_tiny_model_is_the_same_every_time(tmp_path: Path) -> None:
    first = make_tiny_model(tmp_path / "a") / "model.safetensors"
    second = make_tiny_model(tmp_path / "b") / "model.safetensors"
    other = make_tiny_model(tmp_path / "c", shape=TinyShape(seed=1)) / "model.safetensors"
    assert first.read_bytes() == second.read_bytes()
    assert first.read_bytes() != other.read_bytes()
    before = first.stat().st_mtime_ns
    make_tiny_model(tmp_path / "a")
    assert first.stat().st_mtime_ns == before


@pytest.mark.parametrize("ranks", [2, 3, 4])
def test_the_tiny_model_splits_over_ranks(ranks: int) -> None:
    shape = TinyShape()
    assert shape.layers >= ranks
    if ranks != 3:
        sizes = (shape.heads, shape.kv_heads, shape.feed_forward, shape.layers)
        assert [size % ranks for size in sizes] == [0] * 4


def test_the_tiny_model_speaks_in_mlx_lm(paths: Paths, environ: dict[str, str]) -> None:
    child = run_child(["pull", "tiny"], environ)
    assert child.events == [
        {"event": "done", "model_id": TINY_MODEL_ID, "path": child.last["path"]}
    ]
    answer = run_mlx(GREEDY, ModelLibrary(paths, {}).find(TINY_MODEL_ID))
    assert len(answer["ids"]) == 64
    assert len(set(answer["ids"])) > 8
    assert answer["chat"] == "<|im_start|>user\nhi<|im_end|>\n"
    assert all(answer["texts"])
