"""The small files of a model directory: their names, and how they are written."""

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from skulkd.settings.files import write_atomic
from skulkd.store.card_toml import card_to_toml
from skulkd.wire.cards import ModelCard

CARD_FILE = "card.toml"
CONFIG_FILE = "config.json"
INDEX_FILE = "model.safetensors.index.json"
WEIGHTS_FILE = "model.safetensors"


def write_json(path: Path, content: Mapping[str, Any]) -> None:
    """Write a document that people may read too."""
    write_atomic(path, json.dumps(content, indent=2, ensure_ascii=False).encode() + b"\n")


def write_index(directory: Path, weight_map: Mapping[str, str], size_bytes: int) -> None:
    """Which tensor is in which file; loading a part of the model needs it."""
    content = {"metadata": {"total_size": size_bytes}, "weight_map": dict(weight_map)}
    write_json(directory / INDEX_FILE, content)


def write_card(directory: Path, card: ModelCard) -> None:
    write_atomic(directory / CARD_FILE, card_to_toml(card).encode())
