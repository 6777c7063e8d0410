"""A model directory: names of its files, writing the small ones, checking that it is complete.

The check reads configuration, index and the headers of the weights. Standard library only, so that
the daemon can do it.
"""

import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from skulkd.settings.files import write_atomic
from skulkd.settings.problems import printable
from skulkd.store.cards.toml import card_to_toml
from skulkd.store.errors import BrokenModelError, FileAccessError
from skulkd.store.safetensors_file import read_tensor_names
from skulkd.wire.cards import ModelCard

CARD_FILE = "card.toml"
CONFIG_FILE = "config.json"
INDEX_FILE = "model.safetensors.index.json"
MODULES_FILE = "modules.json"
"""In models that make embeddings: the steps after the model, and their directories."""
WEIGHTS_FILE = "model.safetensors"


def write_json(path: Path, content: Mapping[str, Any]) -> None:
    """Write JSON that people can read."""
    write_atomic(path, json.dumps(content, indent=2, ensure_ascii=False).encode() + b"\n")


def write_index(directory: Path, weight_map: Mapping[str, str], size_bytes: int) -> None:
    """Which tensor is in which file; loading a part of the model needs it."""
    content = {"metadata": {"total_size": size_bytes}, "weight_map": dict(weight_map)}
    write_json(directory / INDEX_FILE, content)


def write_card(directory: Path, card: ModelCard) -> None:
    write_atomic(directory / CARD_FILE, card_to_toml(card).encode())


MAX_JSON_BYTES = 64 * 1024**2
_TOKENIZERS = (
    ("tokenizer.json",), ("tokenizer.model",), ("tiktoken.model",), ("vocab.json", "merges.txt"),
)  # fmt: skip


@dataclass(frozen=True, slots=True)
class ModelDirectory:
    """A complete model."""

    path: Path
    config: Mapping[str, Any]
    weight_map: Mapping[str, str]
    """Tensor name to file name."""
    weight_bytes: int
    has_index: bool
    chat_template: str | None
    embeds: bool = False
    """Whether the files are those of a model that makes embeddings."""


def inspect_directory(path: Path) -> ModelDirectory:
    """Check a directory. Raises BrokenModelError that names what is missing or damaged."""
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
        module_configs(path)
    except OSError as error:
        raise FileAccessError.of(error, path) from error
    return ModelDirectory(
        path,
        config,
        weight_map,
        weight_bytes,
        INDEX_FILE in names,
        template,
        embeds=MODULES_FILE in names,
    )


def module_configs(path: Path) -> list[str]:
    """Relative paths of the configurations that `modules.json` needs. None without that file.

    Raises BrokenModelError and OSError.
    """
    file = path / MODULES_FILE
    if not file.is_file():
        return []
    modules = _read_json(file)
    if not isinstance(modules, list):
        raise BrokenModelError(f"{MODULES_FILE} is not a list")
    found = []
    for module in modules:
        match module:
            case {"type": str(kind), "path": str(name)} if "/" not in name and name[:1] != ".":
                config = f"{name}/{CONFIG_FILE}"
                if name and (path / config).is_file():
                    found.append(config)
                elif kind.endswith(".Pooling"):
                    raise BrokenModelError(f"{printable(config)} is missing")
            case _:
                raise BrokenModelError(f"{MODULES_FILE} names a directory that cannot be used")
    return found


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
    content = _read_json(path)
    if not isinstance(content, dict):
        raise BrokenModelError(f"{path.name} is not a JSON object")
    return content


def _read_json(path: Path) -> Any:
    if path.stat().st_size > MAX_JSON_BYTES:
        raise BrokenModelError(f"{path.name} is too large")
    try:
        return json.loads(path.read_bytes())
    except (ValueError, RecursionError) as error:
        raise BrokenModelError(f"{path.name} is not JSON") from error
