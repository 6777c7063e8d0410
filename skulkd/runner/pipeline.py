"""A model cut into stages: each rank keeps a range of layers and passes the hidden state on.

Works on any mlx-lm model with a list of layers, by putting stand-ins in the places of the layers
that live elsewhere. The model's own code still runs, with its own layer numbers, so that masks of
sliding windows and mixed layers stay right. What this cannot do right is refused with a reason.
"""

# mlx-lm leaves its models and caches untyped.
# mypy: allow-untyped-calls

from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from typing import Any

import mlx.core as mx
from mlx_lm.models.cache import ArraysCache, KVCache, RotatingKVCache, make_prompt_cache

from skulkd.runner.model_files import BadModel

_PROBE_LENGTHS = (1, 4)


class Link:
    """The hidden state between two stages. `received` and `sent` are of the newest call."""

    def __init__(self, group: mx.distributed.Group, width: int, dtype: mx.Dtype) -> None:
        self._group = group
        self._width = width
        self._dtype = dtype
        self.received: mx.array | None = None
        self.sent: mx.array | None = None
        self.note: Callable[[str], AbstractContextManager[object]] = nullcontext
        """Around each message that is queued, with its name; the recorder may want to know."""

    def receive(self, shape: tuple[int, ...]) -> mx.array:
        wanted = (*shape[:-1], self._width)
        before = self._group.rank() - 1
        with self.note("pipeline_first_recv_like"):
            self.received = mx.distributed.recv(wanted, self._dtype, before, group=self._group)
        return self.received

    def send(self, hidden: mx.array) -> mx.array:
        hidden = hidden.astype(self._dtype)
        with self.note("pipeline_last_send"):
            self.sent = mx.distributed.send(hidden, self._group.rank() + 1, group=self._group)
        return self.sent


class _Place:
    """A place in the list of layers. What the model asks about the layer, the layer answers."""

    def __init__(self, layer: Any) -> None:
        self._layer = layer

    def __getattr__(self, name: str) -> Any:
        return getattr(self._layer, name)


class _Elsewhere(_Place):
    """A layer of another rank; its weights are never read."""

    def __call__(self, hidden: mx.array, *_: Any, **__: Any) -> mx.array:
        return hidden


class _Edge(_Place):
    """The first or last layer of this rank."""

    def __init__(self, layer: Any, link: Link, *, receives: bool, sends: bool) -> None:
        super().__init__(layer)
        self._link = link
        self._receives = receives
        self._sends = sends

    def __call__(self, hidden: mx.array, *args: Any, **how: Any) -> mx.array:
        if self._receives:
            hidden = self._link.receive(hidden.shape)
        hidden = self._layer(hidden, *args, **how)
        return self._link.send(hidden) if self._sends else hidden


class _Spy(_Place):
    """Notes what a layer is given and gives. Nothing is computed: MLX is lazy."""

    def __init__(self, layer: Any, notes: list[mx.array]) -> None:
        super().__init__(layer)
        self._notes = notes

    def __call__(self, hidden: mx.array, *args: Any, **how: Any) -> Any:
        self._notes.append(hidden)
        for value in (*args, *how.values()):
            if isinstance(value, mx.array) and value.dtype != mx.bool_:
                raise BadModel("its layers take more than the hidden state and a mask")
        given = self._layer(hidden, *args, **how)
        if not isinstance(given, mx.array):
            raise BadModel("its layers give more than the hidden state")
        return given


class _AskedCaches(list[Any]):
    """Notes which caches a model looks at by number: their lengths decide its masks."""

    def __init__(self, caches: list[Any], asked: set[int]) -> None:
        super().__init__(caches)
        self._asked = asked

    def __getitem__(self, index: Any) -> Any:
        if isinstance(index, int):
            self._asked.add(index % len(self))
        return super().__getitem__(index)


class PipelinedModel:
    """One stage, called like the model it was made from, with caches for what it keeps."""

    def __init__(self, model: Any, group: mx.distributed.Group, start: int, end: int) -> None:
        count = len(model.layers)
        if not 0 <= start < end <= count:
            raise BadModel(f"layers {start} to {end} are no part of a model of {count} layers")
        holder, name = _find_layers(model)
        asked, hidden, self.vocabulary = _probe(model, holder, name)
        self._model = model
        self._count = count
        self._markers = sorted(index for index in asked if not start <= index < end)
        self._check_markers()
        self._held = sorted({*self._markers, *range(start, end)})
        self.link = Link(group, hidden.shape[-1], hidden.dtype)
        layers = list(holder[name])
        self.layers = layers[start:end]
        first, last = group.rank() == 0, group.rank() == group.size() - 1
        for index, layer in enumerate(layers):
            if not start <= index < end:
                layers[index] = _Elsewhere(layer)
            elif (index == start and not first) or (index == end - 1 and not last):
                receives, sends = index == start and not first, index == end - 1 and not last
                layers[index] = _Edge(layer, self.link, receives=receives, sends=sends)
        holder[name] = layers
        self.computed = [*self.layers, *(_heads(model, self.vocabulary) if last else ())]
        """Modules that compute on this rank: only the last one computes logits."""

    def __call__(self, inputs: mx.array, cache: list[Any]) -> mx.array:
        caches: list[Any] = [None] * self._count
        for index, held in zip(self._held, cache, strict=True):
            caches[index] = held
        self.link.received = self.link.sent = None
        logits: mx.array = self._model(inputs, cache=caches)
        for index in self._markers:
            _count(caches[index], *inputs.shape)
        return logits

    def make_cache(self) -> list[Any]:
        """Caches for the layers here, and counting ones for layers whose length masks need."""
        caches = make_prompt_cache(self._model)
        return [caches[index] for index in self._held]

    def markers(self, caches: list[Any]) -> list[Any]:
        """The states that no result depends on; they must be computed now and then, too."""
        local = dict(zip(self._held, caches, strict=True))
        return [local[index].state for index in self._markers]

    def _check_markers(self) -> None:
        caches = make_prompt_cache(self._model)
        for index in self._markers:
            if not isinstance(caches[index], KVCache | RotatingKVCache | ArraysCache):
                kind = type(caches[index]).__name__
                raise BadModel(
                    f"its masks need the state of layer {index} ({kind}), which another rank has"
                )


def _count(cache: Any, rows: int, tokens: int) -> None:
    """Let a cache know of tokens whose contents another rank keeps."""
    if isinstance(cache, ArraysCache):
        for at in range(len(cache.cache)):
            cache[at] = mx.zeros((rows, 1))
        cache.advance(tokens)
    else:
        nothing = mx.zeros((rows, 1, tokens, 1))
        cache.update_and_fetch(nothing, nothing)


def _find_layers(model: Any) -> tuple[Any, str]:
    """The module that owns the list of layers, and the list's name in it."""
    first = model.layers[0]
    for module in model.modules():
        for name, value in module.items():
            if isinstance(value, list) and value and value[0] is first:
                return module, name
    raise BadModel("its layers are not in a list")


def _heads(model: Any, vocabulary: int) -> list[Any]:
    """What turns hidden states into logits: the embedding where there is nothing else."""
    outside = [
        module
        for module in model.modules()
        if "weight" in module and module.weight.ndim == 2 and module.weight.shape[0] == vocabulary
    ]
    own = [module for module in outside if not hasattr(module, "as_linear")]
    return own or outside


def _probe(model: Any, holder: Any, name: str) -> tuple[set[int], mx.array, int]:
    """Which caches the masks need, a hidden state between layers, and the number of logits."""
    caches = make_prompt_cache(model)
    layers = holder[name]
    if len(caches) != len(layers) or len(model.layers) != len(layers):
        raise BadModel("its layers share caches")
    asked: set[int] = set()
    notes: list[mx.array] = []
    holder[name] = [_Spy(layer, notes) for layer in layers]
    try:
        for length in _PROBE_LENGTHS:
            logits = model(mx.zeros((1, length), mx.int32), cache=_AskedCaches(caches, asked))
    finally:
        holder[name] = layers
    if len(notes) != len(_PROBE_LENGTHS) * len(layers):
        raise BadModel("it does not run its layers once each, in order")
    return asked, notes[-1], logits.shape[-1]
