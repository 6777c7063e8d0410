"""NVML, the library of the NVIDIA driver: opened once, asked often. Knows no readings of ours.

`pynvml` (nvidia-ml-py) calls it through ctypes. What a driver can refuse is an NvmlError with a
code; a machine without the driver has no NVML, which is not an error.
"""

import importlib
import threading
from collections.abc import Callable
from typing import Any

from skulkd.machine.tools import ToolError

_CURES = {
    "NVML_ERROR_DRIVER_NOT_LOADED": "load the NVIDIA driver: modprobe nvidia",
    "NVML_ERROR_LIB_RM_VERSION_MISMATCH": "the driver was updated: reboot this machine",
    "NVML_ERROR_NO_PERMISSION": "let the user of skulkd open /dev/nvidia*",
    "NVML_ERROR_GPU_IS_LOST": "the GPU does not answer: reboot this machine",
}


class NvmlError(ToolError):
    """The driver refused; `unsupported` when this GPU does not have what was asked for."""

    def __init__(self, text: str, *, unsupported: bool = False) -> None:
        super().__init__(f"NVIDIA driver: {text}")
        self.unsupported = unsupported


class Nvml:
    """An open NVML. Stays open: without it some drivers switch the GPU off between readings."""

    _lock = threading.Lock()
    _opened: "Nvml | None" = None

    def __init__(self, library: Any) -> None:
        self._library = library

    @classmethod
    def open(cls) -> "Nvml | None":
        """None where no NVIDIA driver is installed. Raises NvmlError."""
        with cls._lock:
            if cls._opened is None:
                cls._opened = cls._load()
            return cls._opened

    @classmethod
    def _load(cls) -> "Nvml | None":
        try:
            pynvml: Any = importlib.import_module("pynvml")
        except ImportError:
            return None
        try:
            pynvml.nvmlInit()
        except pynvml.NVMLError_LibraryNotFound:
            return None
        except pynvml.NVMLError as error:
            raise _translated(pynvml, error) from error
        return cls(pynvml)

    @classmethod
    def close(cls) -> None:
        """The next `open` begins anew: after an update or a reset of the driver."""
        with cls._lock:
            opened, cls._opened = cls._opened, None
            if opened is not None:
                try:
                    opened._library.nvmlShutdown()
                except opened._library.NVMLError:
                    return  # it was shut down already

    def ask(self, function: str, *arguments: Any) -> Any:
        """Call `nvml<function>`; a name that starts with NVML_ stands for its constant."""
        call: Callable[..., Any] = getattr(self._library, f"nvml{function}")
        values = [self._constant(argument) for argument in arguments]
        try:
            return call(*values)
        except self._library.NVMLError as error:
            raise _translated(self._library, error) from error

    def measure(self, function: str, *arguments: Any) -> Any:
        """The same for what a GPU may lack: None instead of an error."""
        try:
            return self.ask(function, *arguments)
        except NvmlError:
            return None

    def _constant(self, argument: Any) -> Any:
        if isinstance(argument, str) and argument.startswith("NVML_"):
            return getattr(self._library, argument)
        return argument


def _translated(library: Any, error: Any) -> NvmlError:
    unsupported = {library.NVML_ERROR_NOT_SUPPORTED, library.NVML_ERROR_FUNCTION_NOT_FOUND}
    cures = {getattr(library, name): cure for name, cure in _CURES.items()}
    cure = cures.get(error.value)
    text = str(error).rstrip(".")
    return NvmlError(f"{text}; {cure}" if cure else text, unsupported=error.value in unsupported)
