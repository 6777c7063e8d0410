"""Small rules against the recorded reference: parsing, redaction, codes, prompts, tokens."""

from __future__ import annotations

from typing import Any

import pytest

from skulkd.swarm import catalog, chat_format, errors, invocation_token, js_values
from skulkd.swarm.gateway_urls import is_private_host
from skulkd.swarm.job_checks import execution_class
from skulkd.swarm.session import retry_delay_ms
from tests.swarm.vectors import VECTORS, case_id, cases, same


@pytest.mark.parametrize("case", cases("parse_positive_integer"), ids=str)
def test_positive_integers(case: dict[str, Any]) -> None:
    found = js_values.parse_positive_integer(case["input"], case["fallback"])
    assert found == case["expected"]


def test_numbers_with_a_radix() -> None:
    assert js_values.parse_positive_integer("0x10", 1) == 16
    assert js_values.parse_positive_integer("0xzz", 1) == 1


@pytest.mark.parametrize("case", cases("parse_boolean"), ids=str)
def test_booleans(case: dict[str, Any]) -> None:
    assert js_values.parse_boolean(case["input"], case["fallback"]) == case["expected"]


@pytest.mark.parametrize("case", cases("parse_exposure_policy"), ids=str)
def test_exposure_policies(case: dict[str, Any]) -> None:
    assert js_values.parse_exposure_policy(case["input"]) == case["expected"]


@pytest.mark.parametrize("case", cases("parse_list"), ids=str)
def test_lists(case: dict[str, Any]) -> None:
    assert js_values.parse_list(case["input"]) == case["expected"]


@pytest.mark.parametrize("case", cases("normalize_server_name"), ids=str)
def test_server_names(case: dict[str, Any]) -> None:
    assert js_values.normalize_server_name(case["input"]) == case["expected"]


@pytest.mark.parametrize("case", cases("machine_fingerprint"), ids=str)
def test_machine_fingerprints(case: dict[str, Any]) -> None:
    assert js_values.machine_fingerprint(case["input"]) == case["expected"]


@pytest.mark.parametrize("case", cases("health_status"), ids=str)
def test_health(case: dict[str, Any]) -> None:
    assert catalog.normalize_health(case["input"]) == case["expected"]


@pytest.mark.parametrize("case", cases("embedding_or_vision"), ids=str)
def test_embedding_models(case: dict[str, Any]) -> None:
    assert catalog.is_embedding(f"{case['name']} {case['family'] or ''}") == case["is_embedding"]


def test_trimming_takes_what_the_reference_takes_and_nothing_else() -> None:
    strips = {chr(int(name[2:], 16)) for name in VECTORS["trim_set"]["js_trim_strips"]}
    for code in [*range(0x3100), 0xFEFF, 0x200B]:
        assert (js_values.trim(chr(code)) == "") == (chr(code) in strips), hex(code)


@pytest.mark.parametrize("case", cases("encode_uri_component"), ids=str)
def test_job_ids_in_paths(case: dict[str, Any]) -> None:
    assert js_values.encode_component(case["input"]) == case["expected"]


@pytest.mark.parametrize("case", cases("redact"), ids=case_id)
def test_redaction(case: dict[str, Any]) -> None:
    assert errors.redact(case["message"], case["secrets"]) == case["expected"]


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
    assert errors.redact(message) == expected


@pytest.mark.parametrize("case", cases("error_code_from_message"), ids=case_id)
def test_codes_from_messages(case: dict[str, Any]) -> None:
    assert errors.code_from_message(case["message"]) == case["expected"]["code"]


@pytest.mark.parametrize("case", cases("error_code_explicit"), ids=str)
def test_explicit_codes(case: dict[str, Any]) -> None:
    assert errors.explicit_code(case["error_code_attr"]) == case["expected"]


@pytest.mark.parametrize("case", cases("messages_to_prompt"), ids=str)
def test_prompts(case: dict[str, Any]) -> None:
    assert chat_format.messages_to_prompt(case["input"]) == case["expected"]


@pytest.mark.parametrize("case", cases("ollama_format"), ids=str)
def test_ollama_formats(case: dict[str, Any]) -> None:
    assert chat_format.ollama_format(case["input"]) == case["expected"]


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
    assert chat_format.ollama_format(shape) == expected


@pytest.mark.parametrize("case", cases("chat_completion"), ids=str)
def test_completions(case: dict[str, Any]) -> None:
    given = case["input"]
    completion = chat_format.Completion(
        given["content"], given["promptTokens"], given["completionTokens"]
    )
    found = chat_format.chat_completion(
        given["requestId"], given["model"], completion, 1, given.get("metadata")
    )
    same(found, case["expected"])


@pytest.mark.filterwarnings("ignore:The HMAC key is")  # the recorded secrets are short
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
    assert retry_delay_ms(case["failure_streak"]) == case["expected"]


@pytest.mark.parametrize("case", cases("head_execution_class"), ids=str)
def test_execution_classes(case: dict[str, Any]) -> None:
    kind, label = execution_class(case["job"])
    assert (kind, label) == (
        case["expected"]["executionClass"],
        case["expected"]["unrecognisedLabel"],
    )


@pytest.mark.parametrize("case", cases("head_private_endpoint_host"), ids=str)
def test_private_hosts(case: dict[str, Any]) -> None:
    assert is_private_host(case["host"]) == case["expected"]


def test_model_entries_have_the_reference_shape() -> None:
    """But for `base_url`, which tells where our runners listen and is not ours to send."""
    captured = VECTORS["wire_captures_0_1_79"]["heartbeat_full"]["body"]["models"]
    agent = catalog.Agent(
        "qwen-local",
        "Qwen/Qwen3-8B",
        "healthy",
        context_window=32768,
        capabilities=["plan", "code_write"],
    )
    # What the reference knows of its own agents and a cluster does not know of its models.
    unknown = ("max_output_tokens", "cost_per_million", "rating", "reasoning_rating")
    wanted = {key: value for key, value in captured[0].items() if key != "base_url"}
    wanted |= dict.fromkeys((*unknown, "max_complexity"))
    wanted |= {"best_usage": "general_chat", "source_agent_id": "qwen-local"}
    same(catalog.catalog_entry(agent, catalog.Exposure()), wanted)
    embedding = catalog.Agent("nomic-embed-text", "nomic-embed-text:latest", "healthy")
    assert not catalog.catalog_entry(embedding, catalog.Exposure())["exposed"]
