"""Stands in for JACCL where there is no RDMA: on PYTHONPATH of a daemon, for its runners.

`mx.distributed.init(backend="jaccl")` exchanges over the side channel what JACCL would (four
calls, of these sizes), writes down what it was started with, and then joins MLX's own TCP ring,
so that the group really computes.
"""

import importlib.abc
import importlib.util
import json
import os
import socket
import struct
import sys
from pathlib import Path
from types import ModuleType
from typing import Any


def _variables() -> dict[str, str]:
    return {key: value for key, value in os.environ.items() if "JACCL" in key}


def _join(distributed: Any, real_init: Any, factory: Any) -> Any:
    rank = int(os.environ["MLX_RANK"])
    devices = json.loads(Path(os.environ["MLX_IBV_DEVICES"]).read_text(encoding="utf-8"))
    size = len(devices)
    gather = factory(rank, size)
    for length in (4, 32 * size, 4, 4):
        mine = bytes([rank]) * length
        everything = gather(mine, length)
        assert everything == b"".join(bytes([one]) * length for one in range(size))
    with socket.socket() as held:
        held.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEPORT, 1)
        held.bind(("127.0.0.1", 0))
        ports = gather(struct.pack("!I", held.getsockname()[1]), 4)
        hosts = [[f"127.0.0.1:{port}"] for (port,) in struct.iter_unpack("!I", ports)]
        home = Path(os.environ["SKULK_HOME"])
        (home / "hosts.json").write_text(json.dumps(hosts), encoding="utf-8")
        told = {"rank": rank, "devices": devices, "variables": _variables()}
        (home / "jaccl.json").write_text(json.dumps(told), encoding="utf-8")
        os.environ["MLX_HOSTFILE"] = str(home / "hosts.json")
        return real_init(strict=True, backend="ring")


def _stand_in(module: ModuleType) -> None:
    distributed: Any = module.distributed
    real_init, real_available = distributed.init, distributed.is_available

    def init(strict: bool = False, backend: str = "any", *, all_gather_factory: Any = None) -> Any:
        if backend == "jaccl":
            return _join(distributed, real_init, all_gather_factory)
        return real_init(strict=strict, backend=backend)

    distributed.init = init
    distributed.is_available = lambda backend="any": backend == "jaccl" or real_available(backend)


class _Finder(importlib.abc.MetaPathFinder):
    """Lets MLX load as always and changes it afterwards; nobody else loads it."""

    def find_spec(self, name: str, path: Any = None, target: Any = None) -> Any:
        if name != "mlx.core":
            return None
        sys.meta_path.remove(self)
        spec = importlib.util.find_spec(name)
        assert spec is not None
        loader = spec.loader
        assert loader is not None
        load = loader.exec_module

        def exec_module(module: ModuleType) -> None:
            load(module)
            _stand_in(module)

        loader.exec_module = exec_module
        return spec


sys.meta_path.insert(0, _Finder())
