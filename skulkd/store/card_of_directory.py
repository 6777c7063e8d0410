"""The card of a model that is on disk: the one it brought along, else one made from its files."""

from pathlib import Path
from typing import Any

from skulkd.store.card_from_config import card_from_config
from skulkd.store.card_toml import card_from_toml
from skulkd.store.errors import BrokenModelError, FileAccessError, StoreError
from skulkd.store.library import LocalModel
from skulkd.store.model_directory import read_json_object
from skulkd.store.model_documents import CARD_FILE, CONFIG_FILE, INDEX_FILE
from skulkd.wire.cards import ModelCard


def card_of(model: LocalModel) -> ModelCard | None:
    """None when neither can be used. Blocking."""
    own = _own_card(model)
    return _made_card(model) if own is None else own


def _own_card(model: LocalModel) -> ModelCard | None:
    file = model.path / CARD_FILE
    try:
        card = card_from_toml(file.read_text(encoding="utf-8"), str(file))
    except (OSError, UnicodeDecodeError, StoreError):
        return None
    # A copied directory may carry the card of another model.
    return card if card.model_id == model.model_id else None


def _made_card(model: LocalModel) -> ModelCard | None:
    directory = model.directory
    try:
        return card_from_config(
            model.model_id, directory.config, model.weight_bytes, directory.chat_template
        )
    except StoreError:
        return None


def card_of_config(directory: Path, model_id: str) -> ModelCard | None:
    """A card for a model whose weights need not be here; None when there is no config.json.

    Blocking. Raises StoreError when the files do not say what a card needs.
    """
    try:
        if not (directory / CONFIG_FILE).is_file():
            return None
        config = read_json_object(directory / CONFIG_FILE)
        size_bytes = _stated_bytes(directory) or _weight_bytes(directory)
    except OSError as error:
        raise FileAccessError.of(error, directory) from error
    if size_bytes == 0:
        raise BrokenModelError(
            f"{directory} has a {CONFIG_FILE}, but neither weights nor a {INDEX_FILE}"
            " that says how large they are"
        )
    return card_from_config(model_id, config, size_bytes)


def _stated_bytes(directory: Path) -> int:
    """What the index says all weights have together; 0 when it does not."""
    if not (directory / INDEX_FILE).is_file():
        return 0
    metadata: Any = read_json_object(directory / INDEX_FILE).get("metadata")
    total = metadata.get("total_size") if isinstance(metadata, dict) else None
    return total if isinstance(total, int) and total > 0 else 0


def _weight_bytes(directory: Path) -> int:
    return sum(file.stat().st_size for file in directory.glob("*.safetensors"))
