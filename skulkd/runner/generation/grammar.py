"""Answers that must follow a grammar: JSON, a JSON schema, or a forced tool call.

The grammar work is llguidance's. It sees each token before the next one is chosen, so a batch
with a constrained request in it computes without look-ahead.
"""

import json
from collections.abc import Mapping
from typing import Any

import llguidance.hf
import mlx.core as mx
import numpy as np
from llguidance import LLMatcher, LLTokenizer

from skulkd.runner.errors import BadRequest
from skulkd.runner.output.tool_formats import ToolFormat

# One line, spaced as Python writes JSON: models know it, and it cannot go on for ever.
_STYLE = {"whitespace_flexible": False, "item_separator": ", ", "key_separator": ": "}


def schema_of(
    response_format: Mapping[str, Any] | None, name: str = "response_format"
) -> dict[str, Any] | bool | None:
    """The schema an answer must follow; None when it may be any text. Raises BadRequest.

    `name` is what the client calls `response_format`.
    """
    if response_format is None:
        return None
    kind = response_format.get("type")
    if kind == "text":
        return None
    if kind == "json_object":
        return {"type": "object"}
    if kind != "json_schema":
        raise BadRequest(f"{name}: type is text, json_object or json_schema, not {kind!r}")
    described = response_format.get("json_schema")
    schema = described.get("schema") if isinstance(described, Mapping) else None
    if not isinstance(schema, dict | bool):
        raise BadRequest(f"{name}: json_schema.schema is missing")
    return schema


def forced_tools(
    tools: list[dict[str, Any]], tool_choice: str | Mapping[str, Any] | None
) -> list[dict[str, Any]]:
    """The functions of which one must be called; none when the model may choose."""
    functions = [tool.get("function") or tool for tool in tools]
    if tool_choice in (None, "auto", "none"):
        return []
    if tool_choice == "required":
        if not functions:
            raise BadRequest("tool_choice is required, but there are no tools")
        return functions
    named = tool_choice.get("function") if isinstance(tool_choice, Mapping) else None
    name = named.get("name") if isinstance(named, Mapping) else None
    chosen = [function for function in functions if function.get("name") == name]
    if not chosen:
        raise BadRequest(f"tool_choice names no given tool: {name!r}")
    return chosen


def tool_grammar(functions: list[dict[str, Any]], tool_format: ToolFormat, begin: str) -> str:
    """A grammar for one call. `begin` is how the grammar writes the format's first marker."""
    if tool_format.name == "native":
        raise BadRequest("tool_choice cannot be forced with this model's way to write calls")
    calls = [
        {
            "type": "object",
            "properties": {
                "name": {"const": function.get("name")},
                tool_format.arguments_key: function.get("parameters") or {"type": "object"},
            },
            "required": ["name", tool_format.arguments_key],
            "additionalProperties": False,
        }
        for function in functions
    ]
    schema: dict[str, Any] = calls[0] if len(calls) == 1 else {"anyOf": calls}
    if tool_format.as_list:
        schema = {"type": "array", "items": schema, "minItems": 1, "maxItems": 1}
    body = json.dumps({**schema, "x-guidance": _STYLE})
    if tool_format.whole:
        return f"start: call\ncall: %json {body}\n"
    end = json.dumps("\n" + tool_format.end) if tool_format.end else '""'
    return f'start: begin "\\n"? call {end}\nbegin: {begin}\ncall: %json {body}\n'


class Grammars:
    """Compiles grammars for one tokenizer."""

    def __init__(self, tokenizer: Any, vocab_size: int) -> None:
        self._source = tokenizer
        self._vocab_size = vocab_size
        self._ready: LLTokenizer | None = None

    @property
    def _tokenizer(self) -> LLTokenizer:
        # A large vocabulary takes a second, and most runners never need it.
        if self._ready is None:
            try:
                self._ready = llguidance.hf.from_tokenizer(
                    self._source._tokenizer,
                    n_vocab=self._vocab_size,
                    eos_token=sorted(self._source.eos_token_ids),
                )
            except ValueError as error:
                raise BadRequest(
                    f"this model's tokenizer cannot be constrained: {error}"
                ) from error
        return self._ready

    def json_matcher(
        self, schema: dict[str, Any] | bool, name: str = "response_format"
    ) -> LLMatcher:
        """Raises BadRequest for a schema that cannot be followed."""
        styled = {**schema, "x-guidance": _STYLE} if isinstance(schema, dict) else schema
        return self._matcher(LLMatcher.grammar_from_json_schema(json.dumps(styled)), name)

    def tool_matcher(self, functions: list[dict[str, Any]], tool_format: ToolFormat) -> LLMatcher:
        """Raises BadRequest for parameters that cannot be followed."""
        begin = json.dumps(tool_format.begin)
        if (token := self._special(tool_format.begin)) is not None:
            begin = f"<[{token}]>"
        grammar = LLMatcher.grammar_from_lark(tool_grammar(functions, tool_format, begin))
        return self._matcher(grammar, "tools")

    def _special(self, marker: str) -> int | None:
        token = self._source.get_vocab().get(marker)
        special = token is not None and self._tokenizer.is_special_token(token)
        return token if special else None

    def _matcher(self, grammar: str, what: str) -> LLMatcher:
        matcher = LLMatcher(self._tokenizer, grammar, log_level=0)
        if matcher.is_error():
            raise BadRequest(f"{what} cannot be followed: {matcher.get_error()}")
        return matcher


class GrammarProcessor:
    """Logits processor for one sequence. `after` are tokens that must come before it begins."""

    def __init__(self, matcher: LLMatcher, prompt_tokens: int, after: tuple[int, ...] = ()) -> None:
        self._matcher = matcher
        self._seen = prompt_tokens
        self._after = after
        self._waiting = bool(after)
        self._recent: list[int] = []

    def __call__(self, tokens: mx.array, logits: mx.array) -> mx.array:
        if tokens.shape[0] > self._seen:
            self._seen = tokens.shape[0]
            newest: Any = tokens[-1].item()
            self._follow(int(newest))
        if self._waiting:
            return logits
        allowed = np.frombuffer(self._matcher.compute_bitmask(), dtype=np.uint8)
        bits = np.unpackbits(allowed, bitorder="little", count=None)
        size = logits.shape[-1]
        if bits.size < size:
            bits = np.pad(bits, (0, size - bits.size))
        return mx.where(mx.array(bits[:size].astype(np.bool_)), logits, -float("inf"))

    def _follow(self, token: int) -> None:
        if self._waiting:
            self._recent = [*self._recent, token][-len(self._after) :]
            self._waiting = tuple(self._recent) != self._after
        elif not self._matcher.is_stopped():
            self._matcher.consume_token(token)
