"""Quicker ways through a loaded model.

MLX keeps a module's parts in a dictionary and finds them by `__getattr__`, which Python calls only
after looking everywhere else. A step of a small model spends a sixth of its Python time there.
"""

# MLX leaves its modules untyped.
# mypy: allow-untyped-calls

from collections.abc import Iterable

from mlx.nn.layers.base import Module


def pin_parts(modules: Iterable[Module]) -> None:
    """Let these modules and all inside find their parts as plain attributes.

    For models that do not change any more: a part put in place of another would not be seen.
    Weights are left alone, because models do replace arrays of theirs while they run.
    """
    for module in modules:
        for inner in module.modules():
            kind = type(inner)
            vars(inner).update(
                (name, part)
                for name, part in inner.items()
                if isinstance(part, Module) and not hasattr(kind, name)
            )
