"""The safetensors container: checked headers, and a writer that holds one tensor at a time.

Standard library only, so that the daemon can check files. Must not know what tensors mean.
"""

import json
import math
import os
import struct
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import Any, Self

from skulkd.settings.problems import printable
from skulkd.store.errors import BrokenModelError

MAX_HEADER_BYTES = 100_000_000
_LENGTH = struct.Struct("<Q")
_ITEM_BYTES = {
    "BOOL": 1, "U8": 1, "I8": 1, "F8_E4M3": 1, "F8_E5M2": 1, "F8_E8M0": 1,
    "U16": 2, "I16": 2, "F16": 2, "BF16": 2,
    "U32": 4, "I32": 4, "F32": 4,
    "U64": 8, "I64": 8, "F64": 8, "C64": 8,
}  # fmt: skip


@dataclass(frozen=True, slots=True)
class TensorSpec:
    """A tensor to be written. `dtype` is the name in the container, such as F32."""

    name: str
    dtype: str
    shape: tuple[int, ...]

    @property
    def size_bytes(self) -> int:
        return math.prod(self.shape) * _ITEM_BYTES[self.dtype]


class SafetensorsWriter:
    """Writes a file in one pass: the header at once, then the data in the order of `specs`."""

    def __init__(self, path: Path, specs: Sequence[TensorSpec]) -> None:
        self._path = path
        self._expected = [spec.size_bytes for spec in specs]
        self._header = _encode_header(specs)

    def __enter__(self) -> Self:
        self._file = self._path.open("xb")
        self._file.write(_LENGTH.pack(len(self._header)) + self._header)
        self._written = 0
        return self

    def write(self, data: memoryview) -> None:
        """The next tensor: C order, little-endian, of exactly the size its spec says."""
        if data.nbytes != self._expected[self._written]:
            raise ValueError(f"tensor {self._written}: {data.nbytes} bytes do not fit its spec")
        self._file.write(data)
        self._written += 1

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        with self._file:
            if error is None:
                if self._written != len(self._expected):
                    raise ValueError(f"{self._written} of {len(self._expected)} tensors written")
                self._file.flush()
                os.fsync(self._file.fileno())


def read_tensor_names(path: Path) -> list[str]:
    """Names of all tensors of a whole file.

    Raises BrokenModelError when the header cannot be read, or does not agree with the size of
    the file; OSError when the system refuses.
    """
    with path.open("rb") as file:
        file_bytes = os.fstat(file.fileno()).st_size
        if file_bytes < _LENGTH.size:
            raise BrokenModelError(f"{path.name} is truncated: it has {file_bytes} bytes")
        (header_bytes,) = _LENGTH.unpack(file.read(_LENGTH.size))
        if header_bytes > MAX_HEADER_BYTES:
            raise BrokenModelError(f"{path.name} is not a safetensors file")
        if _LENGTH.size + header_bytes > file_bytes:
            raise BrokenModelError(f"{path.name} is truncated inside its header")
        entries = _decode_header(file.read(header_bytes), path.name)
    data_bytes = max(
        (_end_of(name, entry, path.name) for name, entry in entries.items()), default=0
    )
    expected = _LENGTH.size + header_bytes + data_bytes
    if file_bytes < expected:
        raise BrokenModelError(f"{path.name} is truncated: {file_bytes} of {expected} bytes")
    if file_bytes > expected:
        raise BrokenModelError(f"{path.name} has {file_bytes - expected} bytes too many")
    return list(entries)


def _encode_header(specs: Sequence[TensorSpec]) -> bytes:
    # The metadata is what MLX itself writes; some loaders insist on it.
    header: dict[str, Any] = {"__metadata__": {"format": "mlx"}}
    start = 0
    for spec in specs:
        end = start + spec.size_bytes
        header[spec.name] = {
            "dtype": spec.dtype,
            "shape": list(spec.shape),
            "data_offsets": [start, end],
        }
        start = end
    text = json.dumps(header, separators=(",", ":")).encode()
    return text + b" " * (-len(text) % 8)


def _decode_header(text: bytes, file_name: str) -> dict[str, Mapping[str, Any]]:
    try:
        header = json.loads(text)
    except (ValueError, RecursionError) as error:
        raise BrokenModelError(f"{file_name} has a damaged header: not JSON") from error
    if not isinstance(header, dict):
        raise BrokenModelError(f"{file_name} has a damaged header: not a JSON object")
    header.pop("__metadata__", None)
    return header


def _end_of(name: str, entry: object, file_name: str) -> int:
    """Where the tensor's data ends, after a check of everything its entry says."""
    match entry:
        case {"dtype": str(dtype), "shape": list(shape), "data_offsets": [int(start), int(end)]}:
            counts = all(isinstance(size, int) and size >= 0 for size in shape)
            item_bytes = _ITEM_BYTES.get(dtype)
            # Data types of less than a byte are not ours to compute.
            whole = item_bytes is None or (counts and end - start == math.prod(shape) * item_bytes)
            if counts and whole and 0 <= start <= end:
                return end
    raise BrokenModelError(f"{file_name} has a damaged entry for tensor {printable(name)}")
