"""Imports a GGUF file as a complete model directory. Runs in a child process, without MLX."""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from skulkd.store.atomic_directory import (
    Report,
    build_model,
    no_report,
    refuse_existing,
    require_space,
)
from skulkd.store.cards.from_config import card_from_config
from skulkd.store.errors import FileAccessError
from skulkd.store.imports.gguf_config import GgufModel, read_shape
from skulkd.store.imports.gguf_file import GgufFile, open_gguf
from skulkd.store.imports.gguf_weights import (
    Weight,
    convert,
    plan_weights,
    quantization_config,
    read_factors,
)
from skulkd.store.imports.tokenizer import GgufTokenizer, read_tokenizer, write_tokenizer
from skulkd.store.model_directory import WEIGHTS_FILE, write_card, write_index, write_json
from skulkd.store.model_ids import check_model_id
from skulkd.store.safetensors_file import SafetensorsWriter


@dataclass(frozen=True, slots=True)
class _Plan:
    """Everything that can fail is checked before a byte is written."""

    file: GgufFile
    shape: GgufModel
    tokenizer: GgufTokenizer
    weights: Sequence[Weight]

    @property
    def size_bytes(self) -> int:
        return sum(spec.size_bytes for weight in self.weights for spec in weight.specs)


def import_gguf(
    source: Path,
    models: Path,
    model_id: str,
    *,
    packed: bool = False,
    replace: bool = False,
    report: Report = no_report,
) -> Path:
    """Import `source` as `model_id` and return its directory.

    Weights become 32-bit floats, the fastest form on a CPU; with `packed` 4- and 8-bit blocks
    stay as they are, for accelerators. Raises StoreError; nothing is left behind then.
    """
    check_model_id(model_id)
    plan = _plan(source, packed=packed)
    # Before any work, so that a taken id costs nothing.
    refuse_existing(models, model_id, replace=replace)
    try:
        models.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise FileAccessError.of(error, models) from error
    require_space(models, plan.size_bytes)
    with build_model(models, model_id, replace=replace) as directory:
        _write_weights(directory, plan, report)
        _write_documents(directory, plan, model_id)
    return models / directory.name


def _plan(source: Path, *, packed: bool) -> _Plan:
    file = open_gguf(source)
    shape = read_shape(file, read_factors(file))
    tokenizer = read_tokenizer(file.metadata, shape.vocabulary)
    return _Plan(file, shape, tokenizer, plan_weights(file, shape, packed=packed))


def _write_weights(directory: Path, plan: _Plan, report: Report) -> None:
    total = plan.size_bytes
    done = 0
    specs = [spec for weight in plan.weights for spec in weight.specs]
    with SafetensorsWriter(directory / WEIGHTS_FILE, specs) as writer:
        for weight in plan.weights:
            report("convert", done, total, weight.name)
            for array in convert(weight, plan.file.read(weight.source)):
                writer.write(array.data.cast("B"))
                done += array.nbytes
    report("convert", done, total, WEIGHTS_FILE)


def _write_documents(directory: Path, plan: _Plan, model_id: str) -> None:
    tokenizer = plan.tokenizer
    write_tokenizer(
        directory,
        tokenizer.vocabulary,
        tokenizer.rule,
        tokenizer.special,
        tokenizer.chat_template,
        plan.shape.context,
    )
    config = _config(plan)
    write_json(directory / "config.json", config)
    names = [spec.name for weight in plan.weights for spec in weight.specs]
    write_index(directory, dict.fromkeys(names, WEIGHTS_FILE), plan.size_bytes)
    write_card(
        directory, card_from_config(model_id, config, plan.size_bytes, tokenizer.chat_template)
    )


def _config(plan: _Plan) -> dict[str, Any]:
    config = plan.shape.to_config() | plan.tokenizer.special.generation_config()
    quantization = quantization_config(list(plan.weights))
    packed = any(weight.dtype == "F16" for weight in plan.weights)
    config["torch_dtype"] = "float16" if packed else "float32"
    if quantization is not None:
        config["quantization"] = quantization
    return config
