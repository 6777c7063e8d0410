"""Checks of a model directory before MLX sees it, with reasons that name the file. No MLX."""

import json
from pathlib import Path
from typing import Any

from skulkd.runner.errors import BadModel

_TOKENIZER_FILES = ("tokenizer.json", "tokenizer.model", "tiktoken.model", "vocab.json")


def check_model_directory(directory: Path) -> None:
    """Raises BadModel when something is missing or cannot be what it is named."""
    if not directory.is_dir():
        raise BadModel(f"{directory} is not a directory")
    read_config(directory)
    if not weight_files(directory):
        raise BadModel(f"no model*.safetensors in {directory}")
    _check_index(directory)
    if not any((directory / name).is_file() for name in _TOKENIZER_FILES):
        raise BadModel(f"no tokenizer in {directory}: none of {', '.join(_TOKENIZER_FILES)}")


def weight_files(directory: Path) -> list[Path]:
    """The files that mlx-lm reads weights from."""
    return sorted(directory.glob("model*.safetensors"))


def read_config(directory: Path) -> dict[str, Any]:
    """Raises BadModel."""
    path = directory / "config.json"
    try:
        config = json.loads(path.read_text(encoding="utf-8"))
    except OSError as error:
        raise BadModel(f"cannot read {path}: {error.strerror}") from error
    except ValueError as error:
        raise BadModel(f"{path} is not JSON: {error}") from error
    if not isinstance(config, dict):
        raise BadModel(f"{path} is not an object")
    if not isinstance(config.get("model_type"), str):
        raise BadModel(f"{path} has no model_type")
    return config


def _check_index(directory: Path) -> None:
    path = directory / "model.safetensors.index.json"
    if not path.is_file():
        return
    try:
        files = set(json.loads(path.read_text(encoding="utf-8"))["weight_map"].values())
    except (ValueError, KeyError, AttributeError, TypeError) as error:
        raise BadModel(f"{path} cannot be read: {error}") from error
    missing = sorted(name for name in files if not (directory / str(name)).is_file())
    if missing:
        raise BadModel(f"{directory} lacks {', '.join(missing)}, named in {path.name}")
