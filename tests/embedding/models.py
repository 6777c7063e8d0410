"""Small embedding models with random weights and real files: an encoder and a decoder."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

import numpy as np
from tokenizers import Tokenizer
from tokenizers.models import WordPiece
from tokenizers.normalizers import BertNormalizer
from tokenizers.pre_tokenizers import BertPreTokenizer
from tokenizers.processors import TemplateProcessing

from skulkd.store.cards.from_config import card_from_config
from skulkd.store.imports.tiny_model import make_tiny_model
from skulkd.store.model_directory import write_card
from skulkd.store.safetensors_file import SafetensorsWriter, TensorSpec

ENCODER_ID = "org/tiny-bert"
DECODER_ID = "org/tiny-embedding-llama"
LIMIT = 48
HIDDEN = 32
CONFIG: dict[str, Any] = {
    "architectures": ["BertModel"],
    "model_type": "bert",
    "hidden_size": HIDDEN,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "intermediate_size": 64,
    "max_position_embeddings": 64,
    "type_vocab_size": 2,
    "layer_norm_eps": 1e-12,
    "hidden_act": "gelu",
}
_CHARACTERS = "abcdefghijklmnopqrstuvwxyz0123456789.,!?"


def make_tiny_encoder(models: Path, model_id: str = ENCODER_ID) -> Path:
    """A BERT of two layers that pools by mean and normalises, as its files say."""
    directory = models / model_id.replace("/", "--")
    directory.mkdir(parents=True)
    tokenizer = _tokenizer()
    tokenizer.save(str(directory / "tokenizer.json"))
    config = {**CONFIG, "vocab_size": tokenizer.get_vocab_size()}
    (directory / "config.json").write_text(json.dumps(config))
    random = np.random.default_rng(7)
    specs = [TensorSpec(name, "F32", shape) for name, shape in _shapes(config).items()]
    with SafetensorsWriter(directory / "model.safetensors", specs) as writer:
        for spec in specs:
            values = np.asarray(random.standard_normal(spec.shape) * 0.2, dtype="<f4")
            writer.write(values.data.cast("B"))
    (directory / "sentence_bert_config.json").write_text(json.dumps({"max_seq_length": LIMIT}))
    add_modules(directory, "pooling_mode_mean_tokens")
    size = (directory / "model.safetensors").stat().st_size
    write_card(directory, card_from_config(model_id, config, size, embeds=True))
    return directory


def make_tiny_embedding_decoder(models: Path, model_id: str = DECODER_ID) -> Path:
    """The tiny llama as an embedding model whose card allows shorter vectors."""
    directory = models / model_id.replace("/", "--")
    shutil.copytree(make_tiny_model(models.parent / "source"), directory)
    add_modules(directory, "pooling_mode_lasttoken")
    config = json.loads((directory / "config.json").read_text())
    card = card_from_config(model_id, config, 1_000_000, embeds=True)
    write_card(
        directory, card.model_copy(update={"capabilities": [*card.capabilities, "matryoshka"]})
    )
    return directory


def add_modules(directory: Path, *modes: str) -> None:
    """What sentence embedding models say about the steps after the model."""
    steps = {"Transformer": "", "Pooling": "1_Pooling", "Normalize": "2_Normalize"}
    modules = [
        {"idx": at, "name": str(at), "path": path, "type": f"sentence_transformers.models.{kind}"}
        for at, (kind, path) in enumerate(steps.items())
    ]
    (directory / "modules.json").write_text(json.dumps(modules))
    (directory / "1_Pooling").mkdir()
    pooling = {"word_embedding_dimension": HIDDEN, **dict.fromkeys(modes, True)}
    (directory / "1_Pooling" / "config.json").write_text(json.dumps(pooling))


def _tokenizer() -> Tokenizer:
    special = ["[PAD]", "[UNK]", "[CLS]", "[SEP]"]
    tokens = [*special, *_CHARACTERS, *(f"##{character}" for character in _CHARACTERS)]
    vocabulary = {token: number for number, token in enumerate(tokens)}
    tokenizer = Tokenizer(WordPiece(vocabulary, unk_token="[UNK]"))
    tokenizer.normalizer = BertNormalizer()
    tokenizer.pre_tokenizer = BertPreTokenizer()
    tokenizer.post_processor = TemplateProcessing(
        single="[CLS] $A [SEP]", special_tokens=[("[CLS]", 2), ("[SEP]", 3)]
    )
    # Real files have these, and they must not be heeded.
    tokenizer.enable_truncation(16)
    tokenizer.enable_padding(length=16)
    return tokenizer


def _shapes(config: dict[str, Any]) -> dict[str, tuple[int, ...]]:
    """Every weight, as BERT's files name it, and one that is no part of the encoder."""
    hidden, inner = config["hidden_size"], config["intermediate_size"]
    shapes: dict[str, tuple[int, ...]] = {
        "embeddings.word_embeddings.weight": (config["vocab_size"], hidden),
        "embeddings.position_embeddings.weight": (config["max_position_embeddings"], hidden),
        "embeddings.token_type_embeddings.weight": (config["type_vocab_size"], hidden),
        "embeddings.LayerNorm.weight": (hidden,),
        "embeddings.LayerNorm.bias": (hidden,),
        "pooler.dense.weight": (hidden, hidden),
    }
    for layer in range(config["num_hidden_layers"]):
        for name, size in {
            "attention.self.query": (hidden, hidden),
            "attention.self.key": (hidden, hidden),
            "attention.self.value": (hidden, hidden),
            "attention.output.dense": (hidden, hidden),
            "intermediate.dense": (inner, hidden),
            "output.dense": (hidden, inner),
        }.items():
            shapes[f"encoder.layer.{layer}.{name}.weight"] = size
            shapes[f"encoder.layer.{layer}.{name}.bias"] = size[:1]
        for name in ("attention.output.LayerNorm", "output.LayerNorm"):
            shapes[f"encoder.layer.{layer}.{name}.weight"] = (hidden,)
            shapes[f"encoder.layer.{layer}.{name}.bias"] = (hidden,)
    return shapes
