"""Directories in the form of mlx-lm are taken into the models directory."""

from __future__ import annotations

import json
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from skulkd.settings.paths import Paths
from skulkd.store.cards.catalogue import load_cards
from skulkd.store.errors import (
    BrokenModelError,
    ModelExistsError,
    StoreError,
    UnsupportedModelError,
)
from skulkd.store.imports.directory_import import import_directory
from skulkd.store.library import ModelLibrary
from tests.embedding.models import make_tiny_encoder

WEIGHTS = "model.safetensors"
SHARED_MEMORY = Path("/dev/shm")


def test_a_directory_becomes_a_model_with_a_card(paths: Paths, tiny: Path) -> None:
    (tiny / "card.toml").unlink()
    path = import_directory(tiny, paths.models, "org/copy")
    assert ModelLibrary(paths, {}).find("org/copy") == path
    card = load_cards(paths).require("org/copy")
    assert (card.n_layers, card.storage_size.in_bytes) == (8, (tiny / WEIGHTS).stat().st_size)


def test_weights_on_the_same_disk_are_linked_and_documents_copied(paths: Paths, tiny: Path) -> None:
    path = import_directory(tiny, paths.models, "org/copy")
    assert (path / WEIGHTS).samefile(tiny / WEIGHTS)
    assert not (path / "config.json").samefile(tiny / "config.json")


@pytest.fixture
def other_disk(tmp_path: Path) -> Iterator[Path]:
    if not SHARED_MEMORY.is_dir() or SHARED_MEMORY.stat().st_dev == tmp_path.stat().st_dev:
        pytest.skip("there is no second file system here")
    with tempfile.TemporaryDirectory(dir=SHARED_MEMORY) as folder:
        yield Path(folder)


def test_weights_on_another_disk_are_copied_with_progress(other_disk: Path, tiny: Path) -> None:
    seen: list[tuple[str, int, int | None, str]] = []

    def report(*progress: Any) -> None:
        seen.append(progress)

    path = import_directory(tiny, other_disk, "org/copy", report=report)
    assert (path / WEIGHTS).read_bytes() == (tiny / WEIGHTS).read_bytes()
    assert (seen[0][0], seen[0][3], seen[0][1]) == ("copy", WEIGHTS, 0)
    assert seen[-1][1] == seen[-1][2] == (tiny / WEIGHTS).stat().st_size


def test_a_source_that_changes_while_it_is_copied_is_refused(other_disk: Path, tiny: Path) -> None:
    def interfere(*_progress: object) -> None:
        (tiny / "tokenizer.json").unlink(missing_ok=True)

    with pytest.raises(BrokenModelError, match="no tokenizer"):
        import_directory(tiny, other_disk, "org/copy", report=interfere)
    assert list(other_disk.iterdir()) == []


def test_links_to_the_blobs_of_a_hub_cache_are_followed(paths: Paths, tiny: Path) -> None:
    repository = tiny.parent / "models--org--copy"
    snapshot = repository / "snapshots" / "main"
    snapshot.parent.mkdir(parents=True)
    tiny.rename(snapshot)
    blob = repository / "blobs" / "abc"
    blob.parent.mkdir()
    (snapshot / WEIGHTS).rename(blob)
    (snapshot / WEIGHTS).symlink_to(Path("../../blobs/abc"))
    path = import_directory(snapshot, paths.models, "org/copy")
    assert not (path / WEIGHTS).is_symlink()
    assert (path / WEIGHTS).samefile(blob)


def test_a_link_inside_the_directory_is_followed(paths: Paths, tiny: Path) -> None:
    (tiny / "chat_template.jinja").symlink_to(tiny / "config.json")
    path = import_directory(tiny, paths.models, "org/copy")
    assert (path / "chat_template.jinja").read_bytes() == (tiny / "config.json").read_bytes()


@pytest.mark.parametrize("name", ["notes.txt", "tokenizer_config.json", WEIGHTS])
def test_a_link_out_of_the_directory_is_refused(
    paths: Paths, tiny: Path, tmp_path: Path, name: str
) -> None:
    outside = tmp_path / "private.key"
    outside.write_text("{}")
    (tiny / name).unlink(missing_ok=True)
    (tiny / name).symlink_to(outside)
    with pytest.raises(BrokenModelError, match=rf"{name} is a symbolic link to .*outside"):
        import_directory(tiny, paths.models, "org/copy")
    assert not paths.models.exists()


def test_a_missing_index_is_made_from_the_headers(paths: Paths, tiny: Path) -> None:
    index = json.loads((tiny / "model.safetensors.index.json").read_text())
    (tiny / "model.safetensors.index.json").unlink()
    path = import_directory(tiny, paths.models, "org/copy")
    made = json.loads((path / "model.safetensors.index.json").read_text())
    assert made["weight_map"] == index["weight_map"]


def test_programs_and_hidden_files_stay_outside(paths: Paths, tiny: Path) -> None:
    (tiny / "modeling.py").write_text("raise SystemExit")
    (tiny / ".secret.json").write_text("{}")
    (tiny / "chat_template.jinja").write_text("{{ tools }}")
    path = import_directory(tiny, paths.models, "org/copy")
    names = {file.name for file in path.iterdir()}
    assert "chat_template.jinja" in names
    assert not names & {"modeling.py", ".secret.json"}
    assert load_cards(paths).require("org/copy").tooling is not None


def _set_config(directory: Path, **changes: object) -> None:
    file = directory / "config.json"
    file.write_text(json.dumps({**json.loads(file.read_text()), **changes}))


def test_a_truncated_file_is_refused_and_nothing_stays(paths: Paths, tiny: Path) -> None:
    (tiny / WEIGHTS).write_bytes((tiny / WEIGHTS).read_bytes()[:-7])
    with pytest.raises(BrokenModelError, match=r"cannot be imported: model\.safetensors is t"):
        import_directory(tiny, paths.models, "org/copy")
    assert not paths.models.exists()


def test_a_model_that_wants_to_run_a_program_is_refused(paths: Paths, tiny: Path) -> None:
    _set_config(tiny, model_file="model.py")
    with pytest.raises(UnsupportedModelError, match="model_file"):
        import_directory(tiny, paths.models, "org/copy")


def test_a_configuration_without_sizes_is_refused(paths: Paths, tiny: Path) -> None:
    _set_config(tiny, num_hidden_layers=None)
    with pytest.raises(BrokenModelError, match="num_hidden_layers is missing"):
        import_directory(tiny, paths.models, "org/copy")


def test_a_path_that_is_no_directory_is_refused(paths: Paths, tmp_path: Path) -> None:
    with pytest.raises(BrokenModelError, match="is not a directory"):
        import_directory(tmp_path / "gone", paths.models, "org/copy")


def test_a_taken_id_is_refused_unless_it_is_to_be_replaced(paths: Paths, tiny: Path) -> None:
    import_directory(tiny, paths.models, "org/copy")
    with pytest.raises(ModelExistsError):
        import_directory(tiny, paths.models, "org/copy")
    _set_config(tiny, max_position_embeddings=99)
    import_directory(tiny, paths.models, "org/copy", replace=True)
    assert load_cards(paths).require("org/copy").context_length == 99


def test_a_model_cannot_replace_itself(paths: Paths, tiny: Path) -> None:
    path = import_directory(tiny, paths.models, "org/copy")
    with pytest.raises(StoreError, match="already is the directory"):
        import_directory(path, paths.models, "org/copy", replace=True)
    assert ModelLibrary(paths, {}).find("org/copy") == path


@pytest.fixture
def encoder(tmp_path: Path) -> Path:
    return make_tiny_encoder(tmp_path / "encoder")


def test_an_embedding_model_keeps_its_pooling(paths: Paths, encoder: Path) -> None:
    path = import_directory(encoder, paths.models, "org/copy")
    pooling = Path("1_Pooling") / "config.json"
    assert (path / pooling).read_bytes() == (encoder / pooling).read_bytes()
    assert load_cards(paths).require("org/copy").tasks == ["TextEmbedding"]
    (path / "card.toml").unlink()
    assert load_cards(paths).require("org/copy").tasks == ["TextEmbedding"]


def test_an_embedding_model_without_its_pooling_is_refused(paths: Paths, encoder: Path) -> None:
    (encoder / "1_Pooling" / "config.json").unlink()
    with pytest.raises(BrokenModelError, match=r"1_Pooling/config\.json is missing"):
        import_directory(encoder, paths.models, "org/copy")
    (encoder / "modules.json").write_text('[{"type": "x.Pooling", "path": "../elsewhere"}]')
    with pytest.raises(BrokenModelError, match="cannot be used"):
        import_directory(encoder, paths.models, "org/copy")
    assert not list(paths.models.glob("*"))


def test_a_pooling_that_links_to_elsewhere_is_refused(
    paths: Paths, encoder: Path, tmp_path: Path
) -> None:
    config = encoder / "1_Pooling" / "config.json"
    secret = tmp_path / "secret.json"
    config.rename(secret)
    config.symlink_to(secret)
    with pytest.raises(BrokenModelError, match="outside the model directory"):
        import_directory(encoder, paths.models, "org/copy")
