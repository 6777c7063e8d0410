"""Model cards: text, files, catalogue, and cards made from a configuration."""

from __future__ import annotations

import json
import tomllib
from pathlib import Path
from typing import Any, TypeVar

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from skulkd.settings.paths import Paths
from skulkd.store.cards.catalogue import (
    card_from_toml,
    card_to_toml,
    delete_custom_card,
    load_cards,
    save_custom_card,
)
from skulkd.store.cards.from_config import base_model_name, card_from_config
from skulkd.store.errors import BadCardError, BrokenModelError, UnknownModelError
from skulkd.store.imports.tiny_model import TINY_MODEL_ID, make_tiny_model
from skulkd.store.library import ModelLibrary
from skulkd.wire.base import Memory
from skulkd.wire.cards import (
    ComponentInfo,
    ModelCard,
    PlacementCardConfig,
    ReasoningCardConfig,
    RuntimeCapabilityCardConfig,
    ToolingCardConfig,
    VisionCardConfig,
)

Model = TypeVar("Model")

DATA = Path(__file__).parents[1] / "data"
MINIMAL = """\
model_id = "org/name"
n_layers = 16
hidden_size = 2048
supports_tensor = true
tasks = ["TextGeneration"]
[storage_size]
in_bytes = 729808896
"""
LLAMA = {
    "architectures": ["LlamaForCausalLM"],
    "model_type": "llama",
    "num_hidden_layers": 16,
    "hidden_size": 2048,
    "num_attention_heads": 32,
    "num_key_value_heads": 8,
    "max_position_embeddings": 131072,
    "quantization": {"group_size": 64, "bits": 4},
}

texts = st.text(max_size=8)
memory = st.builds(Memory.of, st.integers(0, 2**60))


def models(kind: type[Model], **fields: st.SearchStrategy[Any]) -> st.SearchStrategy[Model]:
    return st.fixed_dictionaries({}, optional=fields).map(lambda values: kind(**values))


components = st.fixed_dictionaries(
    {
        "component_name": texts,
        "component_path": texts,
        "storage_size": memory,
        "can_shard": st.booleans(),
        "n_layers": st.none() | st.integers(1, 9),
    }
).map(lambda values: ComponentInfo(**values))
cards = st.fixed_dictionaries(
    {
        "model_id": st.sampled_from(["org/name", "a/b-4bit"]),
        "storage_size": memory,
        "n_layers": st.integers(1, 200),
        "hidden_size": st.integers(1, 10**6),
        "supports_tensor": st.booleans(),
        "tasks": st.lists(st.sampled_from(["TextGeneration", "TextEmbedding"]), max_size=2),
    },
    optional={
        "num_key_value_heads": st.integers(1, 128),
        "components": st.lists(components, min_size=1, max_size=3),
        "family": texts,
        "gguf_file": texts,
        "capabilities": st.lists(texts, max_size=3),
        "context_length": st.integers(0, 2**40),
        "trust_remote_code": st.booleans(),
        "vision": models(VisionCardConfig, image_token=texts, image_token_id=st.integers(0, 9)),
        "reasoning": models(ReasoningCardConfig, format=st.just("none")),
        "tooling": models(ToolingCardConfig, builtin_tools=st.just(["web_search"])),
        "runtime": models(RuntimeCapabilityCardConfig, mtp_max_depth=st.integers(0, 3)),
        "placement": models(
            PlacementCardConfig,
            min_vram_gib=st.floats(0, 1e6),
            backend_preference=st.lists(texts, max_size=2),
        ),
    },
).map(lambda values: ModelCard(**values))


@settings(deadline=None)
@given(cards)
def test_a_card_survives_its_text(card: ModelCard) -> None:
    found = card_from_toml(card_to_toml(card), "x.toml")
    if card.vision is not None:
        card = card.model_copy(
            update={"vision": card.vision.model_copy(update={"weights_repo": card.model_id})}
        )
    assert found == card


def test_the_minimal_card_has_the_defaults() -> None:
    card = card_from_toml(MINIMAL, "x.toml")
    assert card.storage_size.in_bytes == 729808896
    assert (card.context_length, card.num_key_value_heads, card.is_custom) == (0, None, False)
    assert card.placement.compatible_backends == ["mlx"]


def test_is_custom_is_neither_read_nor_written() -> None:
    card = card_from_toml("is_custom = true\n" + MINIMAL, "x.toml")
    assert not card.is_custom
    written = card_to_toml(card.model_copy(update={"is_custom": True}))
    assert "is_custom" not in tomllib.loads(written)


def test_an_empty_weights_repo_means_the_model_itself() -> None:
    card = card_from_toml(MINIMAL + "[vision]\nimage_token_id = 5\n", "x.toml")
    assert card.vision == VisionCardConfig(image_token_id=5, weights_repo="org/name")


@pytest.mark.parametrize(
    ("change", "problem"),
    [
        (("n_layers = 16", "n_layers = 0"), "x.toml: n_layers: Input should be greater than 0"),
        (("n_layers = 16", ""), "x.toml: n_layers: this key is required"),
        (("n_layers = 16", 'n_layers = "16"'), "x.toml: n_layers: Input should be a valid integer"),
        (("n_layers", "n_layer"), "n_layer: unknown key (value ?); did you mean n_layers?"),
        (("in_bytes = 7", "in_byte = 7"), "x.toml: storage_size.in_byte: unknown key"),
        (("[storage_size]\nin_bytes", "storage_size"), "x.toml: storage_size: Input should be"),
        (("TextGeneration", "Chess"), "x.toml: tasks.0: Input should be 'TextGeneration'"),
        (("org/name", "../name"), 'x.toml: model_id: model id "../name" cannot be used'),
        (("= 2048", "= = 2048"), "x.toml: not TOML: Invalid value (at line 3"),
    ],
)
def test_a_broken_card_names_file_and_key(change: tuple[str, str], problem: str) -> None:
    with pytest.raises(BadCardError) as caught:
        card_from_toml(MINIMAL.replace(*change), "x.toml")
    assert problem.replace(" (value ?)", "") in caught.value.message


def test_deep_nesting_is_a_problem_and_no_crash() -> None:
    with pytest.raises(BadCardError, match="not TOML"):
        card_from_toml("a = " + "[" * 100_000, "x.toml")


def test_the_shipped_cards_are_sound(paths: Paths) -> None:
    catalogue = load_cards(paths)
    assert catalogue.warnings == ()
    assert len(catalogue.cards) >= 135
    families = {card.family for card in catalogue.cards}
    assert families >= {
        "llama", "qwen", "gemma", "mistral", "phi", "deepseek", "gpt-oss", "glm", "smollm",
    }  # fmt: skip
    for card in catalogue.cards:
        assert card.base_model
        assert card.family
        assert "/" in card.model_id
        assert card.capabilities
        assert card.storage_size.in_bytes >= 8 * 10**7


def test_every_model_of_the_reference_has_a_card_with_its_facts(paths: Paths) -> None:
    catalogue = load_cards(paths)
    facts = json.loads((DATA / "reference_models.json").read_text())
    assert len(facts) == 100
    for model_id, layers, hidden, kv_heads, size, tensor in facts:
        card = catalogue.require(model_id)
        found = (card.n_layers, card.hidden_size, card.num_key_value_heads)
        assert found == (layers, hidden, kv_heads), model_id
        assert (card.storage_size.in_bytes, card.supports_tensor) == (size, tensor), model_id


def test_sizes_agree_with_the_bits_of_the_label(paths: Paths) -> None:
    """An 8-bit variant has 8.5 / 4.5 times the bytes of its 4-bit one, less what is not quantised.

    Every weight is quantised with one scale and bias for 64; some models keep parts in 16 bits.
    """
    catalogue = load_cards(paths)
    pairs = 0
    for card in catalogue.cards:
        for smaller in catalogue.smaller_variants(card):
            if (card.quantization, smaller.quantization) == ("8bit", "4bit"):
                ratio = card.storage_size.in_bytes / smaller.storage_size.in_bytes
                assert 1.5 < ratio < 1.1 * 8.5 / 4.5, card.model_id
                pairs += 1
    assert pairs >= 10


def test_one_broken_custom_card_hides_no_other(paths: Paths) -> None:
    folder = paths.custom_cards
    folder.mkdir(parents=True)
    (folder / "good.toml").write_text(MINIMAL)
    (folder / "bad.toml").write_text(MINIMAL.replace("n_layers = 16", "n_layers = -1"))
    (folder / "binary.toml").write_bytes(b"\xff\xfe")
    (folder / "huge.toml").write_text("#" * 300_000)
    (folder / "folder.toml").mkdir()
    catalogue = load_cards(paths)
    assert catalogue.require("org/name").is_custom
    assert len(catalogue.cards) > 25
    sources = [Path(problem.source or "").name for problem in catalogue.warnings]
    assert sources == ["bad.toml", "binary.toml", "folder.toml", "huge.toml"]
    assert catalogue.warnings[0].key == "n_layers"


def test_a_custom_card_wins_over_the_shipped_one_until_it_is_deleted(paths: Paths) -> None:
    shipped = load_cards(paths).require("mlx-community/Qwen3-4B-4bit")
    save_custom_card(paths, shipped.model_copy(update={"context_length": 77}))
    catalogue = load_cards(paths)
    mine = catalogue.require(shipped.model_id)
    assert (mine.context_length, mine.is_custom) == (77, True)
    delete_custom_card(catalogue, shipped.model_id)
    assert load_cards(paths).require(shipped.model_id) == shipped


@pytest.mark.parametrize("model_id", ["mlx-community/Qwen3-4B-4bit", "no/such"])
def test_only_custom_cards_can_be_deleted(paths: Paths, model_id: str) -> None:
    with pytest.raises(UnknownModelError, match="Custom model card not found"):
        delete_custom_card(load_cards(paths), model_id)


@pytest.mark.parametrize(
    ("text", "suggestion"),
    [
        ("mlx-community/Qwen3-4B-4bits", "mlx-community/Qwen3-4B-4bit"),
        ("qwen3-0.6b-4bit", "mlx-community/Qwen3-0.6B-4bit"),
        ("gpt-oss-20b", "mlx-community/gpt-oss-20b-MXFP4-Q8"),
    ],
)
def test_an_unknown_id_gets_suggestions(paths: Paths, text: str, suggestion: str) -> None:
    with pytest.raises(UnknownModelError) as caught:
        load_cards(paths).require(text)
    assert suggestion in (caught.value.hint or "")


def test_an_id_like_nothing_gets_no_suggestion(paths: Paths) -> None:
    catalogue = load_cards(paths)
    assert catalogue.suggest("zzzz/????") == []
    assert catalogue.suggest("x" * 100_000) == []


def test_smaller_variants_are_those_of_the_same_model_largest_first(paths: Paths) -> None:
    catalogue = load_cards(paths)
    card = catalogue.require("mlx-community/Qwen3-8B-8bit")
    smaller = catalogue.smaller_variants(card)
    assert [other.model_id for other in smaller] == ["mlx-community/Qwen3-8B-4bit"]
    assert catalogue.smaller_variants(smaller[0]) == []


def test_a_model_on_disk_brings_its_card(paths: Paths) -> None:
    path = make_tiny_model(paths.models)
    entry = load_cards(paths).entries[TINY_MODEL_ID]
    assert (entry.origin, entry.file) == ("imported", path / "card.toml")
    assert (entry.card.n_layers, entry.card.supports_tensor) == (8, True)


@pytest.mark.parametrize("content", [None, "n_layers = ", MINIMAL])
def test_a_model_without_a_usable_card_gets_one_from_its_configuration(
    paths: Paths, content: str | None
) -> None:
    file = make_tiny_model(paths.models) / "card.toml"
    expected = load_cards(paths).require(TINY_MODEL_ID)
    file.unlink()
    if content is not None:
        file.write_text(content)
    catalogue = load_cards(paths)
    assert catalogue.require(TINY_MODEL_ID).n_layers == expected.n_layers
    assert [problem.source for problem in catalogue.warnings] == [str(file)] * bool(content)


def test_a_model_with_an_unusable_configuration_is_a_warning(paths: Paths, tiny: Path) -> None:
    tiny.rename(tiny.with_name("odd--one"))
    odd = tiny.with_name("odd--one")
    (odd / "card.toml").unlink()
    (odd / "config.json").write_text('{"model_type": "llama"}')
    library = ModelLibrary(paths, {"SKULK_MODELS_PATH": str(odd.parent)})
    catalogue = load_cards(paths, library)
    assert catalogue.get("odd/one") is None
    assert [problem.source for problem in catalogue.warnings] == [str(odd)]


def test_a_configuration_becomes_a_card() -> None:
    card = card_from_config("mlx-community/Llama-3.2-1B-Instruct-4bit", LLAMA, 123, "{{ tools }}")
    assert card == ModelCard(
        model_id=card.model_id,
        storage_size=Memory.of(123),
        n_layers=16,
        hidden_size=2048,
        supports_tensor=True,
        num_key_value_heads=8,
        tasks=["TextGeneration"],
        family="llama",
        quantization="4bit",
        base_model="Llama 3.2 1B Instruct",
        capabilities=["text"],
        context_length=131072,
        trust_remote_code=False,
        tooling=ToolingCardConfig(supports_tool_calling=True),
    )


@pytest.mark.parametrize(
    ("change", "field", "expected"),
    [
        ({"architectures": ["MistralForCausalLM"]}, "supports_tensor", False),
        ({"architectures": ["LlamaForCausalLM", "Other"]}, "supports_tensor", False),
        ({"num_key_value_heads": None}, "num_key_value_heads", 32),
        ({"num_key_value_heads": [8, 4]}, "num_key_value_heads", None),
        ({"max_position_embeddings": None}, "context_length", 0),
        ({"text_config": {"num_hidden_layers": 9}}, "n_layers", 9),
        ({"num_hidden_layers": None, "n_layer": 7}, "n_layers", 7),
        ({"quantization": None, "torch_dtype": "bfloat16"}, "quantization", "bf16"),
        ({"quantization": {"mode": "mxfp4", "bits": 4}}, "quantization", "MXFP4"),
        ({"quantization": None}, "quantization", ""),
        ({"model_type": "qwen3_moe"}, "family", "qwen"),
        ({"model_type": "gpt_oss"}, "family", "gpt-oss"),
        ({"model_type": "new"}, "family", ""),
    ],
)
def test_each_key_of_a_configuration_is_understood(
    change: dict[str, Any], field: str, expected: object
) -> None:
    card = card_from_config("org/name", {**LLAMA, **change}, 1)
    assert getattr(card, field) == expected


def test_a_vision_configuration_gives_a_vision_card() -> None:
    config = {**LLAMA, "vision_config": {}, "image_token_id": 9, "boi_token_id": 4}
    card = card_from_config("org/name", config, 1)
    assert card.vision == VisionCardConfig(
        image_token_id=9, model_type="llama", weights_repo="org/name", boi_token_id=4
    )
    assert card.capabilities == ["text", "vision"]


def test_a_thinking_template_gives_thinking_capabilities() -> None:
    card = card_from_config("org/name", LLAMA, 1, "{% if enable_thinking %}<think>{% endif %}")
    assert card.capabilities == ["text", "thinking", "thinking_toggle"]


@pytest.mark.parametrize(
    ("change", "reason"),
    [
        ({"num_hidden_layers": None}, "num_hidden_layers is missing"),
        ({"hidden_size": 0}, "hidden_size: Input should be greater than 0"),
        ({"num_hidden_layers": "16"}, "n_layers: Input should be a valid integer"),
    ],
)
def test_a_configuration_without_sizes_is_refused(change: dict[str, Any], reason: str) -> None:
    with pytest.raises(BrokenModelError, match=reason):
        card_from_config("org/name", {**LLAMA, **change}, 1)


@pytest.mark.parametrize(
    ("model_id", "name"),
    [
        ("mlx-community/Qwen3-0.6B-8bit", "Qwen3 0.6B"),
        ("mlx-community/Qwen3.5-9B-MLX-4bit", "Qwen3.5 9B"),
        ("local/SmolLM2-135M-Instruct.Q4_1", "SmolLM2 135M Instruct"),
        ("x/model-bf16", "model"),
    ],
)
def test_quantisations_of_a_model_share_a_name(model_id: str, name: str) -> None:
    assert base_model_name(model_id) == name
