"""Whether the extra `node` is installed, without importing any of it."""

from __future__ import annotations

import importlib.util

# By the names that are imported.
NODE_MODULES = (
    "aiohttp", "psutil", "prometheus_client", "zenoh", "mlx", "mlx_lm", "gguf", "llguidance",
)  # fmt: skip


def missing_extra() -> tuple[str, ...]:
    """The lines of the error when modules of the extra cannot be imported here, else nothing."""
    missing = [name for name in NODE_MODULES if importlib.util.find_spec(name) is None]
    if not missing:
        return ()
    return (
        f"skulkd needs modules that are not installed: {', '.join(missing)}",
        "They come with the extra 'node': pip install 'skulk-toolkit[node]'",
    )
