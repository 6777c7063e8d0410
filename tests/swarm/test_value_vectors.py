"""Small rules against the recorded reference: parsing, redaction, codes, prompts, tokens."""

from __future__ import annotations

from typing import Any

import pytest

from skulkd.swarm import catalog, invocation_token, messages, pacing, script_values
from tests.swarm.vectors import VECTORS, case_id, cases, same


@pytest.mark.parametrize("case", cases("parse_positive_integer"), ids=str)
def test_positive_integers(case: dict[str, Any]) -> None:
    found = script_values.parse_positive_integer(case["input"], case["fallback"])
    assert found == case["expected"]


def test_numbers_with_a_radix() -> None:
    assert script_values.parse_positive_integer("0x10", 1) == 16
    assert script_values.parse_positive_integer("0xzz", 1) == 1


@pytest.mark.parametrize("case", cases("parse_boolean"), ids=str)
def test_booleans(case: dict[str, Any]) -> None:
    assert script_values.parse_boolean(case["input"], case["fallback"]) == case["expected"]


@pytest.mark.parametrize("case", cases("parse_exposure_policy"), ids=str)
def test_exposure_policies(case: dict[str, Any]) -> None:
    assert script_values.parse_exposure_policy(case["input"]) == case["expected"]


@pytest.mark.parametrize("case", cases("parse_list"), ids=str)
def test_lists(case: dict[str, Any]) -> None:
    assert script_values.parse_list(case["input"]) == case["expected"]


@pytest.mark.parametrize("case", cases("normalize_server_name"), ids=str)
def test_server_names(case: dict[str, Any]) -> None:
    assert script_values.normalize_server_name(case["input"]) == case["expected"]


@pytest.mark.parametrize("case", cases("machine_fingerprint"), ids=str)
def test_machine_fingerprints(case: dict[str, Any]) -> None:
    assert script_values.machine_fingerprint(case["input"]) == case["expected"]


@pytest.mark.parametrize("case", cases("health_status"), ids=str)
def test_health(case: dict[str, Any]) -> None:
    assert catalog.normalize_health(case["input"]) == case["expected"]


@pytest.mark.parametrize("case", cases("embedding_or_vision"), ids=str)
def test_embedding_and_vision_models(case: dict[str, Any]) -> None:
    assert catalog.is_embedding(case["name"], case["family"]) == case["is_embedding"]
    assert catalog.is_vision(case["name"], case["family"]) == case["is_vision"]


def test_trimming_takes_what_the_reference_takes_and_nothing_else() -> None:
    strips = {chr(int(name[2:], 16)) for name in VECTORS["trim_set"]["js_trim_strips"]}
    for code in [*range(0x3100), 0xFEFF, 0x200B]:
        assert (script_values.trim(chr(code)) == "") == (chr(code) in strips), hex(code)


@pytest.mark.parametrize("case", cases("encode_uri_component"), ids=str)
def test_job_ids_in_paths(case: dict[str, Any]) -> None:
    assert script_values.encode_component(case["input"]) == case["expected"]


@pytest.mark.parametrize("case", cases("redact"), ids=case_id)
def test_redaction(case: dict[str, Any]) -> None:
    assert messages.redact(case["message"], case["secrets"]) == case["expected"]


@pytest.mark.parametrize(
    ("message", "expected"),
    [
        ('{"api_key":"sk-1, 2"}', '{"api_key":"[redacted]"}'),
        ('{"error":{"token" : "a b","code":7}}', '{"error":{"token" : "[redacted]","code":7}}'),
        (r"said {\"x-api-key\":\"sk-1\",\"n\":1}", r"said {\"x-api-key\":\"[redacted]\",\"n\":1}"),
        ("{'secret': 'hunter2'}", "{'secret': '[redacted]'}"),
        ('"authorization":"Bearer abc"', '"authorization":"[redacted]"'),
        ('{"api_key":"sk-1\\"2","a":1}', '{"api_key":"[redacted]","a":1}'),
        ('"api_key":"cut off', '"api_key":"[redacted]'),
        ('"client_secret":"x"', '"client_secret":"[redacted]"'),
    ],
)
def test_redaction_of_quoted_values(message: str, expected: str) -> None:
    assert messages.redact(message) == expected


@pytest.mark.parametrize("case", cases("redact_service_output"), ids=str)
def test_redaction_of_service_output(case: dict[str, Any]) -> None:
    assert messages.redact_service_output(case["input"]) == case["expected"]


@pytest.mark.parametrize("case", cases("error_code_from_message"), ids=case_id)
def test_codes_from_messages(case: dict[str, Any]) -> None:
    assert messages.code_from_message(case["message"]) == case["expected"]["code"]


@pytest.mark.parametrize("case", cases("error_code_explicit"), ids=str)
def test_explicit_codes(case: dict[str, Any]) -> None:
    assert messages.explicit_code(case["error_code_attr"]) == case["expected"]


@pytest.mark.parametrize("case", cases("messages_to_prompt"), ids=str)
def test_prompts(case: dict[str, Any]) -> None:
    assert messages.messages_to_prompt(case["input"]) == case["expected"]


@pytest.mark.parametrize("case", cases("ollama_format"), ids=str)
def test_ollama_formats(case: dict[str, Any]) -> None:
    assert messages.ollama_format(case["input"]) == case["expected"]


SCHEMA = {"type": "object", "properties": {"a": {"type": "string"}}}


@pytest.mark.parametrize(
    ("shape", "expected"),
    [
        ({"type": "json_schema", "json_schema": SCHEMA}, SCHEMA),
        ({"type": "json_schema", "json_schema": {"name": "n", "schema": SCHEMA}}, SCHEMA),
        ({"type": "json_schema", "schema": SCHEMA}, SCHEMA),
        ({"type": "json_schema", "json_schema": {"name": "n", "strict": True}}, "json"),
        ({"type": "json_schema", "json_schema": "x"}, "json"),
    ],
)
def test_schemas_with_and_without_wrapper(shape: dict[str, Any], expected: Any) -> None:
    assert messages.ollama_format(shape) == expected


@pytest.mark.parametrize("case", cases("chat_completion"), ids=str)
def test_completions(case: dict[str, Any]) -> None:
    given = case["input"]
    found = messages.chat_completion(
        given["requestId"],
        given["model"],
        given["content"],
        (given["promptTokens"], given["completionTokens"]),
        1,
        given.get("metadata"),
    )
    same(found, case["expected"])


@pytest.mark.parametrize("case", cases("invocation_token"), ids=case_id)
def test_invocation_tokens(case: dict[str, Any]) -> None:
    try:
        invocation_token.verify_token(case["token"], case["secret"], case["now_seconds"])
        found = "ok"
    except invocation_token.TokenRefused as error:
        found = str(error)
    assert found == case["expected"]


@pytest.mark.parametrize("case", cases("head_poll_retry_delay_ms"), ids=str)
def test_poll_back_off(case: dict[str, Any]) -> None:
    assert pacing.retry_delay_ms(case["failure_streak"]) == case["expected"]


@pytest.mark.parametrize("case", cases("head_execution_class"), ids=str)
def test_execution_classes(case: dict[str, Any]) -> None:
    kind, label = pacing.execution_class(case["job"])
    assert (kind, label) == (
        case["expected"]["executionClass"],
        case["expected"]["unrecognisedLabel"],
    )


@pytest.mark.parametrize("case", cases("head_private_endpoint_host"), ids=str)
def test_private_hosts(case: dict[str, Any]) -> None:
    assert pacing.is_private_host(case["host"]) == case["expected"]


def test_model_entries_have_the_reference_shape() -> None:
    """But for `base_url`, which tells where our runners listen and is not ours to send."""
    captured = VECTORS["wire_captures_0_1_79"]["heartbeat_full"]["body"]["models"]
    agents = [
        {
            "id": "a1",
            "slug": "qwen-local",
            "adapter": "openai-compatible-local",
            "defaultModel": "Qwen/Qwen3-8B",
            "contextWindow": 32768,
            "maxOutputTokens": 4096,
            "supportsTools": False,
            "bestUsage": "code_write",
            "capabilities": ["plan", "code_write"],
            "costPerMillion": 0,
            "rating": 6,
            "reasoningRating": 5,
            "maxComplexity": 5,
            "health": {"status": "healthy"},
        },
        {
            "id": "a2",
            "slug": "sick-agent",
            "adapter": "ollama-remote",
            "defaultModel": "phi3.5:3.8b",
            "health": {"status": "unhealthy"},
        },
        {
            "id": "a3",
            "slug": "nomic-embed-text",
            "adapter": "ollama-remote",
            "defaultModel": "nomic-embed-text:latest",
            "bestUsage": "embedding",
            "health": {"status": "healthy"},
        },
    ]
    for agent, expected in zip(agents, captured, strict=True):
        wanted = {key: value for key, value in expected.items() if key != "base_url"}
        same(catalog.catalog_entry(agent, catalog.Exposure()), wanted)
