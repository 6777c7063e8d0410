"""The tokenizer inside a GGUF file, checked and named. Pure; must not write anything."""

from collections.abc import Mapping
from dataclasses import dataclass

from skulkd.settings.problems import printable
from skulkd.store.bpe_tokenizer import SPLIT_RULES, SpecialTokens, SplitRule, Vocabulary
from skulkd.store.errors import BrokenModelError, UnsupportedModelError
from skulkd.store.gguf_file import Value
from skulkd.store.gguf_model import text_of

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
