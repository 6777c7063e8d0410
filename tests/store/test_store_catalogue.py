"""Cards as the API lists them."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import jsonschema
import pytest

from skulkd.settings.paths import Paths
from skulkd.store.cards.catalogue import load_cards
from skulkd.store.cards.model_list import model_entry, model_list, resolve_capabilities
from skulkd.wire.base import Memory
from skulkd.wire.cards import (
    ModalitiesCardConfig,
    ModelCard,
    ReasoningCardConfig,
    RuntimeCapabilityCardConfig,
    ToolingCardConfig,
    VisionCardConfig,
)

OPENAPI = json.loads((Path(__file__).parents[1] / "data" / "openapi.json").read_text())


def a_card(model_id: str = "org/name", **changes: Any) -> ModelCard:
    return ModelCard(
        model_id=model_id,
        **{
            "storage_size": Memory.of(729808896),
            "n_layers": 16,
            "hidden_size": 2048,
            "supports_tensor": False,
            "tasks": ["TextGeneration"],
            **changes,
        },
    )


def test_the_list_fits_the_published_schema(paths: Paths) -> None:
    answer = model_list(load_cards(paths).cards, 1767323045).model_dump(mode="json")
    schema = {"$ref": "#/components/schemas/ModelList", "components": OPENAPI["components"]}
    jsonschema.validate(answer, schema)
    assert len(answer["data"]) >= 25
    assert {entry["created"] for entry in answer["data"]} == {1767323045}


def test_an_entry_repeats_the_card() -> None:
    entry = model_entry(
        a_card("org/Llama-1B-4bit", quantization="4bit", base_model="Llama 1B", is_custom=True), 5
    )
    assert (entry.id, entry.hugging_face_id, entry.name) == (
        "org/Llama-1B-4bit", "org/Llama-1B-4bit", "Llama-1B-4bit",
    )  # fmt: skip
    assert (entry.object, entry.owned_by, entry.created) == ("model", "skulk", 5)
    assert entry.storage_size_megabytes == 696
    assert entry.description == "Llama 1B, 4bit, 16 layers, 0.7 GiB"
    assert entry.is_custom
    assert (entry.reasoning, entry.modalities, entry.tooling, entry.runtime) == (None,) * 4


def test_sections_of_the_card_are_passed_on() -> None:
    entry = model_entry(
        a_card(
            reasoning=ReasoningCardConfig(supports_budget=True),
            modalities=ModalitiesCardConfig(supports_audio_input=True),
            tooling=ToolingCardConfig(builtin_tools=["web_search"]),
            runtime=RuntimeCapabilityCardConfig(output_parser="gemma4", mtp_heads=True),
        ),
        0,
    )
    assert entry.reasoning is not None
    assert entry.reasoning.supports_budget
    assert entry.modalities is not None
    assert entry.modalities.supports_audio_input
    assert entry.tooling is not None
    assert entry.tooling.builtin_tools == ["web_search"]
    assert entry.runtime is not None
    assert entry.runtime.model_dump() == {"prompt_renderer": None, "output_parser": "gemma4"}


@pytest.mark.parametrize(
    ("card", "tags"),
    [
        (a_card(), []),
        (a_card("org/x-OptiQ-4bit"), ["optiq"]),
        (a_card(quantization="optiq-4"), ["optiq"]),
        (a_card(supports_tensor=True, capabilities=["thinking"]), ["thinking", "tensor"]),
        (a_card(vision=VisionCardConfig()), ["vision"]),
        (a_card(tasks=["TextEmbedding"]), ["embedding"]),
        (
            a_card("org/Qwen3-VL", capabilities=["vision"], supports_tensor=True),
            ["thinking", "vision", "tensor"],
        ),
    ],
)
def test_tags_come_in_a_fixed_order(card: ModelCard, tags: list[str]) -> None:
    assert model_entry(card, 0).tags == tags


@pytest.mark.parametrize(
    ("card", "expected"),
    [
        (a_card("org/Some-Model"), {"family": "some", "thinking_format": "none"}),
        (a_card("org/Some-Model", family="llama"), {"family": "llama"}),
        (a_card(capabilities=["thinking"]), {"supports_thinking": True}),
        (a_card(capabilities=["thinking"]), {"supports_thinking_toggle": False}),
        (a_card(capabilities=["thinking_toggle"]), {"supports_thinking_toggle": True}),
        (
            a_card("org/gemma-4-12B"),
            {
                "supports_thinking": True,
                "supports_thinking_toggle": True,
                "thinking_format": "channel_delimited",
                "prompt_renderer": "gemma4",
                "output_parser": "gemma4",
                "tool_call_format": "gemma4",
                "supports_tool_calling": True,
            },
        ),
        (
            a_card("org/DeepSeek-V3.2-4bit"),
            {"prompt_renderer": "dsml", "output_parser": "deepseek_v32", "supports_thinking": True},
        ),
        (
            a_card("org/gpt-oss-20b"),
            {"output_parser": "gpt_oss", "supports_tool_calling": True, "supports_thinking": False},
        ),
        (
            a_card("org/Qwen3-8B"),
            {"supports_thinking_toggle": True, "thinking_format": "token_delimited"},
        ),
        (a_card("org/Qwen3-Coder-30B"), {"supports_thinking": False}),
        (
            a_card("org/Qwen3-8B", reasoning=ReasoningCardConfig(supports_toggle=False)),
            {"supports_thinking": True, "supports_thinking_toggle": False},
        ),
        (
            a_card("org/Qwen3-VL-4B", reasoning=ReasoningCardConfig(format="none")),
            {"supports_thinking": False, "supports_thinking_toggle": False},
        ),
        (
            a_card("org/gpt-oss", tooling=ToolingCardConfig(supports_tool_calling=False)),
            {"supports_tool_calling": False},
        ),
        (
            a_card(modalities=ModalitiesCardConfig(supports_native_multimodal=True)),
            {"supports_image_input": True, "supports_native_multimodal": True},
        ),
        (
            a_card(reasoning=ReasoningCardConfig(default_effort="high", supports_budget=True)),
            {
                "default_reasoning_effort": "high",
                "disabled_reasoning_effort": "none",
                "supports_thinking_budget": True,
            },
        ),
    ],
)
def test_gaps_are_filled_by_card_then_family_then_rule(
    card: ModelCard, expected: dict[str, object]
) -> None:
    resolved = resolve_capabilities(card).model_dump()
    assert {key: resolved[key] for key in expected} == expected
