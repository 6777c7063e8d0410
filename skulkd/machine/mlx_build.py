"""Which build of MLX is installed here: its distributions say so, and nothing is imported."""

import sys
from functools import cache
from importlib.metadata import PackageNotFoundError, version
from typing import Literal

MlxBuild = Literal["metal", "cuda", "cpu"]
_CUDA = ("mlx-cuda-12", "mlx-cuda-13")
_CPU = "mlx-cpu"


@cache
def mlx_build() -> MlxBuild:
    """What runners here compute on. Where two builds are installed, CUDA is meant."""
    if sys.platform == "darwin":
        return "metal"
    return "cuda" if any(map(_is_installed, _CUDA)) else "cpu"


@cache
def installed_builds() -> tuple[str, ...]:
    """The distributions that bring MLX's library; more than one overwrite each other's files."""
    return tuple(name for name in (*_CUDA, _CPU) if _is_installed(name))


def _is_installed(distribution: str) -> bool:
    try:
        version(distribution)
    except PackageNotFoundError:
        return False
    return True
