"""Is a model directory whole? Reads configuration, index and the headers of the weights.

Standard library only, so that the daemon can ask. Must not know where directories lie.
"""

import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from skulkd.settings.problems import printable
from skulkd.store.errors import BrokenModelError, FileAccessError
from skulkd.store.model_documents import CONFIG_FILE, INDEX_FILE
from skulkd.store.safetensors_file import read_tensor_names

MAX_JSON_BYTES = 64 * 1024**2
_TOKENIZERS = (
    ("tokenizer.json",), ("tokenizer.model",), ("tiktoken.model",), ("vocab.json", "merges.txt"),
)  # fmt: skip


@dataclass(frozen=True, slots=True)
class ModelDirectory:
    """A whole model."""

    path: Path
    config: Mapping[str, Any]
    weight_map: Mapping[str, str]
    """Tensor name to file name."""
    weight_bytes: int
    has_index: bool
    chat_template: str | None


def inspect_directory(path: Path) -> ModelDirectory:
    """What is in the directory. Raises BrokenModelError that says what is missing or damaged."""
    try:
        names = {entry.name for entry in path.iterdir() if entry.is_file()}
        partial = sorted(name for name in names if name.endswith(".partial"))
        if partial:
            raise BrokenModelError(f"{partial[0]} is not complete")
        config = _read_config(path, names)
        if not any(names.issuperset(files) for files in _TOKENIZERS):
            raise BrokenModelError("it has no tokenizer (tokenizer.json)")
        weight_map = _weight_map(path, names)
        weight_bytes = sum((path / name).stat().st_size for name in set(weight_map.values()))
        template = chat_template(path, names)
    except OSError as error:
        raise FileAccessError.of(error, path) from error
    return ModelDirectory(path, config, weight_map, weight_bytes, INDEX_FILE in names, template)


def _read_config(path: Path, names: set[str]) -> dict[str, Any]:
    if CONFIG_FILE not in names:
        raise BrokenModelError(f"it has no {CONFIG_FILE}")
    config = read_json_object(path / CONFIG_FILE)
    if not isinstance(config.get("model_type"), str):
        raise BrokenModelError(f"{CONFIG_FILE} does not say model_type")
    return config


def _weight_map(path: Path, names: set[str]) -> dict[str, str]:
    """Every tensor and its file, compared with the index when there is one."""
    if INDEX_FILE in names:
        indexed = _indexed(read_json_object(path / INDEX_FILE))
        files = sorted(set(indexed.values()))
        missing = [name for name in files if name not in names]
        if missing:
            raise BrokenModelError(f"{printable(missing[0])} is missing")
    else:
        indexed = {}
        # These are the files that mlx-lm loads.
        files = sorted(n for n in names if n.startswith("model") and n.endswith(".safetensors"))
    if not files:
        raise BrokenModelError("it has no weights (model*.safetensors)")
    found = {tensor: name for name in files for tensor in read_tensor_names(path / name)}
    for tensor, name in indexed.items():
        if found.get(tensor) != name:
            raise BrokenModelError(f"tensor {printable(tensor)} is not in {printable(name)}")
    return found


def _indexed(index: Mapping[str, Any]) -> dict[str, str]:
    weight_map = index.get("weight_map")
    if not isinstance(weight_map, dict) or not weight_map:
        raise BrokenModelError(f"{INDEX_FILE} has no weight_map")
    for name in weight_map.values():
        if not isinstance(name, str) or "/" in name or not name.endswith(".safetensors"):
            raise BrokenModelError(f"{INDEX_FILE} names a file that is not a safetensors file")
    return weight_map


def chat_template(path: Path, names: set[str]) -> str | None:
    """The template among these files. Raises BrokenModelError or OSError."""
    if "chat_template.jinja" in names:
        return (path / "chat_template.jinja").read_text(encoding="utf-8", errors="replace")
    if "tokenizer_config.json" not in names:
        return None
    template = read_json_object(path / "tokenizer_config.json").get("chat_template")
    return template if isinstance(template, str) else None


def read_json_object(path: Path) -> dict[str, Any]:
    """The object in a JSON file of bounded size. Raises BrokenModelError or OSError."""
    if path.stat().st_size > MAX_JSON_BYTES:
        raise BrokenModelError(f"{path.name} is too large")
    try:
        content = json.loads(path.read_bytes())
    except (ValueError, RecursionError) as error:
        raise BrokenModelError(f"{path.name} is not JSON") from error
    if not isinstance(content, dict):
        raise BrokenModelError(f"{path.name} is not a JSON object")
    return content
