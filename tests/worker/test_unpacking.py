"""Whether weights are unpacked into float32: the setting, the files and the free memory decide."""

from __future__ import annotations

import json
from fractions import Fraction
from pathlib import Path
from typing import Any

import pytest

from skulkd.placement.memory import float32_need
from skulkd.wire.base import Memory
from skulkd.wire.machine import MemoryUsage
from skulkd.worker.unpacking import growth_of, unpacks
from tests.worker.rig import a_card, an_instance

GIB = 1024**3
PACKED = Fraction(32) / Fraction(9, 2)
INSTANCE = an_instance(a_card()).model_copy(update={"context_token_limit": 1024})
[RUNNER] = INSTANCE.shard_assignments.runner_to_shard
NEED = float32_need(a_card(), PACKED, tokens=1024).total_bytes


def memory(available: int) -> MemoryUsage:
    none = Memory.of(0)
    return MemoryUsage(
        ram_total=Memory.of(1024 * GIB),
        ram_available=Memory.of(available),
        swap_total=none,
        swap_available=none,
    )


@pytest.mark.parametrize(
    ("setting", "growth", "free", "expected"),
    [
        pytest.param("auto", PACKED, NEED + 1, True, id="fits"),
        pytest.param("auto", PACKED, NEED, False, id="does not fit"),
        pytest.param("auto", Fraction(1), 1024 * GIB, False, id="is float32 already"),
        pytest.param("auto", None, 1024 * GIB, False, id="nobody knows how much it takes"),
        pytest.param("on", PACKED, 0, True, id="always"),
        pytest.param("off", PACKED, 1024 * GIB, False, id="never"),
    ],
)
def test_weights_are_unpacked_when_they_fit(
    setting: Any, growth: Fraction | None, free: int, expected: bool
) -> None:
    assert unpacks(setting, growth, INSTANCE, RUNNER, memory(free)) is expected


def test_a_longer_context_needs_room_for_its_keys_and_values() -> None:
    card = a_card().model_copy(update={"num_key_value_heads": 4})
    short, long = (float32_need(card, PACKED, tokens=tokens) for tokens in (1024, 4096))
    assert long.kv_bytes == 4 * short.kv_bytes > 0


@pytest.mark.parametrize(
    ("config", "growth"),
    [
        pytest.param({"quantization": {"bits": 4, "group_size": 64}}, PACKED, id="4 bits"),
        pytest.param({"quantization": {"bits": 8, "group_size": 32}}, Fraction(32, 9), id="8 bits"),
        pytest.param({"torch_dtype": "bfloat16"}, Fraction(2), id="half precision"),
        pytest.param({"text_config": {"dtype": "float32"}}, Fraction(1), id="float32"),
        pytest.param({"quantization": {"mode": "odd"}}, None, id="unknown packing"),
        pytest.param({}, None, id="nothing said"),
        pytest.param([], None, id="no configuration at all"),
    ],
)
def test_the_files_say_how_much_larger_weights_become(
    tmp_path: Path, config: object, growth: Fraction | None
) -> None:
    (tmp_path / "config.json").write_text(json.dumps(config))
    assert growth_of(tmp_path) == growth


def test_files_that_cannot_be_read_say_nothing(tmp_path: Path) -> None:
    assert growth_of(tmp_path) is None
    (tmp_path / "config.json").write_text("{")
    assert growth_of(tmp_path) is None
