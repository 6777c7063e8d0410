"""Compiles a `libnvidia-ml.so.1` that answers from recordings, for processes of tests to load."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

RECORDINGS = Path(__file__).parent / "data/nvml"


def build_nvml(into: Path) -> Path:
    """The directory with the library; skips where there is no compiler, or no Linux."""
    compiler = shutil.which("cc") or shutil.which("gcc")
    if sys.platform != "linux" or compiler is None:
        pytest.skip("needs Linux and a C compiler to build a stand-in for the NVIDIA driver")
    subprocess.run(
        [compiler, "-shared", "-fPIC", "-o", into / "libnvidia-ml.so.1",
         RECORDINGS / "nvml.c"],
        check=True,
        timeout=600,
    )  # fmt: skip
    return into


def nvml_environ(library: Path, recording: str) -> dict[str, str]:
    """Variables with which a process finds the library and this recording."""
    path = RECORDINGS / f"{recording}.txt"
    assert path.is_file()
    searched = [str(library), *filter(None, [os.environ.get("LD_LIBRARY_PATH")])]
    return {"LD_LIBRARY_PATH": ":".join(searched), "NVML_RECORDING": str(path)}
