"""Models on disk: whole ones are found, the others say why not."""

from __future__ import annotations

import json
import os
import struct
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from skulkd.settings.paths import Paths
from skulkd.store.atomic_directory import build_model, remove_leftovers
from skulkd.store.errors import BadModelIdError, ModelExistsError, UnknownModelError
from skulkd.store.imports.tiny_model import TINY_MODEL_ID, make_tiny_model
from skulkd.store.library import ModelLibrary
from tests.store.child import ROOT

WEIGHTS = "model.safetensors"
INDEX = "model.safetensors.index.json"


def test_a_whole_model_is_found_and_listed(paths: Paths) -> None:
    path = make_tiny_model(paths.models)
    library = ModelLibrary(paths, {})
    assert library.find(TINY_MODEL_ID) == path
    (model,) = library.list()
    assert (model.model_id, model.path, model.read_only) == (TINY_MODEL_ID, path, False)
    assert model.weight_bytes == (path / WEIGHTS).stat().st_size
    assert model.size_bytes == sum(file.stat().st_size for file in path.iterdir())
    assert library.problem(TINY_MODEL_ID) is None


@pytest.mark.parametrize("model_id", ["no/such", "../skulk--tiny-llama", "", "skulk--tiny-llama"])
def test_an_unknown_or_bad_id_is_not_found(paths: Paths, model_id: str) -> None:
    make_tiny_model(paths.models)
    library = ModelLibrary(paths, {})
    assert library.find(model_id) is None
    assert library.problem(model_id) is None


def _cut(path: Path, count: int) -> None:
    path.write_bytes(path.read_bytes()[:-count])


def _append(path: Path, data: bytes) -> None:
    path.write_bytes(path.read_bytes() + data)


def _change_header(path: Path, change: Callable[[dict[str, object]], object]) -> None:
    content = path.read_bytes()
    (length,) = struct.unpack("<Q", content[:8])
    header = json.loads(content[8 : 8 + length])
    change(header)
    text = json.dumps(header).encode()
    path.write_bytes(struct.pack("<Q", len(text)) + text + content[8 + length :])


def _index(path: Path, weight_map: dict[str, str]) -> None:
    (path / INDEX).write_text(json.dumps({"weight_map": weight_map}))


BREAK: dict[str, Callable[[Path], object]] = {
    "it has no config.json": lambda p: (p / "config.json").unlink(),
    "config.json is not JSON": lambda p: (p / "config.json").write_text("{"),
    "config.json is not a JSON object": lambda p: (p / "config.json").write_text("[]"),
    "config.json does not say model_type": lambda p: (p / "config.json").write_text("{}"),
    "it has no tokenizer": lambda p: (p / "tokenizer.json").unlink(),
    "model.safetensors is missing": lambda p: (p / WEIGHTS).unlink(),
    "model.safetensors is truncated: ": lambda p: _cut(p / WEIGHTS, 1),
    "model.safetensors is truncated inside its header": lambda p: _cut(p / WEIGHTS, 1_580_000),
    "model.safetensors is truncated: it has 3 bytes": lambda p: (p / WEIGHTS).write_bytes(b"abc"),
    "model.safetensors is not a safetensors": lambda p: (p / WEIGHTS).write_bytes(b"\xff" * 99),
    "model.safetensors has 1 bytes too many": lambda p: _append(p / WEIGHTS, b"x"),
    "damaged entry for tensor model.norm.weight": lambda p: _change_header(
        p / WEIGHTS, lambda h: h.update({"model.norm.weight": {"dtype": "F32"}})
    ),
    "tensor gone is not in model.safetensors": lambda p: _index(p, {"gone": WEIGHTS}),
    "model-2.safetensors is missing": lambda p: _index(p, {"a": "model-2.safetensors"}),
    "names a file that is not": lambda p: _index(p, {"a": "../x.safetensors"}),
    "has no weight_map": lambda p: _index(p, {}),
    "it has no weights": lambda p: ((p / INDEX).unlink(), (p / WEIGHTS).unlink()),
    "big.partial is not complete": lambda p: (p / "big.partial").touch(),
}


@pytest.mark.parametrize("reason", BREAK)
def test_a_model_that_is_not_whole_is_not_found_and_says_why(paths: Paths, reason: str) -> None:
    path = make_tiny_model(paths.models)
    library = ModelLibrary(paths, {})
    # Whole first: what was seen once must not be believed for ever.
    assert library.find(TINY_MODEL_ID) == path
    BREAK[reason](path)
    assert library.find(TINY_MODEL_ID) is None
    assert library.list() == ()
    assert reason in (library.problem(TINY_MODEL_ID) or "")


def test_a_model_that_becomes_whole_is_found(paths: Paths) -> None:
    path = make_tiny_model(paths.models)
    config = (path / "config.json").read_bytes()
    (path / "config.json").unlink()
    library = ModelLibrary(paths, {})
    assert library.find(TINY_MODEL_ID) is None
    (path / "config.json").write_bytes(config)
    assert library.find(TINY_MODEL_ID) == path


def test_models_of_the_search_path_are_read_only_and_come_second(
    paths: Paths, tmp_path: Path, tiny: Path
) -> None:
    missing = tmp_path / "missing"
    library = ModelLibrary(paths, {"SKULK_MODELS_PATH": f"{missing}::{tiny.parent}"})
    (model,) = library.list()
    assert (model.path, model.read_only) == (tiny, True)
    with pytest.raises(UnknownModelError):
        library.remove(TINY_MODEL_ID)
    assert tiny.exists()
    own = make_tiny_model(paths.models)
    assert library.find(TINY_MODEL_ID) == own
    # A broken own copy does not hide the whole one behind it.
    (own / "config.json").unlink()
    assert library.find(TINY_MODEL_ID) == tiny


def test_other_things_in_the_models_directory_are_no_models(paths: Paths) -> None:
    path = make_tiny_model(paths.models)
    path.rename(path.with_name("no-separator"))
    (paths.models / "caches").mkdir()
    (paths.models / ".building-abc").mkdir()
    (paths.models / "a--b").write_text("a file")
    assert ModelLibrary(paths, {}).list() == ()


def test_remove_deletes_whole_and_broken_models(paths: Paths) -> None:
    path = make_tiny_model(paths.models)
    size = sum(file.stat().st_size for file in path.iterdir())
    library = ModelLibrary(paths, {})
    assert library.remove(TINY_MODEL_ID) == size
    assert library.find(TINY_MODEL_ID) is None
    assert list(paths.models.iterdir()) == []
    (paths.models / "a--b").mkdir()
    assert library.remove("a/b") == 0
    with pytest.raises(UnknownModelError, match="a/b is not in"):
        library.remove("a/b")
    with pytest.raises(BadModelIdError):
        library.remove("../x")


def test_of_two_builds_of_one_id_the_first_to_finish_wins(paths: Paths) -> None:
    with (
        pytest.raises(ModelExistsError, match="a/b is already"),
        build_model(paths.models, "a/b") as slow,
    ):
        (slow / "who").write_text("slow")
        with build_model(paths.models, "a/b") as fast:
            (fast / "who").write_text("fast")
    assert (paths.models / "a--b" / "who").read_text() == "fast"
    assert [entry.name for entry in paths.models.iterdir()] == ["a--b"]


def test_a_build_that_fails_leaves_the_old_model(paths: Paths) -> None:
    path = make_tiny_model(paths.models)
    with (
        pytest.raises(ZeroDivisionError),
        build_model(paths.models, TINY_MODEL_ID, replace=True),
    ):
        raise ZeroDivisionError
    assert ModelLibrary(paths, {}).find(TINY_MODEL_ID) == path
    assert [entry.name for entry in paths.models.iterdir()] == [path.name]


def test_leftovers_go_and_directories_in_use_stay(paths: Paths) -> None:
    for name in (".building-dead", ".removing-dead"):
        (paths.models / name).mkdir(parents=True)
        (paths.models / name / "big").write_text("x")
    with build_model(paths.models, "a/b") as directory:
        assert {entry.name for entry in paths.models.iterdir()} == {directory.parent.name}
        remove_leftovers(paths.models)
        assert directory.exists()


def test_the_daemon_can_ask_without_heavy_imports() -> None:
    program = (
        "import sys, skulkd.store.library, skulkd.store.service, skulkd.store.cards.model_list\n"
        "heavy = {'numpy', 'mlx', 'mlx_lm', 'tokenizers', 'gguf', 'transformers', 'safetensors'}\n"
        "sys.exit(', '.join(heavy & set(sys.modules)) or 0)"
    )
    environ = {**os.environ, "PYTHONPATH": str(ROOT)}
    found = subprocess.run(
        [sys.executable, "-c", program], env=environ, capture_output=True, text=True, check=False
    )
    assert (found.returncode, found.stderr) == (0, "")
