"""Tool calls in every format: parsed whole, or shown as the text they are."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given

from skulkd.runner.output.tool_calls import ToolExtractor
from skulkd.runner.output.tool_formats import HERMES, LLAMA, MISTRAL, ToolFormat, choose_format
from skulkd.wire.base import Memory
from skulkd.wire.cards import ModelCard
from skulkd.wire.ids import ModelId
from tests.runner.chunks import assembled, cut_texts

CALL = '{"name": "f", "arguments": {"x": 1}}'
PARSED = ("f", {"x": 1})


def extract(
    tool_format: ToolFormat, pieces: list[str], *, only_one: bool = False
) -> tuple[str, list[tuple[str, Any]]]:
    extractor = ToolExtractor(tool_format, only_one=only_one)
    text = "".join([*(extractor.push(piece) for piece in pieces), extractor.finish()])
    return text, [(call.name, json.loads(call.arguments)) for call in extractor.calls]


@pytest.mark.parametrize(
    ("tool_format", "text", "content", "calls"),
    [
        (HERMES, "no call", "no call", []),
        (HERMES, f"<tool_call>\n{CALL}\n</tool_call>", "", [PARSED]),
        (HERMES, f"Let me see.\n<tool_call>{CALL}</tool_call>", "Let me see.\n", [PARSED]),
        (
            HERMES,
            f" <tool_call>{CALL}</tool_call>\n<tool_call>{CALL}</tool_call>\n",
            "",
            [PARSED] * 2,
        ),
        (HERMES, f"<tool_call>{CALL}", "", [PARSED]),
        (HERMES, f"<tool_call>{CALL}</tool_call> and text", "and text", [PARSED]),
        (HERMES, "<tool_call>oops</tool_call>", "<tool_call>oops</tool_call>", []),
        (HERMES, '<tool_call>{"name": 1}</tool_call>', '<tool_call>{"name": 1}</tool_call>', []),
        (HERMES, "a <tool", "a <tool", []),
        (HERMES, " \n", " \n", []),
        (LLAMA, '{"name": "f", "parameters": {"x": 1}}', "", [PARSED]),
        (LLAMA, '<|python_tag|>{"name": "f", "parameters": {"x": 1}}', "", [PARSED]),
        (LLAMA, f"{CALL}; {CALL}", "", [PARSED] * 2),
        (LLAMA, '{"not": "a call"}', '{"not": "a call"}', []),
        (LLAMA, 'text {"name": "f"}', 'text {"name": "f"}', []),
        (MISTRAL, f"[TOOL_CALLS][{CALL}]", "", [PARSED]),
        (MISTRAL, '[TOOL_CALLS]f[ARGS]{"x": 1}', "", [PARSED]),
        (MISTRAL, '[TOOL_CALLS]f[ARGS]{"x": 1} f[ARGS]{"x": 1}', "", [PARSED] * 2),
        (MISTRAL, "[TOOL_CALLS]gibberish", "[TOOL_CALLS]gibberish", []),
    ],
)
def test_calls_are_taken_out_of_the_text(
    tool_format: ToolFormat, text: str, content: str, calls: list[tuple[str, Any]]
) -> None:
    assert extract(tool_format, [text]) == (content, calls)
    assert extract(tool_format, list(text)) == (content, calls)


@pytest.mark.parametrize("tool_format", [HERMES, LLAMA, MISTRAL], ids=lambda f: f.name)
def test_any_chunking_gives_the_same_calls(tool_format: ToolFormat) -> None:
    parts = assembled(tool_format.begin, tool_format.end or "]", CALL, " ", "\n", "word", "{")

    @given(cut_texts(parts))
    def check(sample: tuple[str, list[str]]) -> None:
        text, pieces = sample
        assert extract(tool_format, pieces) == extract(tool_format, [text])

    check()


def test_only_one_call_is_taken_when_calls_may_not_be_parallel() -> None:
    extractor = ToolExtractor(HERMES, only_one=True)
    extractor.push("Let me see. ")
    before = extractor.complete
    extractor.push(f"<tool_call>{CALL}</tool_call><tool_call>{CALL}</tool_call> more")
    assert (before, extractor.complete) == (False, True)
    assert len(extractor.calls) == 1
    assert extractor.finish() == ""


def test_an_argument_text_is_read_as_json() -> None:
    text = '<tool_call>{"name": "f", "arguments": "{\\"x\\": 1}", "id": "call-7"}</tool_call>'
    extractor = ToolExtractor(HERMES)
    extractor.push(text)
    assert [(c.id, c.arguments) for c in extractor.calls] == [("call-7", '{"x": 1}')]


def test_half_a_character_in_arguments_stays_an_escape() -> None:
    text = '<tool_call>{"name": "f", "arguments": {"x": "\\ud83d", "y": "ö"}}</tool_call>'
    extractor = ToolExtractor(HERMES)
    extractor.push(text)
    (call,) = extractor.calls
    assert call.arguments.encode()
    assert json.loads(call.arguments) == {"x": "\ud83d", "y": "ö"}


def a_card(family: str) -> ModelCard:
    return ModelCard(
        model_id=ModelId("org/name"),
        storage_size=Memory.of(1),
        n_layers=1,
        hidden_size=1,
        supports_tensor=False,
        tasks=["TextGeneration"],
        family=family,
    )


@pytest.mark.parametrize(
    ("family", "template", "begin", "name"),
    [
        ("qwen", "… <tool_call> …", "<tool_call>", "hermes"),
        ("qwen", "<tool_call>\n<function=", "<tool_call>", "native"),
        ("llama", "", None, "llama"),
        ("llama", "<tool_call>", None, "hermes"),
        ("mistral", "", None, "mistral"),
        ("gemma", "<|tool_call>", "<|tool_call>", "native"),
        ("", "", None, "hermes"),
    ],
)
def test_the_format_follows_tokenizer_then_template_then_family(
    family: str, template: str, begin: str | None, name: str
) -> None:
    chosen = choose_format(
        a_card(family),
        template=template,
        begin=begin,
        end="</x>",
        parse=lambda text, _: {"name": text, "arguments": {}},
    )
    assert chosen.name == name


def test_a_native_parser_that_fails_leaves_the_text() -> None:
    def parse(text: str, _: Any) -> Any:
        raise ValueError(text)

    chosen = choose_format(a_card(""), template="", begin="<<", end=">>", parse=parse)
    assert extract(chosen, ["a <<b>> c"]) == ("a <<b>> c", [])
