"""The parts of embedding without a process: pooling, batches, configuration, parameters."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import mlx.core as mx
import pytest

from skulkd.placement.memory import kv_bytes_per_token, need_of
from skulkd.placement.wish import Wish
from skulkd.requests.embedding_params import (
    MAX_INPUTS,
    check_generates,
    embedding_params,
    input_list,
)
from skulkd.requests.errors import RequestError
from skulkd.runner.embedding.batching import RowQueue
from skulkd.runner.embedding.bert import BertConfig
from skulkd.runner.embedding.pooling import Pooling, max_sequence, read_pooling
from skulkd.runner.errors import BadModel
from skulkd.store.cards.from_config import card_from_config
from skulkd.wire.ids import TaskId
from tests.embedding.models import CONFIG, add_modules
from tests.placement.builders import a_card

DEFAULT = Pooling(("mean",), normalize=False)
# Two rows of three tokens; the last token of the second is padding.
HIDDEN = mx.array([[[1.0, 4.0], [3.0, 0.0], [5.0, 2.0]], [[2.0, 2.0], [4.0, -6.0], [9.0, 9.0]]])
MASK = mx.array([[1.0, 1.0, 1.0], [1.0, 1.0, 0.0]])


@pytest.mark.parametrize(
    ("modes", "expected"),
    [
        (("cls",), [[1, 4], [2, 2]]),
        (("mean",), [[3, 2], [3, -2]]),
        (("max",), [[5, 4], [4, 2]]),
        (("lasttoken",), [[5, 2], [4, -6]]),
        (("mean_sqrt_len_tokens",), [[5.1962, 3.4641], [4.2426, -2.8284]]),
        (("cls", "max"), [[1, 4, 5, 4], [2, 2, 4, 2]]),
    ],
)
def test_padding_is_not_pooled(modes: Any, expected: list[list[float]]) -> None:
    pooled = Pooling(modes, normalize=False).pool(HIDDEN, MASK)
    assert mx.allclose(pooled, mx.array(expected, dtype=mx.float32), atol=1e-3).item()


def test_vectors_are_cut_before_they_are_normalised() -> None:
    pooled = mx.array([[3.0, 4.0, 12.0], [0.0, 0.0, 0.0]])
    assert Pooling(("cls",), normalize=False).finish(pooled, 2).tolist() == [[3, 4], [0, 0]]
    finished = Pooling(("cls",), normalize=True).finish(pooled, 2)
    assert mx.allclose(finished, mx.array([[0.6, 0.8], [0.0, 0.0]])).item()


def test_the_files_of_a_model_say_how_to_pool(tmp_path: Path) -> None:
    assert read_pooling(tmp_path, DEFAULT) is DEFAULT
    add_modules(tmp_path, "pooling_mode_cls_token", "pooling_mode_lasttoken")
    assert read_pooling(tmp_path, DEFAULT) == Pooling(("cls", "lasttoken"), normalize=True)
    assert max_sequence(tmp_path) is None
    (tmp_path / "sentence_bert_config.json").write_text('{"max_seq_length": 256}')
    assert max_sequence(tmp_path) == 256


@pytest.mark.parametrize(
    ("file", "content", "named"),
    [
        ("modules.json", "{}", "is not a list"),
        ("modules.json", "[{}]", "without type and path"),
        ("modules.json", '[{"type": "x.Pooling", "path": "../.."}]', "without type and path"),
        ("modules.json", '[{"type": "x.Dense", "path": "2_Dense"}]', "Dense is not supported"),
        ("modules.json", "[", "is not JSON"),
        ("1_Pooling/config.json", "[]", "is not an object"),
        ("1_Pooling/config.json", "{}", "names no pooling mode"),
        ("1_Pooling/config.json", '{"pooling_mode_weightedmean_tokens": true}', "weightedmean"),
    ],
)
def test_files_that_cannot_be_followed_are_named(
    tmp_path: Path, file: str, content: str, named: str
) -> None:
    add_modules(tmp_path, "pooling_mode_cls_token")
    (tmp_path / file).write_text(content)
    with pytest.raises(BadModel, match=named) as refused:
        read_pooling(tmp_path, DEFAULT)
    assert file in str(refused.value)


@pytest.mark.parametrize(
    ("change", "named"),
    [
        ({"vocab_size": None}, "vocab_size"),
        ({"hidden_size": "big"}, "hidden_size"),
        ({"hidden_act": "swish"}, "hidden_act swish"),
        ({"position_embedding_type": "relative_key"}, "absolute positions"),
    ],
)
def test_a_bert_that_cannot_be_computed_is_refused(change: dict[str, Any], named: str) -> None:
    with pytest.raises(BadModel, match=named):
        BertConfig.of({**CONFIG, "vocab_size": 80, **change})


def test_tasks_take_turns_and_a_step_has_a_bound() -> None:
    queue = RowQueue()
    queue.add(TaskId("long"), [[1] * 10, [1] * 4, [1] * 10, [1] * 6])
    queue.add(TaskId("short"), [[1] * 5])
    queue.add(TaskId("gone"), [[1]])
    queue.remove(TaskId("gone"))
    steps = []
    while queue:
        batch = queue.pop_batch(max_rows=3, max_tokens=18)
        steps.append([(row.task_id, row.index) for row in batch])
    # The shortest of a task first; three rows of ten tokens would be too many.
    assert steps == [
        [("long", 1), ("short", 0), ("long", 3)],
        [("long", 0)],
        [("long", 2)],
    ]


def test_an_input_longer_than_a_step_is_computed_alone() -> None:
    queue = RowQueue()
    queue.add(TaskId("t"), [[1] * 50, [1] * 60])
    assert [len(queue.pop_batch(max_tokens=20)) for _ in range(2)] == [1, 1]
    assert not queue


@pytest.mark.parametrize(
    ("given", "inputs"),
    [
        ("a", ["a"]),
        (["a", "b"], ["a", "b"]),
        ([1, 2], [[1, 2]]),
        ([[1], [2, 3]], [[1], [2, 3]]),
    ],
)
def test_every_form_of_input(given: Any, inputs: list[Any]) -> None:
    assert input_list(given) == inputs


@pytest.mark.parametrize(
    ("given", "named"),
    [("", "input must"), ([], "input must"), (["a", ""], r"input\[1\]"), ([[]], r"input\[0\]")],
)
def test_an_empty_input_is_refused_by_name(given: Any, named: str) -> None:
    with pytest.raises(RequestError, match=named):
        input_list(given)


EMBEDDING = card_from_config("org/bert", {**CONFIG, "vocab_size": 9}, 1000)
SHORTENABLE = EMBEDDING.model_copy(update={"capabilities": ["embedding", "matryoshka"]})


@pytest.mark.parametrize(
    ("card", "how", "named"),
    [
        (a_card(), {}, "Model .* is not an embedding model"),
        (EMBEDDING, {"inputs": ["a"] * (MAX_INPUTS + 1)}, "2049 items, the limit is 2048"),
        (EMBEDDING, {"dimensions": 8}, "dimensions is not supported by org/bert"),
        (SHORTENABLE, {"dimensions": 0}, "dimensions must be between 1 and 32, not 0"),
        (SHORTENABLE, {"dimensions": 33}, "dimensions must be between 1 and 32, not 33"),
    ],
)
def test_what_a_model_cannot_do_is_refused(card: Any, how: dict[str, Any], named: str) -> None:
    with pytest.raises(RequestError, match=named) as refused:
        embedding_params(card, **{"inputs": ["a"], **how})
    assert refused.value.code == "invalid_request"


def test_dimensions_where_the_card_allows_them() -> None:
    assert embedding_params(SHORTENABLE, ["a"], dimensions=8).task.dimensions == 8


def test_a_model_that_embeds_does_not_generate_and_the_other_way_round() -> None:
    check_generates(a_card())
    check_generates(a_card(tasks=["TextGeneration", "TextEmbedding"]))
    check_generates(a_card(tasks=[]))
    with pytest.raises(RequestError, match="use POST /v1/embeddings"):
        check_generates(EMBEDDING)


def test_the_card_of_an_encoder_and_of_a_decoder_with_modules() -> None:
    assert EMBEDDING.tasks == ["TextEmbedding"]
    assert EMBEDDING.capabilities == ["embedding"]
    assert EMBEDDING.family == "bert"
    llama = {
        "model_type": "llama", "architectures": ["LlamaForCausalLM"], "hidden_size": 64,
        "num_hidden_layers": 2, "num_attention_heads": 4,
    }  # fmt: skip
    template = "{% if tools %}<think>{% endif %}"
    decoder = card_from_config("org/x", llama, 1, template, embeds=True)
    assert (decoder.tasks, decoder.supports_tensor, decoder.tooling) == (
        ["TextEmbedding"], False, None,
    )  # fmt: skip
    assert card_from_config("org/x", llama, 1).tasks == ["TextGeneration"]


def test_an_embedding_model_keeps_no_keys_and_values_and_is_not_shared() -> None:
    assert EMBEDDING.num_key_value_heads == 4
    assert kv_bytes_per_token(EMBEDDING) is None
    assert need_of(EMBEDDING).kv_bytes == 0
    assert Wish(EMBEDDING).single_node_only
    assert not Wish(a_card()).single_node_only
