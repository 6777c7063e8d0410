"""Weights of a loaded model in the order in which few rows of input read them fastest.

mlx-lm stores a matrix output by output. For the few rows of a decoding step a BLAS first copies
such a matrix, or reads it with long strides. In panels (64 outputs wide, one input after another)
it streams through memory as it is. A short measurement at load chooses; there is one copy only.
"""

# MLX leaves its modules untyped.
# mypy: allow-untyped-calls

import math
import time
from collections.abc import Callable, Iterable
from typing import Any

import mlx.core as mx
from mlx.nn.layers.base import Module
from mlx.nn.layers.embedding import Embedding
from mlx.nn.layers.linear import Linear

PANEL = 64
# Below this a matrix is in a core's cache, and what counts is the number of operations.
LEAST_WEIGHTS = 1 << 16
_SAMPLE_WEIGHTS = 1 << 21
_SAMPLE_ROWS = (1, 8)
_SAMPLES = 5
# Panels must be this much faster: a measurement on a busy machine is off by a few percent.
_MARGIN = 0.9

# How wide panels are, for a number of outputs and of cores that share the matrix.
Layout = Callable[[int, int], int]
LAYOUTS: dict[str, Layout] = {
    "panels": lambda _outputs, _cores: PANEL,
    # One panel for each core: what a BLAS without small kernels reads fastest.
    "columns": lambda outputs, cores: -(-outputs // cores),
}
ROWS = "rows"


class _Panels(Module):
    """`panels` is [blocks, inputs, width]; beyond the last of `outputs` there are zeros."""

    panels: mx.array
    outputs: int

    def __getattr__(self, key: str) -> Any:
        if key != "weight":
            return super().__getattr__(key)
        # For a model that looks at the weights itself: a copy, as mlx-lm stores them.
        blocks, inputs, width = self.panels.shape
        return self.panels.swapaxes(1, 2).reshape(blocks * width, inputs)[: self.outputs]

    def product(self, x: mx.array) -> mx.array:
        panels = self["panels"]
        blocks, inputs, width = panels.shape
        shape = x.shape
        if len(shape) != 3 or shape[0] != 1:
            x = x.reshape(-1, inputs)
        result: mx.array = x @ panels
        if blocks > 1 and result.shape[1] > 1:
            result = result.swapaxes(0, 1)
        result = result.reshape(*shape[:-1], blocks * width)
        return result if self.outputs == blocks * width else result[..., : self.outputs]


class PanelLinear(_Panels, Linear):
    def __call__(self, x: mx.array) -> mx.array:
        result = self.product(x)
        return result + self["bias"] if "bias" in self else result


class PanelEmbedding(_Panels, Embedding):
    def __call__(self, x: mx.array) -> mx.array:
        panels = self["panels"]
        width = panels.shape[-1]
        found: mx.array = panels.swapaxes(1, 2)[x // width, x % width]
        return found

    def as_linear(self, x: mx.array) -> mx.array:
        return self.product(x)


_KINDS: dict[type[Module], type[_Panels]] = {Linear: PanelLinear, Embedding: PanelEmbedding}


def arrange(roots: Iterable[Module], cores: int) -> str:
    """Store large float32 matrices in the order that is fastest here; the name of that order.

    For modules that are in memory and do not change any more.
    """
    found = [module for root in roots for module in root.modules() if _is_large(module)]
    heads = {module.weight.shape[0] for module in found if type(module) is Linear}
    # An embedding only computes where the model has no head of its own.
    matrices = [m for m in found if type(m) is Linear or m.weight.shape[0] not in heads]
    if not matrices:
        return ROWS
    name = _fastest(matrices, cores)
    if name != ROWS:
        for module in matrices:
            rearrange(module, LAYOUTS[name](module.weight.shape[0], cores))
    return name


def rearrange(module: Any, width: int) -> None:
    """Replace the weights of a module by panels of this width."""
    weight = module.weight
    outputs, inputs = weight.shape
    blocks = -(-outputs // width)
    if missing := blocks * width - outputs:
        weight = mx.concatenate([weight, mx.zeros((missing, inputs), weight.dtype)])
    panels = mx.contiguous(weight.reshape(blocks, width, inputs).swapaxes(1, 2))
    mx.eval(panels)
    del module["weight"]
    module["panels"] = panels
    vars(module)["outputs"] = outputs
    module.__class__ = _KINDS[type(module)]


def _is_large(module: Any) -> bool:
    return (
        type(module) in _KINDS
        and module.weight.dtype == mx.float32
        and module.weight.size >= LEAST_WEIGHTS
    )


def _fastest(matrices: list[Any], cores: int) -> str:
    """The name of the order in which one matrix of every shape takes the least time."""
    samples = {module.weight.shape: module.weight for module in matrices}
    taken = dict.fromkeys((ROWS, *LAYOUTS), 0.0)
    for weight in samples.values():
        outputs, inputs = weight.shape
        part = min(outputs, max(PANEL * cores, _SAMPLE_WEIGHTS // inputs))
        for name, seconds in _measured(weight[:part], cores).items():
            taken[name] += seconds / part * outputs
    best = min(taken, key=lambda name: taken[name])
    return best if taken[best] < _MARGIN * taken[ROWS] else ROWS


def _measured(weight: mx.array, cores: int) -> dict[str, float]:
    """What a row takes in each order, alone and among several.

    The orders take turns, so that a busy moment of the machine hits all of them.
    """
    modules = {name: _sample(name, weight, cores) for name in (ROWS, *LAYOUTS)}
    taken = dict.fromkeys(modules, 0.0)
    for rows in _SAMPLE_ROWS:
        given = mx.ones((1, rows, weight.shape[1]))
        mx.eval(given)
        best = dict.fromkeys(modules, math.inf)
        for _ in range(_SAMPLES):
            for name, module in modules.items():
                started = time.perf_counter()
                mx.eval(module(given))
                best[name] = min(best[name], time.perf_counter() - started)
        for name, seconds in best.items():
            taken[name] += seconds / rows
    return taken


def _sample(name: str, weight: mx.array, cores: int) -> Any:
    module: Any = Linear(1, 1, bias=False)
    module.weight = weight
    if name != ROWS:
        rearrange(module, LAYOUTS[name](weight.shape[0], cores))
    return module
