"""Which BLAS library a runner on a Linux CPU starts with. Pure: the machine is handed in.

The wheel of MLX brings a reference BLAS that is many times slower than OpenBLAS; both have the
same function names, so preloading the better one is enough.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from skulkd.wire.cluster import NodeWarning

_NAME = "libopenblas.so.0"
WELL_KNOWN = tuple(
    Path(folder) / _NAME
    for folder in (
        "/usr/lib/x86_64-linux-gnu",
        "/usr/lib/aarch64-linux-gnu",
        "/usr/lib64",
        "/usr/lib",
        "/usr/local/lib",
    )
)
_THREADS = "OPENBLAS_NUM_THREADS"


@dataclass(frozen=True, slots=True)
class BlasChoice:
    """What is preloaded, None for nothing, and why."""

    library: str | None
    why: str
    missing: bool = False
    """True when a faster library would help and is not there."""

    def __str__(self) -> str:
        return f"{self.library or 'none preloaded'} ({self.why})"

    @property
    def warning(self) -> NodeWarning | None:
        """What the operator should do, if anything."""
        if not self.missing:
            return None
        return NodeWarning(
            message=f"runners have no fast BLAS: {self.why}. Prompts are read many times slower"
            " than this machine could",
            remediation="install OpenBLAS (Debian, Ubuntu: apt-get install libopenblas0-pthread)"
            " or correct runtime.blas, then restart skulkd",
        )

    def environ(self, current: Mapping[str, str]) -> dict[str, str]:
        """Variables that a runner needs besides those it would have; the operator's stay."""
        if self.library is None:
            return {}
        preload = ":".join(filter(None, [self.library, current.get("LD_PRELOAD")]))
        # With more threads of its own decoding becomes slow and erratic: MLX has threads too.
        return {"LD_PRELOAD": preload, _THREADS: current.get(_THREADS, "1")}


def choose_blas(
    setting: str,
    *,
    system: str,
    accelerated: bool,
    is_file: Callable[[Path], bool] = Path.is_file,
    well_known: Sequence[Path] = WELL_KNOWN,
) -> BlasChoice:
    """Follow the setting `runtime.blas`: `auto`, `off`, or the path of a library."""
    if setting == "off":
        return BlasChoice(None, "switched off by runtime.blas")
    if system != "linux":
        return BlasChoice(None, "this system's own BLAS is fast")
    if setting != "auto":
        return _named(setting, is_file)
    if accelerated:
        return BlasChoice(None, "MLX computes on the accelerator")
    library = next((str(path) for path in well_known if is_file(path)), None)
    if library is None:
        return BlasChoice(None, "no OpenBLAS on this system", missing=True)
    return BlasChoice(library, "found on this system")


def _named(setting: str, is_file: Callable[[Path], bool]) -> BlasChoice:
    # The loader splits LD_PRELOAD at both and knows no way to quote them.
    if ":" in setting or any(letter.isspace() for letter in setting):
        why = f"runtime.blas must not contain spaces or colons: {setting}"
        return BlasChoice(None, why, missing=True)
    if not is_file(Path(setting)):
        return BlasChoice(None, f"runtime.blas names no file: {setting}", missing=True)
    return BlasChoice(setting, "named by runtime.blas")
