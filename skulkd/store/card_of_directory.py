"""The card of a model that is on disk: the one it brought along, else one made from its files."""

from skulkd.store.card_from_config import card_from_config
from skulkd.store.card_toml import card_from_toml
from skulkd.store.errors import StoreError
from skulkd.store.library import LocalModel
from skulkd.store.model_documents import CARD_FILE
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
