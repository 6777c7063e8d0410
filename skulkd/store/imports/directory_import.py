"""Imports an mlx-lm model directory: checked, then linked or copied.

Runs in a child process because it may copy many gigabytes.
"""

import os
import shutil
from collections.abc import Sequence
from pathlib import Path

from skulkd.settings.problems import printable
from skulkd.store.atomic_directory import (
    Report,
    build_model,
    no_report,
    refuse_existing,
    require_space,
)
from skulkd.store.cards.from_config import card_from_config
from skulkd.store.errors import BrokenModelError, FileAccessError, UnsupportedModelError
from skulkd.store.model_directory import (
    ModelDirectory,
    inspect_directory,
    module_configs,
    write_card,
    write_index,
)
from skulkd.store.model_ids import check_model_id, directory_name

# Data only: no programs in the models directory.
_DOCUMENTS = frozenset({".json", ".jinja", ".txt", ".model", ".tiktoken"})
_CHUNK_BYTES = 8 * 1024**2


def import_directory(
    source: Path,
    models: Path,
    model_id: str,
    *,
    replace: bool = False,
    report: Report = no_report,
) -> Path:
    """Import `source` as `model_id` and return its directory.

    Weights on the same disk are hard-linked, otherwise copied. Raises StoreError; nothing is
    left behind then.
    """
    check_model_id(model_id)
    found = _check(source)
    card = card_from_config(
        model_id, found.config, found.weight_bytes, found.chat_template, embeds=found.embeds
    )
    refuse_existing(models, model_id, replace=replace)
    target = models / directory_name(model_id)
    try:
        models.mkdir(parents=True, exist_ok=True)
        if target.exists() and target.samefile(source):
            raise BrokenModelError(f"{source} already is the directory of {model_id}")
        weights = sorted(set(found.weight_map.values()))
        with build_model(models, model_id, replace=replace) as directory:
            if not _link_all(source, directory, weights):
                require_space(models, found.weight_bytes)
                _copy_all(source, directory, weights, report)
            _copy_documents(source, directory)
            if not found.has_index:
                write_index(directory, found.weight_map, found.weight_bytes)
            write_card(directory, card)
            # The source may have changed meanwhile.
            inspect_directory(directory)
    except OSError as error:
        raise FileAccessError.of(error, source) from error
    report("copy", found.weight_bytes, found.weight_bytes, target.name)
    return target


def _check(source: Path) -> ModelDirectory:
    if not source.is_dir():
        raise BrokenModelError(f"{source} is not a directory")
    _refuse_links_out(source, sorted(source.iterdir()))
    try:
        found = inspect_directory(source)
        _refuse_links_out(source, [source / name for name in module_configs(source)])
    except BrokenModelError as error:
        raise BrokenModelError(f"{source} cannot be imported: {error.message}") from error
    if found.config.get("model_file") is not None:
        raise UnsupportedModelError("the model needs a program of its own (model_file)")
    return found


def _refuse_links_out(source: Path, files: Sequence[Path]) -> None:
    """Refuse links to other places: imported files are served to other machines."""
    root = _tree_of(source.resolve())
    for file in files:
        if file.is_symlink() and not file.resolve().is_relative_to(root):
            raise BrokenModelError(
                f"{source} cannot be imported: {printable(file.name)} is a symbolic link to "
                f"{printable(str(file.resolve()))}, outside the model directory. "
                "Replace the link by a copy of the file"
            )


def _tree_of(source: Path) -> Path:
    """The directory itself, or the whole model in a hub cache, where snapshots link to blobs."""
    repository = source.parent.parent
    if source.parent.name == "snapshots" and repository.name.startswith("models--"):
        return repository
    return source


def _link_all(source: Path, directory: Path, names: list[str]) -> bool:
    """Hard-link every file; false, with nothing linked, when one is on another disk."""
    try:
        for name in names:
            # In a hub cache every file is a link to a blob.
            os.link((source / name).resolve(), directory / name)
    except OSError:
        for name in names:
            (directory / name).unlink(missing_ok=True)
        return False
    return True


def _copy_all(source: Path, directory: Path, names: list[str], report: Report) -> None:
    total = sum((source / name).stat().st_size for name in names)
    done = 0
    for name in names:
        with (source / name).open("rb") as old, (directory / name).open("xb") as new:
            while chunk := old.read(_CHUNK_BYTES):
                report("copy", done, total, name)
                new.write(chunk)
                done += len(chunk)
            new.flush()
            os.fsync(new.fileno())


def _copy_documents(source: Path, directory: Path) -> None:
    for file in source.iterdir():
        wanted = file.suffix in _DOCUMENTS and not file.name.startswith(".")
        if wanted and file.is_file():
            shutil.copyfile(file, directory / file.name)
    for name in module_configs(source):
        (directory / name).parent.mkdir()
        shutil.copyfile(source / name, directory / name)
