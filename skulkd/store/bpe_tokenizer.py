"""Byte-level BPE tokenizers as the files `transformers` reads. Must not know where they come from.

Imported by child processes only.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tokenizers import AddedToken, Regex, Tokenizer, decoders, normalizers, pre_tokenizers
from tokenizers import models as tokenizer_models
from tokenizers.processors import TemplateProcessing

from skulkd.settings.files import write_atomic
from skulkd.store.model_documents import write_json

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
