"""Walks the reference's OpenAPI document: what we implement of it agrees in both directions."""

from __future__ import annotations

import copy
import importlib
import json
import pkgutil
from collections.abc import Iterator
from functools import cache
from typing import Any, Literal, get_args, get_origin

import jsonschema
import pytest
from pydantic import BaseModel
from schema_samples import Plain, Sampler, plain_choices

import skulkd.wire
from skulkd.wire.base import TaggedModel
from tests.reference_schemas import REFERENCE, TAGGED, bare_name, with_tags

SCHEMAS: dict[str, dict[str, Any]] = REFERENCE["components"]["schemas"]

NOT_IMPLEMENTED = {
    "image generation is no part of the toolkit": {
        "AdvancedImageParams", "BenchImageGenerationResponse", "BenchImageGenerationTaskParams",
        "Body_bench_image_edits_bench_images_edits_post", "Body_image_edits_v1_images_edits_post",
        "ImageData", "ImageGenerationStats", "ImageGenerationTaskParams", "ImageListItem",
        "ImageListResponse",
    },
    "the adapters for other chat APIs bring their own models": {
        "ClaudeImageBlock", "ClaudeImageSource", "ClaudeMessage", "ClaudeMessagesRequest",
        "ClaudeTextBlock", "ClaudeThinkingBlock", "ClaudeThinkingConfig", "ClaudeToolDefinition",
        "ClaudeToolResultBlock", "ClaudeToolUseBlock", "FunctionCallInputItem",
        "FunctionCallOutputInputItem", "OllamaMessage", "OllamaModelDetails", "OllamaModelTag",
        "OllamaOptions", "OllamaPsModel", "OllamaPsResponse", "OllamaShowResponse",
        "OllamaTagsResponse", "OllamaToolCall", "OllamaToolFunction", "Reasoning",
        "ResponseInputImagePart", "ResponseInputMessage", "ResponseInputTextPart",
        "ResponseOutputTextPart", "ResponsesRequest",
    },
    "tools that fetch from the web for a client are no part of the toolkit": {
        "ExtractPageToolRequest", "ExtractPageToolResponse", "OpenUrlToolRequest",
        "OpenUrlToolResponse", "WebSearchResult", "WebSearchToolRequest", "WebSearchToolResponse",
    },
    "hub search comes with the model store": {"HuggingFaceSearchResult"},
    "no daemon here manages the remote access to its machine": {
        "LocalAccess", "RemoteAccessInfo", "TailscaleAccess", "TailscaleStatus",
    },
}  # fmt: skip

# Deliberate differences.
RENAMED = {"ValidationError": "ValidationErrorItem"}  # pydantic has the other name already
REORDERED = {"ValidationErrorItem"}  # the running reference writes `type` first
UNKNOWN_WHEN_ABSENT = {  # an absent key is "not measured" here, and zero in the reference
    ("SystemPerformanceProfile", "gpuUsage"),
    ("SystemPerformanceProfile", "temp"),
    ("SystemPerformanceProfile", "sysPower"),
    ("SystemPerformanceProfile", "pcpuUsage"),
    ("SystemPerformanceProfile", "ecpuUsage"),
}
ADDED = {  # optional keys that the reference's models do not have
    ("BenchChatCompletionRequest", "max_completion_tokens"),  # the reference ignores it
    ("ChatCompletionRequest", "max_completion_tokens"),
    ("CreateInstanceParams", "excluded_nodes"),  # for the day it has to move
    ("CreateInstanceParams", "only_nodes"),
    ("CreateInstanceResponse", "instance_id"),  # the reference lets clients guess it
    ("GenerationStats", "serving_batches"),  # newer harnesses than the document want them
    ("GenerationStats", "in_flight_at_admission"),
    ("PlaceInstanceParams", "only_nodes"),
    ("PlacementPreview", "effective_sharding"),  # what a row would really be and need
    ("PlacementPreview", "effective_instance_meta"),
    ("PlacementPreview", "context_token_limit"),
    ("PlacementPreview", "need_by_node"),
    ("PlacementPreview", "refusal"),
}
REPEATS_DROPPED = {  # a repeated name is dropped, not refused, in the reference as in ours
    ("PlacementCardConfig", "compatibleBackends"),
}
WIDER = {  # more is taken than the reference takes
    ("EmbeddingRequest", "input"),  # token ids, which OpenAI's clients send
}


def _wire_modules() -> list[Any]:
    names = [m.name for m in pkgutil.iter_modules(skulkd.wire.__path__, "skulkd.wire.")]
    return [importlib.import_module(name) for name in names]


def _models() -> dict[str, type[BaseModel]]:
    found: dict[str, type[BaseModel]] = {}
    for module in _wire_modules():
        for value in vars(module).values():
            is_model = isinstance(value, type) and issubclass(value, BaseModel)
            if is_model and value.__module__ == module.__name__:
                assert value.__name__ not in found, f"two models named {value.__name__}"
                found[value.__name__] = value
    return found


def _closed_sets() -> dict[str, tuple[str, ...]]:
    return {
        name: get_args(value)
        for module in _wire_modules()
        for name, value in vars(module).items()
        if get_origin(value) is Literal
    }


def _our_name(schema_name: str) -> str:
    return RENAMED.get(bare_name(schema_name), bare_name(schema_name))


MODELS = _models()
CLOSED_SETS = _closed_sets()
IMPLEMENTED_MODELS = [name for name in SCHEMAS if _our_name(name) in MODELS]
IMPLEMENTED_SETS = [name for name in SCHEMAS if _our_name(name) in CLOSED_SETS]


def _real_reference() -> dict[str, Any]:
    """The document with our deliberate differences worked in."""
    document: dict[str, Any] = copy.deepcopy(REFERENCE)
    schemas = document["components"]["schemas"]
    for schema in schemas.values():
        properties = schema.get("properties", {})
        for key, part in properties.items():
            properties[key] = with_tags(part)
    for owner, key in WIDER:
        taken = MODELS[owner].model_json_schema()["properties"][key]["anyOf"]
        theirs = schemas[owner]["properties"][key]["anyOf"]
        assert all(part in taken for part in theirs)
        schemas[owner]["properties"][key] = {"anyOf": taken}
    return document


REAL_REFERENCE = _real_reference()
REAL_SCHEMAS = REAL_REFERENCE["components"]["schemas"]


def _mode(schema_name: str) -> Literal["validation", "serialization"]:
    return "validation" if schema_name.endswith("-Input") else "serialization"


@cache
def _our_schema(schema_name: str) -> tuple[dict[str, Any], dict[str, Any]]:
    """Root document and the part that describes the fields."""
    model = MODELS[_our_name(schema_name)]
    root = model.model_json_schema(mode=_mode(schema_name))
    fields = root
    if "$ref" in root:
        fields = root["$defs"][root["$ref"].rsplit("/", 1)[1]]
    if issubclass(model, TaggedModel):
        fields = fields["properties"][model.__name__]
    return root, fields


def _canonical(part: dict[str, Any]) -> Any:
    """A schema part as plain data that is equal when the meaning is equal."""
    if "$ref" in part:
        name = _our_name(part["$ref"].rsplit("/", 1)[1])
        return ("set", frozenset(CLOSED_SETS[name])) if name in CLOSED_SETS else ("model", name)
    for union in ("anyOf", "oneOf"):
        if union in part:
            return ("union", frozenset(_branches(part[union])))
    if "const" in part or "enum" in part:
        return ("set", frozenset(part.get("enum", [part.get("const")])))
    limits = ("minimum", "maximum", "exclusiveMinimum", "exclusiveMaximum", "format", "uniqueItems")
    found: list[Any] = [(key, part[key]) for key in limits if key in part]
    if "items" in part:
        found.append(("items", _canonical(part["items"])))
    if isinstance(part.get("additionalProperties"), dict):
        found.append(("values", _canonical(part["additionalProperties"])))
    return (part.get("type"), *found)


def _branches(parts: list[dict[str, Any]]) -> Iterator[Any]:
    for part in map(_canonical, parts):
        if part[0] == "union":
            yield from part[1]
        else:
            yield part


def _expected(owner: str, key: str, part: dict[str, Any]) -> Any:
    if (owner, key) in REPEATS_DROPPED:
        part = {name: value for name, value in part.items() if name != "uniqueItems"}
    if (owner, key) in WIDER:
        part = REAL_SCHEMAS[owner]["properties"][key]
    return _canonical(part)


def _parse(name: str, sample: Any) -> BaseModel:
    return MODELS[_our_name(name)].model_validate_json(json.dumps(sample))


def _dump(model: BaseModel) -> Any:
    dumped = json.loads(model.model_dump_json())
    return dumped[type(model).__name__] if isinstance(model, TaggedModel) else dumped


def _keeps(whole: Any, part: Any) -> bool:
    """Whether everything in `part` is in `whole`, which may say more (defaults)."""
    if isinstance(part, dict):
        return all(key in whole and _keeps(whole[key], value) for key, value in part.items())
    if isinstance(part, list):
        return len(whole) == len(part) and all(map(_keeps, whole, part))
    return bool(whole == part)


@cache
def _reference_validator(name: str) -> jsonschema.Draft202012Validator:
    return jsonschema.Draft202012Validator(
        {"$ref": f"#/components/schemas/{name}", "components": REAL_REFERENCE["components"]}
    )


def _check_against_reference(name: str, value: Any) -> None:
    error = jsonschema.exceptions.best_match(_reference_validator(name).iter_errors(value))
    assert error is None, error


def test_every_schema_is_implemented_or_left_out_for_a_reason() -> None:
    left_out = set().union(*NOT_IMPLEMENTED.values())
    implemented = set(IMPLEMENTED_MODELS + IMPLEMENTED_SETS)
    assert not left_out & implemented
    assert left_out | implemented == set(SCHEMAS)


def test_tables_of_differences_name_things_that_differ() -> None:
    ours = {owner: _our_schema(owner)[1]["properties"] for owner in IMPLEMENTED_MODELS}
    differing = {
        (_our_name(owner), key)
        for owner in IMPLEMENTED_MODELS
        for key, part in SCHEMAS[owner]["properties"].items()
        if _canonical(part) != _canonical(ours[owner][key])
    }
    assert differing == REPEATS_DROPPED | WIDER
    added = {
        (_our_name(owner), key)
        for owner in IMPLEMENTED_MODELS
        for key in ours[owner].keys() - SCHEMAS[owner]["properties"].keys()
    }
    assert added == ADDED
    assert {_our_name(name) for name in IMPLEMENTED_MODELS} >= set(RENAMED.values())
    implemented = {_our_name(name) for name in IMPLEMENTED_MODELS}
    tagged = {name for name in implemented if issubclass(MODELS[name], TaggedModel)}
    assert tagged == TAGGED


@pytest.mark.parametrize("name", IMPLEMENTED_SETS)
def test_closed_set_has_the_same_members_in_the_same_order(name: str) -> None:
    assert list(CLOSED_SETS[name]) == SCHEMAS[name]["enum"]


@pytest.mark.parametrize("name", IMPLEMENTED_MODELS)
def test_model_has_the_same_keys_needs_types_and_defaults(name: str) -> None:
    theirs = SCHEMAS[name]
    _, ours = _our_schema(name)
    owner = _our_name(name)
    ours_keys = [key for key in ours["properties"] if (owner, key) not in ADDED]
    assert set(ours_keys) == set(theirs["properties"])
    assert owner in REORDERED or ours_keys == list(theirs["properties"])
    assert set(ours.get("required", [])) == set(theirs.get("required", []))
    assert ours.get("additionalProperties", True) == theirs.get("additionalProperties", True)
    fields = {f.alias or n: f for n, f in MODELS[owner].model_fields.items()}
    for key, part in theirs["properties"].items():
        assert _canonical(ours["properties"][key]) == _expected(owner, key, part), key
        if (owner, key) in UNKNOWN_WHEN_ABSENT:
            assert fields[key].get_default() is None, key
        elif "default" in part and not isinstance(part["default"], dict):
            assert fields[key].get_default(call_default_factory=True) == part["default"], key


@pytest.mark.parametrize("name", IMPLEMENTED_MODELS)
def test_examples_of_the_reference_pass_here_and_come_back_whole(name: str) -> None:
    for kind, choices in plain_choices():
        theirs = Sampler(REAL_REFERENCE, choices).sample(REAL_SCHEMAS[name])
        model = _parse(name, theirs)
        ours = _dump(model)
        assert _keeps(ours, theirs), kind
        assert _parse(name, ours) == model
        assert type(model).model_validate(ours) == model
        _check_against_reference(name, ours)


@pytest.mark.parametrize("name", IMPLEMENTED_MODELS)
def test_examples_of_ours_pass_in_the_reference(name: str) -> None:
    root, fields = _our_schema(name)
    for _, choices in plain_choices():
        ours = Sampler(root, choices).sample(fields)
        _check_against_reference(name, ours)
        assert _parse(name, ours)


@pytest.mark.parametrize("name", IMPLEMENTED_MODELS)
def test_unknown_key_is_refused_only_by_the_strict_family(name: str) -> None:
    sample = Sampler(REAL_REFERENCE, Plain()).sample(REAL_SCHEMAS[name])
    strict = SCHEMAS[name].get("additionalProperties") is False
    body = json.dumps({**sample, "surplus": 1})
    model = MODELS[_our_name(name)]
    if strict:
        with pytest.raises(ValueError, match="extra_forbidden"):
            model.model_validate_json(body)
    else:
        assert model.model_validate_json(body) == _parse(name, sample)
