"""GGUF files that are sound, damaged, or of a kind we cannot import."""

from __future__ import annotations

import json
import struct
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from safetensors.numpy import load_file
from tokenizers import Tokenizer

from skulkd.settings.paths import Paths
from skulkd.store.errors import (
    BrokenModelError,
    FileAccessError,
    ModelExistsError,
    NoSpaceError,
    StoreError,
    UnsupportedModelError,
)
from skulkd.store.imports.gguf_config import llama3_factors
from skulkd.store.imports.gguf_file import open_gguf
from skulkd.store.imports.gguf_import import import_gguf
from skulkd.store.library import ModelLibrary
from tests.store.child import run_mlx
from tests.store.gguf_samples import BYTES, SPECIAL, TOKENS, Sample, Type

LLAMA3 = {
    "factor": 32.0,
    "low_freq_factor": 1.0,
    "high_freq_factor": 4.0,
    "original_max_position_embeddings": 8192,
}

LOAD_ALL = """
import json, sys
from mlx_lm import load
from mlx_lm.generate import generate
found = {}
for path in sys.argv[1:]:
    model, tokenizer = load(path)
    rope = model.model.layers[0].self_attn.rope
    text = generate(model, tokenizer, "hello", max_tokens=3)
    freqs = rope._freqs.tolist() if hasattr(rope, "_freqs") else None
    found[path] = {"ids": tokenizer.encode("hello"), "answer": text, "freqs": freqs}
print(json.dumps(found))
"""

DEQUANTISED = """
import json, sys
import mlx.core as mx
theirs, ours = mx.load(sys.argv[1]), mx.load(sys.argv[2])
found = {}
for name in sys.argv[3:]:
    a = theirs[f"blk.0.{name}.weight"].astype(mx.float32)
    module = {"ffn_gate": "gate", "ffn_up": "up", "ffn_down": "down"}[name]
    b = ours[f"model.layers.0.mlp.{module}_proj.weight"]
    found[name] = float((mx.abs(a - b) / (mx.abs(a) + 1e-3)).max())
print(json.dumps(found))
"""


def test_architectures_of_the_family_load_in_mlx_lm(tmp_path: Path) -> None:
    models = tmp_path / "models"
    factors = llama3_factors(LLAMA3, 10_000.0, 16)
    samples = {name: Sample(architecture=name) for name in ("llama", "qwen2", "qwen3")}
    samples["llama"].keys["tokenizer.ggml.pre"] = "llama-bpe"
    samples["llama"].tensors["rope_freqs.weight"] = np.array(factors, dtype=np.float32)
    samples["llama"].types["rope_freqs.weight"] = Type.F32
    samples["llama"].tensors["output.weight"] = samples["llama"].tensors["token_embd.weight"]
    samples["llama"].types["output.weight"] = Type.F32
    paths = [
        import_gguf(sample.write(tmp_path / f"{name}.gguf"), models, f"local/{name}")
        for name, sample in samples.items()
    ]
    found = run_mlx(LOAD_ALL, *paths)
    hello = TOKENS.index("hello")
    # The Llama 3 family starts every text with its first token.
    assert [found[str(path)]["ids"] for path in paths] == [[1, hello], [hello], [hello]]
    # MLX computes the slowed rotations from our configuration; the file had the factors.
    base = [10_000.0 ** (index / 16) for index in range(0, 16, 2)]
    expected = [slow * factor for slow, factor in zip(base, factors, strict=True)]
    assert found[str(paths[0])]["freqs"] == pytest.approx(expected, rel=1e-4)
    assert json.loads((paths[0] / "config.json").read_text())["tie_word_embeddings"] is False
    assert json.loads((paths[1] / "config.json").read_text())["tie_word_embeddings"] is True


def test_other_block_types_equal_what_mlx_reads(tmp_path: Path) -> None:
    sample = Sample(hidden=256, feed_forward=256, layers=1)
    kinds = {"ffn_gate": Type.Q2_K, "ffn_up": Type.Q6_K, "ffn_down": Type.BF16}
    for name, kind in kinds.items():
        sample.types[f"blk.0.{name}.weight"] = kind
    file = sample.write(tmp_path / "k.gguf")
    path = import_gguf(file, tmp_path / "models", "local/k")
    found = run_mlx(DEQUANTISED, file, path / "model.safetensors", *kinds)
    # MLX goes through 16-bit floats.
    assert found == {name: pytest.approx(0, abs=0.01) for name in kinds}


def test_four_bit_super_blocks_follow_the_format(tmp_path: Path) -> None:
    """MLX is no judge here: its reader gives every second group the scale of the one before."""
    sample = Sample(hidden=256, feed_forward=256, layers=1)
    sample.types["blk.0.ffn_up.weight"] = Type.Q4_K
    file = open_gguf(sample.write(tmp_path / "k.gguf"))
    path = import_gguf(file.path, tmp_path / "models", "local/k")
    block = file.read(file.tensors["blk.0.ffn_up.weight"])[:144]
    found = load_file(path / "model.safetensors")["model.layers.0.mlp.up_proj.weight"][0]
    assert found.tolist() == pytest.approx(_decode_q4_k(block), rel=1e-6)


def _decode_q4_k(block: bytes) -> list[float]:
    """One block of 256 values: eight groups with a 6-bit scale and a 6-bit minimum each."""
    scale, minimum = struct.unpack("<ee", block[:4])
    packed, numbers = block[4:16], block[16:]
    values = []
    for group in range(8):
        if group < 4:
            a, b = packed[group] & 63, packed[group + 4] & 63
        else:
            a = packed[group + 4] & 15 | packed[group - 4] >> 6 << 4
            b = packed[group + 4] >> 4 | packed[group] >> 6 << 4
        shift = 4 * (group % 2)
        for byte in numbers[group // 2 * 32 :][:32]:
            values.append(scale * a * (byte >> shift & 15) - minimum * b)
    return values


@pytest.mark.parametrize("kind", [Type.F16, Type.Q5_0, Type.Q5_1, Type.Q8_0, Type.Q4_0])
@pytest.mark.parametrize("packed", [False, True])
def test_every_block_type_gives_a_whole_model(
    tmp_path: Path, paths: Paths, kind: Type, packed: bool
) -> None:
    file = Sample(type=kind).write(tmp_path / "x.gguf")
    path = import_gguf(file, paths.models, "local/x", packed=packed)
    assert ModelLibrary(paths, {}).find("local/x") == path
    quantization = json.loads((path / "config.json").read_text()).get("quantization")
    bits = {Type.Q8_0: 8, Type.Q4_0: 4}.get(kind) if packed else None
    expected = None if bits is None else {"group_size": 32, "bits": bits, "mode": "affine"}
    assert quantization == expected


def _key(name: str, value: Any) -> Callable[[Sample], None]:
    return lambda sample: sample.keys.update({name: value})


def _without_key(name: str) -> Callable[[Sample], None]:
    return lambda sample: sample.keys.pop(name)


def _tensor(name: str, shape: tuple[int, ...], kind: Type = Type.F32) -> Callable[[Sample], None]:
    def change(sample: Sample) -> None:
        sample.tensors[name] = np.ones(shape, dtype=np.float32)
        sample.types[name] = kind

    return change


def _without_tensor(name: str) -> Callable[[Sample], None]:
    return lambda sample: sample.tensors.pop(name)


@pytest.mark.parametrize(
    ("change", "error", "reason"),
    [
        (_key("llama.expert_count", 8), UnsupportedModelError, "mixture of experts"),
        (_key("split.count", 2), UnsupportedModelError, "split into several"),
        (_key("llama.rope.scaling.type", "yarn"), UnsupportedModelError, "rope scaling .* yarn"),
        (_key("llama.rope.dimension_count", 8), UnsupportedModelError, "8 rotated"),
        (_key("llama.attention.head_count", [2, 2]), UnsupportedModelError, "head_count differs"),
        (_key("tokenizer.ggml.model", "llama"), UnsupportedModelError, '"llama" .SentencePiece'),
        (_key("tokenizer.ggml.pre", "tekken"), UnsupportedModelError, 'pre-tokenizer "tekken"'),
        (_tensor("rope_freqs.weight", (7,)), UnsupportedModelError, "rope_freqs.weight"),
        (_tensor("blk.0.attn_q.bias", (32,)), UnsupportedModelError, "blk.0.attn_q.bias"),
        (
            _tensor("blk.1.ffn_up.weight", (64, 32), Type.F64),
            UnsupportedModelError,
            "blk.1.ffn_up.weight has the quantisation type F64",
        ),
        (
            _tensor("blk.1.ffn_up.weight", (64, 32), Type.Q8_1),
            UnsupportedModelError,
            "blk.1.ffn_up.weight has the quantisation type Q8_1",
        ),
        (_without_key("llama.block_count"), BrokenModelError, "llama.block_count is missing"),
        (_key("llama.block_count", 0), BrokenModelError, "llama.block_count is 0"),
        (_key("llama.block_count", 3), BrokenModelError, "blk.2.attn_norm.weight is missing"),
        (_key("llama.block_count", 1), UnsupportedModelError, "blk.1.* is not part of a llama"),
        (_key("llama.context_length", "long"), BrokenModelError, "wrong type"),
        (_key("llama.attention.head_count_kv", 3), BrokenModelError, "3 key heads do not fit"),
        (_without_key("tokenizer.ggml.pre"), BrokenModelError, "tokenizer.ggml.pre is missing"),
        (_without_key("tokenizer.ggml.eos_token_id"), BrokenModelError, "eos_token_id is missing"),
        (_key("tokenizer.ggml.eos_token_id", 9999), BrokenModelError, "is not a token"),
        (_key("tokenizer.ggml.merges", ["no such"]), BrokenModelError, 'merge "no such"'),
        (_key("tokenizer.ggml.tokens", ["a"] * 9), BrokenModelError, "twice"),
        (_key("tokenizer.ggml.tokens", [f"t{i}" for i in range(999)]), BrokenModelError, "999 tok"),
        (_key("tokenizer.ggml.token_type", [1]), BrokenModelError, "token_type"),
        (_without_tensor("token_embd.weight"), BrokenModelError, "token_embd.weight is missing"),
        (_without_tensor("blk.1.attn_k.weight"), BrokenModelError, "blk.1.attn_k.weight is miss"),
        (_tensor("blk.0.attn_k.weight", (8, 32)), BrokenModelError, "blk.0.attn_k.weight has the"),
    ],
)
def test_what_cannot_be_imported_is_refused_with_the_reason(
    tmp_path: Path, change: Callable[[Sample], None], error: type[StoreError], reason: str
) -> None:
    sample = Sample()
    change(sample)
    file = sample.write(tmp_path / "x.gguf")
    with pytest.raises(error, match=reason):
        import_gguf(file, tmp_path / "models", "local/x")
    assert not (tmp_path / "models").exists()


def test_another_architecture_is_refused_by_name(tmp_path: Path) -> None:
    file = Sample(architecture="mamba").write(tmp_path / "x.gguf")
    with pytest.raises(UnsupportedModelError, match='architecture "mamba"') as caught:
        import_gguf(file, tmp_path / "models", "local/x")
    assert caught.value.hint == "supported architectures: llama, qwen2, qwen3"


@pytest.mark.parametrize(
    ("content", "error", "reason"),
    [
        (b"", BrokenModelError, "not a GGUF file"),
        (b"GGML\x03\0\0\0", BrokenModelError, "not a GGUF file"),
        (b"GGUF\x03\0", BrokenModelError, "truncated"),
        (b"GGUF\x01\0\0\0", UnsupportedModelError, "version 1"),
        (b"GGUF\0\0\0\x03", UnsupportedModelError, "big-endian"),
        # A list of 2^60 numbers in a file of 64 bytes.
        (
            b"GGUF\x03\0\0\0" + bytes(8) + b"\x01" + bytes(7) + b"\x01" + bytes(7) + b"k"
            + b"\x09\0\0\0" + b"\x04\0\0\0" + b"\0" * 7 + b"\x10" + bytes(16),
            BrokenModelError,
            "a count runs past the end",
        ),
    ],
)  # fmt: skip
def test_a_file_that_is_not_whole_is_refused(
    tmp_path: Path, content: bytes, error: type[StoreError], reason: str
) -> None:
    file = tmp_path / "x.gguf"
    file.write_bytes(content)
    with pytest.raises(error, match=reason):
        import_gguf(file, tmp_path / "models", "local/x")


def test_a_missing_file_is_named(tmp_path: Path) -> None:
    with pytest.raises(FileAccessError, match=r"gone\.gguf: No such file"):
        import_gguf(tmp_path / "gone.gguf", tmp_path / "models", "local/x")


def test_a_file_cut_in_its_data_names_the_tensor(tmp_path: Path) -> None:
    file = Sample().write(tmp_path / "x.gguf")
    file.write_bytes(file.read_bytes()[:-100])
    with pytest.raises(BrokenModelError, match=r"truncated: tensor blk.1.ffn_down.weight ends"):
        import_gguf(file, tmp_path / "models", "local/x")


@pytest.fixture(scope="module")
def sample_bytes(tmp_path_factory: pytest.TempPathFactory) -> bytes:
    sample = Sample(layers=1, type=Type.Q4_1)
    return sample.write(tmp_path_factory.mktemp("gguf") / "x.gguf").read_bytes()


def _import_bytes(content: bytes, *, packed: bool = False) -> bool:
    """Whether these bytes were imported; any error but ours fails the test."""
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder, "x.gguf")
        file.write_bytes(content)
        try:
            path = import_gguf(file, Path(folder, "models"), "local/x", packed=packed)
        except StoreError:
            models = Path(folder, "models")
            assert not models.exists() or list(models.iterdir()) == []
            return False
        assert (path / "config.json").exists()
        return True


@given(data=st.data())
@settings(deadline=None)
def test_a_truncated_file_is_always_refused(sample_bytes: bytes, data: st.DataObject) -> None:
    length = data.draw(st.integers(0, len(sample_bytes) - 1))
    # The file ends with padding, which nobody reads.
    refused = not _import_bytes(sample_bytes[:length])
    assert refused or sample_bytes[length:].strip(b"\0") == b""


@given(data=st.data(), packed=st.booleans())
@settings(deadline=None, max_examples=200)
def test_flipped_bytes_never_escape_as_another_error(
    sample_bytes: bytes, data: st.DataObject, packed: bool
) -> None:
    content = bytearray(sample_bytes)
    for _ in range(data.draw(st.integers(1, 4))):
        # Half of the sample is header: metadata, vocabulary, table of tensors.
        content[data.draw(st.integers(0, len(content) - 1))] = data.draw(st.integers(0, 255))
    _import_bytes(bytes(content), packed=packed)


def test_progress_counts_every_byte_and_names_tensors(tmp_path: Path, paths: Paths) -> None:
    seen: list[tuple[str, int, int | None, str]] = []

    def report(*progress: Any) -> None:
        seen.append(progress)

    path = import_gguf(Sample().write(tmp_path / "x.gguf"), paths.models, "local/x", report=report)
    assert seen[0][3] == "model.embed_tokens.weight"
    assert [done for _, done, _, _ in seen] == sorted(done for _, done, _, _ in seen)
    index = json.loads((path / "model.safetensors.index.json").read_text())
    assert seen[-1][1] == seen[-1][2] == index["metadata"]["total_size"]
    assert set(index["weight_map"]) == {item for _, _, _, item in seen[:-1]}


def test_a_taken_id_is_refused_unless_it_is_to_be_replaced(tmp_path: Path, paths: Paths) -> None:
    file = Sample().write(tmp_path / "x.gguf")
    import_gguf(file, paths.models, "local/x")
    with pytest.raises(ModelExistsError, match="local/x is already"):
        import_gguf(file, paths.models, "local/x")
    other = Sample(layers=3).write(tmp_path / "y.gguf")
    path = import_gguf(other, paths.models, "local/x", replace=True)
    assert json.loads((path / "config.json").read_text())["num_hidden_layers"] == 3
    assert [entry.name for entry in paths.models.iterdir()] == ["local--x"]


def test_a_model_larger_than_the_disk_is_refused_before_work(tmp_path: Path) -> None:
    sample = Sample()
    file = sample.write(tmp_path / "x.gguf")
    models = tmp_path / "models"
    # A sparse file with a huge embedding: it costs nothing until it would be converted.
    rows = 2**40 // 32
    content = file.read_bytes()
    old = (32).to_bytes(8, "little") + len(TOKENS).to_bytes(8, "little")
    new = (32).to_bytes(8, "little") + rows.to_bytes(8, "little")
    assert content.count(old) == 1
    with file.open("wb") as stream:
        stream.write(content.replace(old, new))
        try:
            stream.truncate(2**43)
        except OSError:
            pytest.skip("this file system has no files of that size")
    with pytest.raises(NoSpaceError, match=r"needs .* GiB"):
        import_gguf(file, models, "local/x")
    assert list(models.iterdir()) == []


@pytest.mark.parametrize(
    ("rule", "text", "words"),
    [
        ("gpt-2", "In 2024, it's", ["In", " 2024", ",", " it", "'s"]),
        ("smollm", "In 2024, it's", ["In", " ", "2", "0", "2", "4", ",", " it", "'s"]),
        ("llama-bpe", "In 2024, IT'S\n\n", ["In", " ", "202", "4", ",", " IT", "'S", "\n\n"]),
        ("llama3", "(abc)", ["(abc", ")"]),
        ("qwen2", "In 2024 e\u0301", ["In", " ", "2", "0", "2", "4", " \u00e9"]),
    ],
)
def test_each_pre_tokenizer_splits_as_its_family_does(
    tmp_path: Path, rule: str, text: str, words: list[str]
) -> None:
    sample = Sample()
    sample.keys["tokenizer.ggml.pre"] = rule
    path = import_gguf(sample.write(tmp_path / "x.gguf"), tmp_path / "models", "local/x")
    tokenizer = Tokenizer.from_file(str(path / "tokenizer.json"))
    if tokenizer.normalizer is not None:
        text = tokenizer.normalizer.normalize_str(text)
    pieces = tokenizer.pre_tokenizer.pre_tokenize_str(text)
    found = [tokenizer.decoder.decode([piece]) for piece, _ in pieces]
    assert found == words


@pytest.mark.parametrize(
    ("rule", "said", "starts"),
    [
        ("llama-bpe", None, True),
        ("llama-bpe", False, False),
        ("smollm", None, False),
        ("smollm", True, True),
    ],
)
def test_bos_is_added_when_the_file_or_its_family_says_so(
    tmp_path: Path, rule: str, said: bool | None, starts: bool
) -> None:
    sample = Sample()
    sample.keys["tokenizer.ggml.pre"] = rule
    if said is not None:
        sample.keys["tokenizer.ggml.add_bos_token"] = said
    path = import_gguf(sample.write(tmp_path / "x.gguf"), tmp_path / "models", "local/x")
    ids = Tokenizer.from_file(str(path / "tokenizer.json")).encode("hello").ids
    assert ids == [1] * starts + [TOKENS.index("hello")]


def test_added_tokens_are_found_in_text(tmp_path: Path) -> None:
    sample = Sample()
    tokens = [*TOKENS, "<tool>"]
    sample.keys["tokenizer.ggml.tokens"] = tokens
    sample.keys["tokenizer.ggml.token_type"] = [3] * len(SPECIAL) + [1] * (len(TOKENS) - 3) + [4]
    sample.tensors["token_embd.weight"] = np.ones((len(tokens), 32), dtype=np.float32)
    path = import_gguf(sample.write(tmp_path / "x.gguf"), tmp_path / "models", "local/x")
    tokenizer = Tokenizer.from_file(str(path / "tokenizer.json"))
    assert tokenizer.encode("a<tool>").ids == [3 + BYTES.index("a"), len(TOKENS)]
    assert tokenizer.decode([len(TOKENS)]) == "<tool>"
