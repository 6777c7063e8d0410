"""Large matrices of a loaded model, computed on several cores.

On a CPU an MLX stream is one thread, so one stream leaves the other cores idle. Large matrices are
cut by outputs: every part is computed on a stream of its own and the results are joined. Each
output is the same sum as before, and the parts are views, so neither answers nor memory change.
Matrices in panels (`panels.py`) are cut between panels.
"""

# MLX leaves its modules untyped.
# mypy: allow-untyped-calls

import copy
import math
import time
from collections.abc import Callable, Iterable
from functools import partial
from itertools import pairwise
from typing import Any, NamedTuple

import mlx.core as mx
from mlx.nn.layers.base import Module
from mlx.nn.layers.embedding import Embedding
from mlx.nn.layers.linear import Linear
from mlx.nn.layers.quantized import QuantizedEmbedding, QuantizedLinear

from skulkd.runner.cpu.panels import PanelEmbedding, PanelLinear

# A core must have this much to do: to wake its thread and to wait for it takes about a tenth of a
# millisecond.
PART_S = 0.000_12
# A cut that pays only for more rows than a step of one prompt has is not made: every other step
# would pay for looking at it.
_MOST_ROWS = 1 << 11
# Matrix libraries work in blocks of outputs; a cut inside of one may round differently.
_BLOCK = 32
_SAMPLE_WEIGHTS = 1 << 18
_SAMPLE_ROWS = 8
_SAMPLES = 4
Compute = Callable[[Any, mx.array], mx.array]


def spread(modules: Iterable[Module], cores: int, part_s: float = PART_S) -> int:
    """Let large matrices use so many cores where that pays. Returns how many are used at most.

    For modules that are in memory and do not change any more: other weights would not be seen.
    """
    streams = [mx.new_stream(mx.cpu) for _ in range(cores - 1)]
    paces: dict[tuple[object, ...], Pace] = {}
    used = 1
    for module in (inner for root in modules for inner in root.modules()) if streams else ():
        kind = _KINDS.get(type(module))
        if kind is None:
            continue
        alike = _speed_class(module)
        if alike not in paces:
            paces[alike] = _measured(module, kind.plain)
        cuts = _cuts(module, kind.plain, paces[alike], part_s, streams)
        if cuts:
            vars(module)["cuts"] = cuts
            module.__class__ = kind
            used = max(used, *(len(cut.parts) + 1 for cut in cuts))
    return used


class Pace(NamedTuple):
    """Seconds that one weight takes: once in a step, and for every row of it."""

    once_s: float
    row_s: float

    @classmethod
    def of(cls, weights: int, one_s: float, many_s: float, many: int) -> "Pace":
        """From what `weights` took with one row and with `many`."""
        row_s = max(many_s - one_s, 0.0) / (many - 1) / weights
        return cls(max(one_s / weights - row_s, 0.0), row_s)

    def rows(self, weights: int, work_s: float) -> int | None:
        """From how many rows on these weights take that long; None: never."""
        missing_s = work_s / weights - self.once_s
        if missing_s <= self.row_s:
            return 1
        return math.ceil(missing_s / self.row_s) if self.row_s else None


class Cut(NamedTuple):
    """A matrix in parts. `parts` are computed on their streams, `own` on the caller's."""

    least: int
    """Numbers that the input must have for this to pay."""
    parts: list[tuple[mx.Stream, Callable[[mx.array], mx.array]]]
    own: Callable[[mx.array], mx.array]

    def __call__(self, inputs: mx.array) -> mx.array:
        outputs: list[mx.array] = []
        for stream, part in self.parts:
            with mx.stream(stream):
                outputs.append(part(inputs))
        return mx.concatenate([*outputs, self.own(inputs)], axis=-1)


def _computed(module: Any, inputs: mx.array) -> mx.array:
    size = inputs.size
    for cut in module.cuts:
        if size >= cut.least:
            return cut(inputs)  # type: ignore[no-any-return]
    return module.plain(inputs)  # type: ignore[no-any-return]


class _Called:
    """For what computes when it is called."""

    __slots__ = ()

    def __call__(self, x: mx.array) -> mx.array:
        return _computed(self, x)


class _Tied:
    """For embeddings, which compute as the head of the model."""

    __slots__ = ()

    def as_linear(self, x: mx.array) -> mx.array:
        return _computed(self, x)


class SpreadLinear(_Called, Linear):
    plain = Linear.__call__


class SpreadQuantizedLinear(_Called, QuantizedLinear):
    plain = QuantizedLinear.__call__


class SpreadEmbedding(_Tied, Embedding):
    plain = Embedding.as_linear


class SpreadQuantizedEmbedding(_Tied, QuantizedEmbedding):
    plain = QuantizedEmbedding.as_linear


class SpreadPanelLinear(_Called, PanelLinear):
    plain = PanelLinear.__call__


class SpreadPanelEmbedding(_Tied, PanelEmbedding):
    plain = PanelEmbedding.as_linear


_KINDS: dict[type[Module], Any] = {
    PanelLinear: SpreadPanelLinear,
    PanelEmbedding: SpreadPanelEmbedding,
    Linear: SpreadLinear,
    QuantizedLinear: SpreadQuantizedLinear,
    Embedding: SpreadEmbedding,
    QuantizedEmbedding: SpreadQuantizedEmbedding,
}


def _cuts(
    module: Any, compute: Compute, pace: Pace, part_s: float, streams: list[mx.Stream]
) -> list[Cut]:
    """The ways to cut this matrix that pay, the one with the most parts first."""
    outputs, inputs = _shape(module)
    block = _block(module)
    cuts: list[Cut] = []
    for parts in _counts(len(streams) + 1):
        rows = pace.rows(outputs * inputs, parts * part_s)
        if rows is None or rows > _MOST_ROWS or outputs < parts * block:
            continue
        *others, own = [
            partial(compute, _part(module, begin, end))
            for begin, end in pairwise(bounds(outputs, parts, block))
        ]
        cuts.append(Cut(rows * inputs, list(zip(streams, others, strict=False)), own))
    return cuts


def _counts(cores: int) -> list[int]:
    """Numbers of parts to choose from: all cores, then powers of two below."""
    powers = [1 << at for at in range(1, cores.bit_length())]
    return sorted({cores, *powers}, reverse=True) if cores > 1 else []


def bounds(outputs: int, parts: int, block: int = _BLOCK) -> list[int]:
    """Where the parts begin and end, at whole blocks."""
    blocks = outputs // block
    return [blocks * at // parts * block for at in range(parts)] + [outputs]


def _block(module: Any) -> int:
    width: int = module["panels"].shape[-1] if "panels" in module else _BLOCK
    return width


def _part(module: Any, begin: int, end: int, copies: int = 1) -> Any:
    """The same module with only these outputs: a view, unless they are wanted several times."""
    part = copy.copy(module)
    for name, value in module.items():
        if isinstance(value, mx.array):
            rows = value[begin:end]
            if name == "panels":
                rows = value[begin // _block(module) : -(-end // _block(module))]
                vars(part)["outputs"] = (end - begin) * copies
            part[name] = rows if copies == 1 else mx.concatenate([rows] * copies)
    mx.eval(part.parameters())
    return part


def _shape(module: Any) -> tuple[int, int]:
    """Outputs and inputs."""
    if "panels" in module:
        return module.outputs, module["panels"].shape[1]
    outputs, stored = module.weight.shape
    return outputs, stored * 32 // module.bits if "scales" in module else stored


def _speed_class(module: Any) -> tuple[object, ...]:
    """Matrices that agree in this take equally long for a weight."""
    quantized = (module.bits, module.group_size, module.mode) if "scales" in module else ()
    return (_input_type(module), "panels" in module, *quantized)


def _input_type(module: Any) -> mx.Dtype:
    name = next(name for name in ("scales", "panels", "weight") if name in module)
    stored: mx.Dtype = module[name].dtype
    return stored if mx.issubdtype(stored, mx.floating) else mx.bfloat16


def _measured(module: Any, compute: Compute) -> Pace:
    """How fast this machine and its matrix library are with such weights."""
    outputs, inputs = _shape(module)
    block = _block(module)
    wanted = max(block, _SAMPLE_WEIGHTS // inputs // block * block)
    sample = _part(module, 0, min(outputs, wanted), copies=-(-wanted // outputs))
    weights = _shape(sample)[0] * inputs

    def least_s(rows: int) -> float:
        given = mx.ones((rows, inputs), _input_type(module))
        mx.eval(given)
        times: list[float] = []
        for _ in range(_SAMPLES):
            started = time.perf_counter()
            # Together, because the first thing to be computed also waits for a thread to wake.
            mx.eval([compute(sample, given) for _ in range(_SAMPLES)])
            times.append((time.perf_counter() - started) / _SAMPLES)
        return min(times)

    return Pace.of(weights, least_s(1), least_s(_SAMPLE_ROWS), _SAMPLE_ROWS)
