"""A rank's part of a model: a range of its layers (pipeline) or a slice of each layer (tensor).

The pipeline works on any mlx-lm model with a list of layers, by proxies in the places of the layers
that other ranks hold. The model's own code still runs, with its own layer numbers, so that masks of
sliding windows and mixed layers stay right. mlx-lm does the tensor cut. A model that cannot be cut
correctly is refused with a reason.
"""

# mlx-lm leaves its models and caches untyped.
# mypy: allow-untyped-calls

from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from typing import Any

import mlx.core as mx
from mlx_lm.models.cache import ArraysCache, KVCache, RotatingKVCache, make_prompt_cache

from skulkd.runner.errors import BadModel

_PROBE_LENGTHS = (1, 4)


class StageLink:
    """The hidden state between two stages. `received` and `sent` are of the newest call."""

    def __init__(self, group: mx.distributed.Group, width: int, dtype: mx.Dtype) -> None:
        self._group = group
        self._width = width
        self._dtype = dtype
        self.received: mx.array | None = None
        self.sent: mx.array | None = None
        self.on_queue: Callable[[str], AbstractContextManager[object]] = nullcontext
        """Entered around each message that is queued, with its name, for the recorder."""

    def receive(self, shape: tuple[int, ...]) -> mx.array:
        wanted = (*shape[:-1], self._width)
        before = self._group.rank() - 1
        with self.on_queue("pipeline_first_recv_like"):
            self.received = mx.distributed.recv(wanted, self._dtype, before, group=self._group)
        return self.received

    def send(self, hidden: mx.array) -> mx.array:
        hidden = hidden.astype(self._dtype)
        with self.on_queue("pipeline_last_send"):
            self.sent = mx.distributed.send(hidden, self._group.rank() + 1, group=self._group)
        return self.sent


class _LayerProxy:
    """Stands in the list of layers; attributes are those of the layer."""

    def __init__(self, layer: Any) -> None:
        self._layer = layer

    def __getattr__(self, name: str) -> Any:
        return getattr(self._layer, name)


class _RemoteLayer(_LayerProxy):
    """A layer of another rank; its weights are never read."""

    def __call__(self, hidden: mx.array, *_: Any, **__: Any) -> mx.array:
        return hidden


class _BoundaryLayer(_LayerProxy):
    """The first or last layer of this rank."""

    def __init__(self, layer: Any, link: StageLink, *, receives: bool, sends: bool) -> None:
        super().__init__(layer)
        self._link = link
        self._receives = receives
        self._sends = sends

    def __call__(self, hidden: mx.array, *args: Any, **options: Any) -> mx.array:
        if self._receives:
            hidden = self._link.receive(hidden.shape)
        hidden = self._layer(hidden, *args, **options)
        return self._link.send(hidden) if self._sends else hidden


class _ProbeLayer(_LayerProxy):
    """Records inputs of a layer and checks its output. Nothing is computed: MLX is lazy."""

    def __init__(self, layer: Any, inputs: list[mx.array]) -> None:
        super().__init__(layer)
        self._inputs = inputs

    def __call__(self, hidden: mx.array, *args: Any, **options: Any) -> Any:
        self._inputs.append(hidden)
        for value in (*args, *options.values()):
            if isinstance(value, mx.array) and value.dtype != mx.bool_:
                raise BadModel("its layers take more than the hidden state and a mask")
        given = self._layer(hidden, *args, **options)
        if not isinstance(given, mx.array):
            raise BadModel("its layers give more than the hidden state")
        return given


class _ProbeCaches(list[Any]):
    """Records which caches a model reads by number: their lengths decide its masks."""

    def __init__(self, caches: list[Any], read: set[int]) -> None:
        super().__init__(caches)
        self._read = read

    def __getitem__(self, index: Any) -> Any:
        if isinstance(index, int):
            self._read.add(index % len(self))
        return super().__getitem__(index)


class PipelinedModel:
    """One stage, called like the model it was made from, with caches for what it keeps."""

    def __init__(self, model: Any, group: mx.distributed.Group, start: int, end: int) -> None:
        count = len(model.layers)
        if not 0 <= start < end <= count:
            raise BadModel(f"layers {start} to {end} are no part of a model of {count} layers")
        holder, name = _find_layers(model)
        read, hidden, self.vocabulary = _probe(model, holder, name)
        self._model = model
        self._count = count
        self._counting = sorted(index for index in read if not start <= index < end)
        self._check_counting()
        self._held = sorted({*self._counting, *range(start, end)})
        self.link = StageLink(group, hidden.shape[-1], hidden.dtype)
        layers = list(holder[name])
        self.layers = layers[start:end]
        first, last = group.rank() == 0, group.rank() == group.size() - 1
        for index, layer in enumerate(layers):
            if not start <= index < end:
                layers[index] = _RemoteLayer(layer)
            elif (index == start and not first) or (index == end - 1 and not last):
                receives, sends = index == start and not first, index == end - 1 and not last
                layers[index] = _BoundaryLayer(layer, self.link, receives=receives, sends=sends)
        holder[name] = layers
        self.computed = [*self.layers, *(_heads(model, self.vocabulary) if last else ())]
        """Modules that compute on this rank: only the last one computes logits."""

    def __call__(self, inputs: mx.array, cache: list[Any]) -> mx.array:
        caches: list[Any] = [None] * self._count
        for index, held in zip(self._held, cache, strict=True):
            caches[index] = held
        self.link.received = self.link.sent = None
        logits: mx.array = self._model(inputs, cache=caches)
        for index in self._counting:
            _count_tokens(caches[index], *inputs.shape)
        return logits

    def make_cache(self) -> list[Any]:
        """Caches for the layers here, and counting ones for layers whose length masks need."""
        caches = make_prompt_cache(self._model)
        return [caches[index] for index in self._held]

    def counting_states(self, caches: list[Any]) -> list[Any]:
        """States of counting caches: no result depends on them, so they are computed separately."""
        local = dict(zip(self._held, caches, strict=True))
        return [local[index].state for index in self._counting]

    def _check_counting(self) -> None:
        caches = make_prompt_cache(self._model)
        for index in self._counting:
            if not isinstance(caches[index], KVCache | RotatingKVCache | ArraysCache):
                kind = type(caches[index]).__name__
                raise BadModel(
                    f"its masks need the state of layer {index} ({kind}), which another rank has"
                )


def _count_tokens(cache: Any, rows: int, tokens: int) -> None:
    """Advance a cache by tokens whose contents another rank holds."""
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
    read: set[int] = set()
    inputs: list[mx.array] = []
    holder[name] = [_ProbeLayer(layer, inputs) for layer in layers]
    try:
        for length in _PROBE_LENGTHS:
            logits = model(mx.zeros((1, length), mx.int32), cache=_ProbeCaches(caches, read))
    finally:
        holder[name] = layers
    if len(inputs) != len(_PROBE_LENGTHS) * len(layers):
        raise BadModel("it does not run its layers once each, in order")
    return read, inputs[-1], logits.shape[-1]


_SIZES = (
    "num_attention_heads",
    "num_key_value_heads",
    "intermediate_size",
    "moe_intermediate_size",
    "shared_expert_intermediate_size",
    "linear_num_key_heads",
    "linear_num_value_heads",
)


def check_slices(config: dict[str, Any], ranks: int) -> None:
    """Raises BadModel when this many ranks cannot share the model evenly."""
    config = {**config, **(config.get("text_config") or {})}
    for name in _SIZES:
        size = config.get(name)
        if isinstance(size, int) and size > 0 and size % ranks:
            raise BadModel(f"{name} is {size}, which {ranks} ranks cannot share evenly")
    quantization = config.get("quantization")
    if isinstance(quantization, dict) and isinstance(quantization.get("group_size"), int):
        _check_groups(config, ranks, quantization["group_size"])


def _check_groups(config: dict[str, Any], ranks: int, group_size: int) -> None:
    """What a layer sums over is cut, too, and a quantisation group must stay whole."""
    heads, hidden = config.get("num_attention_heads"), config.get("hidden_size")
    widths = {name: config.get(name) for name in ("intermediate_size", "moe_intermediate_size")}
    if isinstance(heads, int) and isinstance(hidden, int):
        widths["attention width"] = heads * (config.get("head_dim") or hidden // heads)
    for name, width in widths.items():
        if isinstance(width, int) and width > 0 and (width // ranks) % group_size:
            raise BadModel(
                f"{name} is {width}: a share of {ranks} ranks is no multiple of the "
                f"quantisation group of {group_size}"
            )


def cut_into_slices(model: Any, config: dict[str, Any], group: mx.distributed.Group) -> None:
    """Keep this rank's slice of every layer. Raises BadModel."""
    check_slices(config, group.size())
    if not hasattr(model, "shard"):
        kind = config.get("model_type")
        raise BadModel(f"model type {kind} cannot be shared by tensor; place it as a pipeline")
    model.shard(group)
