"""The environment of a runner process. Pure."""

from collections.abc import Mapping
from pathlib import Path

from skulkd.machine.accelerator_nvidia import Gpu
from skulkd.worker.gpu import gpu_environ

# Needed by the daemon alone; what a process does not have it cannot show.
_SECRETS = frozenset({"SKULK_CLUSTER_SECRET", "HF_TOKEN", "HUGGING_FACE_HUB_TOKEN"})


def runner_environ(
    environ: Mapping[str, str], package_root: Path, gpu: Gpu | None = None
) -> dict[str, str]:
    """The daemon's environment without secrets, with what the runner needs.

    `package_root` holds our package: the runner must run the code of its daemon, wherever both
    were started.
    """
    kept = {name: value for name, value in environ.items() if name not in _SECRETS}
    path = [str(package_root), *filter(None, [kept.get("PYTHONPATH")])]
    own = {"PYTHONPATH": ":".join(path), "PYTHONUNBUFFERED": "1"}
    return {**kept, **gpu_environ(gpu), **own}
