"""Byte-level BPE tokenizers as the files `transformers` reads. Must not know where they come from.

Imported by child processes only.


The tokenizer inside a GGUF file, checked and named. Pure; must not write anything."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tokenizers import AddedToken, Regex, Tokenizer, decoders, normalizers, pre_tokenizers
from tokenizers import models as tokenizer_models
from tokenizers.processors import TemplateProcessing

from skulkd.settings.files import write_atomic
from skulkd.settings.problems import printable
from skulkd.store.errors import BrokenModelError, UnsupportedModelError
from skulkd.store.imports.gguf_config import text_of
from skulkd.store.imports.gguf_file import Value
from skulkd.store.model_directory import write_json

_WORDS = (
    r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}%s"
    r"| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+"
)


@dataclass(frozen=True, slots=True)
class SplitRule:
    """How text is cut into words before the merges work, and what goes with that family."""

    pattern: str | None = None
    """None is the rule of GPT-2."""
    single_digits: bool = False
    compose: bool = False
    """Text is brought to Unicode form NFC first."""
    whole_words: bool = False
    """A word that is a token is never built by merges."""
    starts_with_bos: bool = False
    """Unless the model says otherwise."""


SPLIT_RULES = {
    "gpt-2": SplitRule(),
    "smollm": SplitRule(single_digits=True),
    "llama-bpe": SplitRule(_WORDS % "{1,3}", whole_words=True, starts_with_bos=True),
    "qwen2": SplitRule(_WORDS % "", compose=True),
}


@dataclass(frozen=True, slots=True)
class Vocabulary:
    """Tokens by id, merges in order of use, and the ids that are found in text as they are."""

    tokens: Sequence[str]
    merges: Sequence[tuple[str, str]]
    special: Sequence[int]
    added: Sequence[int] = ()


@dataclass(frozen=True, slots=True)
class SpecialTokens:
    """Ids with a meaning; None where the model has none."""

    bos: int | None
    eos: int
    pad: int | None
    unknown: int | None
    add_bos: bool
    stop: Sequence[int]
    """Every id that ends an answer, `eos` first."""

    def generation_config(self) -> dict[str, Any]:
        ids = {"bos_token_id": self.bos, "pad_token_id": self.pad}
        return {"eos_token_id": list(self.stop)} | {k: v for k, v in ids.items() if v is not None}


def write_tokenizer(
    directory: Path,
    vocabulary: Vocabulary,
    rule: SplitRule,
    special: SpecialTokens,
    chat_template: str | None,
    context_length: int,
) -> None:
    """Write `tokenizer.json`, `tokenizer_config.json` and `generation_config.json`."""
    tokenizer = build_tokenizer(vocabulary, rule, special)
    write_atomic(directory / "tokenizer.json", tokenizer.to_str().encode())
    config: dict[str, Any] = {
        "tokenizer_class": "PreTrainedTokenizerFast",
        "clean_up_tokenization_spaces": False,
        "model_max_length": context_length,
    }
    named = {
        "bos_token": special.bos,
        "eos_token": special.eos,
        "pad_token": special.pad,
        "unk_token": special.unknown,
    }
    config |= {key: vocabulary.tokens[i] for key, i in named.items() if i is not None}
    if chat_template is not None:
        config["chat_template"] = chat_template
    write_json(directory / "tokenizer_config.json", config)
    write_json(directory / "generation_config.json", special.generation_config())


def build_tokenizer(vocabulary: Vocabulary, rule: SplitRule, special: SpecialTokens) -> Tokenizer:
    """The tokenizer itself. Every merge must be made of tokens."""
    ids = {token: index for index, token in enumerate(vocabulary.tokens)}
    model = tokenizer_models.BPE(ids, list(vocabulary.merges), ignore_merges=rule.whole_words)
    tokenizer = Tokenizer(model)
    if rule.compose:
        tokenizer.normalizer = normalizers.NFC()
    tokenizer.pre_tokenizer = _splitter(rule)
    tokenizer.decoder = decoders.ByteLevel()
    if special.add_bos and special.bos is not None:
        # Under a name of our own, because the token's text may look like template syntax.
        bos = {"id": "bos", "ids": [special.bos], "tokens": [vocabulary.tokens[special.bos]]}
        tokenizer.post_processor = TemplateProcessing(
            single=["bos", "$A"], pair=["bos", "$A", "bos", "$B:1"], special_tokens=[bos]
        )
    tokenizer.add_special_tokens(
        [AddedToken(vocabulary.tokens[i], normalized=False) for i in vocabulary.special]
    )
    tokenizer.add_tokens(
        [AddedToken(vocabulary.tokens[i], normalized=False) for i in vocabulary.added]
    )
    return tokenizer


def _splitter(rule: SplitRule) -> pre_tokenizers.PreTokenizer:
    if rule.pattern is None:
        steps: list[pre_tokenizers.PreTokenizer] = [
            pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=True)
        ]
    else:
        steps = [
            pre_tokenizers.Split(Regex(rule.pattern), behavior="isolated"),
            pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False),
        ]
    if rule.single_digits:
        steps.insert(0, pre_tokenizers.Digits(individual_digits=True))
    return pre_tokenizers.Sequence(steps)


_PREFIX = "tokenizer.ggml."
_CONTROL, _USER_DEFINED = 3, 4
_SAME_RULE = {"llama3": "llama-bpe", "llama-v3": "llama-bpe"}
# Tokens that end an answer in families whose files name only one of them.
_END_NAMES = frozenset({"<|im_end|>", "<|eot_id|>", "<|end_of_text|>", "<|endoftext|>"})


@dataclass(frozen=True, slots=True)
class GgufTokenizer:
    vocabulary: Vocabulary
    rule: SplitRule
    special: SpecialTokens
    chat_template: str | None


def read_tokenizer(metadata: Mapping[str, Value], vocabulary_rows: int) -> GgufTokenizer:
    """The tokenizer of a model whose embedding has this many rows.

    Raises UnsupportedModelError that names the kind, or BrokenModelError.
    """
    rule = _find_rule(metadata)
    tokens = _texts(metadata, "tokens")
    if len(tokens) > vocabulary_rows:
        raise BrokenModelError(f"{len(tokens)} tokens do not fit {vocabulary_rows} embeddings")
    if len(set(tokens)) != len(tokens):
        raise BrokenModelError("the same token is in the vocabulary twice")
    types = metadata.get(f"{_PREFIX}token_type")
    if not isinstance(types, list) or len(types) != len(tokens):
        raise BrokenModelError(f"key {_PREFIX}token_type is missing or has the wrong length")
    control = [i for i, kind in enumerate(types) if kind == _CONTROL]
    vocabulary = Vocabulary(
        tokens=tokens,
        merges=_merges(metadata, frozenset(tokens)),
        special=control,
        added=[i for i, kind in enumerate(types) if kind == _USER_DEFINED],
    )
    template = metadata.get("tokenizer.chat_template")
    return GgufTokenizer(
        vocabulary,
        rule,
        _special(metadata, vocabulary, rule),
        template if isinstance(template, str) else None,
    )


def _find_rule(metadata: Mapping[str, Value]) -> SplitRule:
    model = text_of(metadata, f"{_PREFIX}model")
    if model != "gpt2":
        known = " (SentencePiece)" if model == "llama" else ""
        raise UnsupportedModelError(
            f'the tokenizer model "{printable(model)}"{known} cannot be imported',
            hint="only byte-level BPE (gpt2) is supported; use an mlx-lm directory instead",
        )
    name = text_of(metadata, f"{_PREFIX}pre")
    rule = SPLIT_RULES.get(_SAME_RULE.get(name, name))
    if rule is None:
        raise UnsupportedModelError(
            f'the pre-tokenizer "{printable(name)}" cannot be imported',
            hint=f"supported pre-tokenizers: {', '.join(sorted({*SPLIT_RULES, *_SAME_RULE}))}",
        )
    return rule


def _texts(metadata: Mapping[str, Value], name: str) -> list[str]:
    values = metadata.get(_PREFIX + name)
    texts = [text for text in values if isinstance(text, str)] if isinstance(values, list) else []
    if not isinstance(values, list) or len(texts) != len(values):
        raise BrokenModelError(f"key {_PREFIX}{name} is missing or not a list of texts")
    return texts


def _merges(metadata: Mapping[str, Value], tokens: frozenset[str]) -> list[tuple[str, str]]:
    merges = []
    for text in _texts(metadata, "merges"):
        left, _, right = text.partition(" ")
        if not {left, right, left + right} <= tokens:
            raise BrokenModelError(f'the merge "{printable(text)}" is not made of tokens')
        merges.append((left, right))
    return merges


def _special(
    metadata: Mapping[str, Value], vocabulary: Vocabulary, rule: SplitRule
) -> SpecialTokens:
    def token(name: str) -> int | None:
        value = metadata.get(f"{_PREFIX}{name}_token_id")
        if value is None:
            return None
        if not isinstance(value, int) or not 0 <= value < len(vocabulary.tokens):
            raise BrokenModelError(f"key {_PREFIX}{name}_token_id is not a token")
        return value

    eos = token("eos")
    if eos is None:
        raise BrokenModelError(f"key {_PREFIX}eos_token_id is missing")
    named = [i for i in vocabulary.special if vocabulary.tokens[i] in _END_NAMES]
    ends = [eos, token("eot"), token("eom"), *named]
    add_bos = metadata.get(f"{_PREFIX}add_bos_token", rule.starts_with_bos)
    return SpecialTokens(
        bos=token("bos"),
        eos=eos,
        pad=token("padding"),
        unknown=token("unknown"),
        add_bos=add_bos is True,
        # Each one once, in this order.
        stop=list(dict.fromkeys(end for end in ends if end is not None)),
    )
