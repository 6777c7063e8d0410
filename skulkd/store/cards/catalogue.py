"""The catalogue of model cards: built-in ones, the operator's own, and those of local models.

A card that cannot be read is a warning and never hides the others. Blocking.
"""

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from difflib import get_close_matches
from importlib.resources import files
from importlib.resources.abc import Traversable
from pathlib import Path
from typing import Literal

from skulkd.settings.files import write_atomic
from skulkd.settings.paths import Paths
from skulkd.settings.problems import Problem, printable
from skulkd.store.cards.from_config import card_from_config
from skulkd.store.cards.toml import card_from_toml, card_to_toml
from skulkd.store.errors import BadCardError, FileAccessError, StoreError, UnknownModelError
from skulkd.store.library import LocalModel, ModelLibrary
from skulkd.store.model_directory import CARD_FILE
from skulkd.store.model_ids import directory_name
from skulkd.wire.cards import ModelCard

MAX_CARD_BYTES = 256 * 1024
_MAX_SUGGESTIONS = 3
_MAX_SUGGEST_LENGTH = 200

CardOrigin = Literal["builtin", "imported", "custom", "elsewhere"]


@dataclass(frozen=True, slots=True)
class CardEntry:
    """A card and where it comes from. `file` is None for cards made from a `config.json`."""

    card: ModelCard
    origin: CardOrigin
    file: Path | None = None


@dataclass(frozen=True, slots=True)
class CardCatalogue:
    """All cards at one moment, by model id."""

    entries: Mapping[str, CardEntry]
    warnings: tuple[Problem, ...] = ()

    @property
    def cards(self) -> list[ModelCard]:
        """Every card, by id."""
        return [self.entries[model_id].card for model_id in sorted(self.entries)]

    def with_others(self, cards: Iterable[ModelCard]) -> "CardCatalogue":
        """The same, with cards of models that only other nodes have."""
        new: dict[str, CardEntry] = {
            card.model_id: CardEntry(card, "elsewhere")
            for card in cards
            if card.model_id not in self.entries
        }
        return CardCatalogue({**self.entries, **new}, self.warnings) if new else self

    def get(self, model_id: str) -> ModelCard | None:
        entry = self.entries.get(model_id)
        return None if entry is None else entry.card

    def require(self, model_id: str) -> ModelCard:
        """The card of this id. Raises UnknownModelError that suggests similar ids."""
        card = self.get(model_id)
        if card is None:
            similar = self.suggest(model_id)
            hint = f"did you mean {' or '.join(similar)}?" if similar else None
            raise UnknownModelError(f'unknown model "{printable(model_id)}"', hint=hint)
        return card

    def suggest(self, text: str) -> list[str]:
        """Ids similar to `text`, the closest first; the organisation may be omitted."""
        by_spelling: dict[str, str] = {}
        for model_id in sorted(self.entries):
            by_spelling[model_id.lower()] = model_id
            by_spelling.setdefault(model_id.rpartition("/")[2].lower(), model_id)
        text = text.lower()[:_MAX_SUGGEST_LENGTH]
        close = get_close_matches(text, by_spelling, n=2 * _MAX_SUGGESTIONS, cutoff=0.6)
        return list(dict.fromkeys(by_spelling[match] for match in close))[:_MAX_SUGGESTIONS]

    def smaller_variants(self, card: ModelCard) -> list[ModelCard]:
        """The same base model in fewer bytes, the largest first."""
        if not card.base_model:
            return []
        size = card.storage_size.in_bytes
        variants = [
            other
            for other in self.cards
            if other.base_model == card.base_model and other.storage_size.in_bytes < size
        ]
        return sorted(variants, key=lambda other: -other.storage_size.in_bytes)


def load_cards(paths: Paths, library: ModelLibrary | None = None) -> CardCatalogue:
    """Read every card. The operator's card wins over the model's own, that over the built-in one.

    Without `library` the models of the models directory are read.
    """
    found = library or ModelLibrary(paths, {})
    entries: dict[str, CardEntry] = {}
    warnings: list[Problem] = []
    for source in (_builtin(), _imported(found.list()), _custom(paths.custom_cards)):
        for item in source:
            if isinstance(item, CardEntry):
                entries[item.card.model_id] = item
            else:
                warnings += item
    return CardCatalogue(entries, tuple(warnings))


def save_custom_card(paths: Paths, card: ModelCard) -> CardEntry:
    """Save a card of the operator. Raises FileAccessError."""
    file = paths.custom_cards / f"{directory_name(card.model_id)}.toml"
    try:
        file.parent.mkdir(parents=True, exist_ok=True)
        write_atomic(file, card_to_toml(card).encode())
    except OSError as error:
        raise FileAccessError.of(error, file) from error
    return CardEntry(card.model_copy(update={"is_custom": True}), "custom", file)


def delete_custom_card(catalogue: CardCatalogue, model_id: str) -> None:
    """Delete the operator's card of this id. Raises UnknownModelError or FileAccessError."""
    entry = catalogue.entries.get(model_id)
    if entry is None or entry.origin != "custom" or entry.file is None:
        raise UnknownModelError("Custom model card not found")
    try:
        entry.file.unlink(missing_ok=True)
    except OSError as error:
        raise FileAccessError.of(error, entry.file) from error


# A card, or what is wrong with one.
_Loaded = Iterator[CardEntry | tuple[Problem, ...]]


def _builtin() -> _Loaded:
    folder = files("skulkd.store.cards") / "builtin"
    for file in sorted(folder.iterdir(), key=lambda file: file.name):
        if file.name.endswith(".toml"):
            yield _load(file, file.name, "builtin")


def _custom(folder: Path) -> _Loaded:
    for file in sorted(folder.rglob("*.toml")):
        yield _load(file, str(file), "custom")


def _imported(models: Iterable[LocalModel]) -> _Loaded:
    for model in models:
        yield from _model_cards(model)


def card_of_model(model: LocalModel) -> ModelCard | None:
    """The card in the model's directory, else one made from its files; None if neither works."""
    found = [item for item in _model_cards(model) if isinstance(item, CardEntry)]
    return found[0].card if found else None


def _model_cards(model: LocalModel) -> _Loaded:
    """The card of a model, after the problems of its own card if that cannot be used."""
    file = model.path / CARD_FILE
    if file.is_file():
        loaded = _load(file, str(file), "imported")
        # A copied directory may contain the card of another model.
        if isinstance(loaded, CardEntry) and loaded.card.model_id != model.model_id:
            message = f"the directory is that of {model.model_id}, the card is of another model"
            loaded = (Problem(message, key="model_id", source=str(file)),)
        yield loaded
        if isinstance(loaded, CardEntry):
            return
    directory = model.directory
    try:
        card = card_from_config(
            model.model_id,
            directory.config,
            model.weight_bytes,
            directory.chat_template,
            embeds=directory.embeds,
        )
    except StoreError as error:
        yield (Problem(error.message, source=str(model.path)),)
    else:
        yield CardEntry(card, "imported")


def _load(
    file: Path | Traversable, source: str, origin: CardOrigin
) -> CardEntry | tuple[Problem, ...]:
    try:
        with file.open("rb") as stream:
            raw = stream.read(MAX_CARD_BYTES + 1)
        if len(raw) > MAX_CARD_BYTES:
            return (Problem("too large for a model card", source=source),)
        card = card_from_toml(raw.decode(), source)
    except BadCardError as error:
        return error.problems
    except UnicodeDecodeError:
        return (Problem("not UTF-8 text", source=source),)
    except OSError as error:
        return (Problem(f"cannot be read: {error.strerror}", source=source),)
    if origin == "custom":
        card = card.model_copy(update={"is_custom": True})
    return CardEntry(card, origin, file if isinstance(file, Path) else None)
