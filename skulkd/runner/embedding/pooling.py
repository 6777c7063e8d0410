"""From hidden states to one vector per row, as the model's own files say.

`modules.json` lists the steps after the model; the pooling step has a `config.json` of its own.
"""

import json
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

import mlx.core as mx

from skulkd.runner.errors import BadModel

Mode = Literal["cls", "mean", "max", "lasttoken", "mean_sqrt_len_tokens"]
_MODES: dict[str, Mode] = {
    "pooling_mode_cls_token": "cls",
    "pooling_mode_max_tokens": "max",
    "pooling_mode_mean_tokens": "mean",
    "pooling_mode_mean_sqrt_len_tokens": "mean_sqrt_len_tokens",
    "pooling_mode_lasttoken": "lasttoken",
}
_EPSILON = 1e-12


@dataclass(frozen=True, slots=True)
class Pooling:
    """`modes` are computed each and joined; `normalize`: vectors have the length 1."""

    modes: tuple[Mode, ...]
    normalize: bool

    def pool(self, hidden: mx.array, mask: mx.array) -> mx.array:
        """One row per row. `mask` is 1 where a row has a token; tokens are on the left."""
        rows = [_POOL[mode](hidden, mask[:, :, None]) for mode in self.modes]
        return rows[0] if len(rows) == 1 else mx.concatenate(rows, axis=-1)

    def finish(self, pooled: mx.array, dimensions: int | None) -> mx.array:
        """Cut to `dimensions` first, so that a shorter vector has the same length 1."""
        cut = pooled if dimensions is None else pooled[:, :dimensions]
        if not self.normalize:
            return cut
        return cut / mx.maximum(mx.linalg.norm(cut, axis=-1, keepdims=True), _EPSILON)


def read_pooling(directory: Path, default: Pooling) -> Pooling:
    """`default` for a directory without `modules.json`. Raises BadModel."""
    path = directory / "modules.json"
    if not path.is_file():
        return default
    modules = _read(path)
    if not isinstance(modules, list):
        raise BadModel(f"{path} is not a list")
    modes: tuple[Mode, ...] = ()
    normalize = False
    for module in modules:
        kind, where = _module(path, module)
        if kind == "Pooling":
            modes = _pooling_modes(directory / where / "config.json")
        elif kind == "Normalize":
            normalize = True
        elif kind != "Transformer":
            raise BadModel(f"{path}: step {kind} is not supported")
    return Pooling(modes or default.modes, normalize)


def max_sequence(directory: Path) -> int | None:
    """The longest input that the model was made for, if its files say so. Raises BadModel."""
    path = directory / "sentence_bert_config.json"
    content = _read(path) if path.is_file() else {}
    value = content.get("max_seq_length") if isinstance(content, dict) else None
    return value if isinstance(value, int) and value > 0 else None


def _module(path: Path, module: Any) -> tuple[str, str]:
    """The last part of its type, and its directory."""
    match module:
        case {"type": str(kind), "path": str(where)} if ".." not in Path(where).parts:
            return kind.rpartition(".")[2], where.lstrip("/")
    raise BadModel(f"{path} has a step without type and path")


def _pooling_modes(path: Path) -> tuple[Mode, ...]:
    content = _read(path)
    if not isinstance(content, dict):
        raise BadModel(f"{path} is not an object")
    wanted = {key for key, value in content.items() if key.startswith("pooling_mode_") and value}
    if unknown := sorted(wanted - set(_MODES)):
        raise BadModel(f"{path}: {unknown[0]} is not supported")
    modes = tuple(mode for key, mode in _MODES.items() if key in wanted)
    if not modes:
        raise BadModel(f"{path} names no pooling mode")
    return modes


def _read(path: Path) -> Any:
    try:
        return json.loads(path.read_text(encoding="utf-8"))
    except OSError as error:
        raise BadModel(f"cannot read {path}: {error.strerror}") from error
    except ValueError as error:
        raise BadModel(f"{path} is not JSON: {error}") from error


def _sum(hidden: mx.array, mask: mx.array) -> mx.array:
    return (hidden * mask).sum(axis=1)


def _last(hidden: mx.array, mask: mx.array) -> mx.array:
    last = mask.sum(axis=1, keepdims=True).astype(mx.int32) - 1
    return mx.take_along_axis(hidden, last, axis=1)[:, 0]


_POOL: dict[Mode, Callable[[mx.array, mx.array], mx.array]] = {
    "cls": lambda hidden, _mask: hidden[:, 0],
    "mean": lambda hidden, mask: _sum(hidden, mask) / mask.sum(axis=1),
    "mean_sqrt_len_tokens": lambda hidden, mask: _sum(hidden, mask) / mx.sqrt(mask.sum(axis=1)),
    "max": lambda hidden, mask: mx.where(mask > 0, hidden, -mx.inf).max(axis=1),
    "lasttoken": _last,
}
