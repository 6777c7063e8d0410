"""Giving MLX another BLAS, on the library that is installed here."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

ROOT = Path(__file__).parents[2]

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="other systems have a fast BLAS")


@pytest.fixture(scope="module")
def seen() -> dict[str, Any]:
    done = subprocess.run(
        [sys.executable, "-m", "tests.runner.blas_check"],
        cwd=ROOT, capture_output=True, text=True, timeout=300, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    result: dict[str, Any] = json.loads(done.stdout)
    return result


def test_mlx_multiplies_with_the_bundled_library_and_gets_the_same(seen: dict[str, Any]) -> None:
    assert (seen["name"], seen["problem"]) == ("bundled OpenBLAS", None)
    assert seen["changed"]
    assert seen["far"] < 1e-4


@pytest.mark.parametrize(
    ("way", "why"),
    [
        ("wrong", "multiplies differently"),
        ("no slot", "no slot for cblas_sgemm"),
        ("not loaded", "loaded 0 times"),
        ("no file", "/nowhere/libblas.so"),
        ("no function", "no function cblas_sgemm"),
    ],
)
def test_what_does_not_fit_is_told_and_leaves_mlx_as_it_was(
    seen: dict[str, Any], way: str, why: str
) -> None:
    assert why in seen["said"][way]
    assert seen["untouched"]


def test_off_is_no_problem(seen: dict[str, Any]) -> None:
    assert seen["said"]["off"] is None


def test_slots_in_read_only_memory_can_be_changed_unless_it_is_sealed(
    seen: dict[str, Any],
) -> None:
    assert seen["read_only"] == [0, 7]
    if seen["said"]["sealed"] is None:
        pytest.skip("this kernel cannot seal memory")
    assert "sealed" in seen["said"]["sealed"]
