"""The GGUF container: metadata and the table of tensors, checked against the file's size.

Must not know what a model is. The reader of the `gguf` package is not used: it needs 6 s for a
vocabulary, and a damaged length makes it loop until memory ends. Its type table is.
"""

import math
import os
import struct
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import BinaryIO

from gguf.constants import GGML_QUANT_SIZES, GGMLQuantizationType

from skulkd.settings.problems import printable
from skulkd.store.errors import BrokenModelError, FileAccessError, UnsupportedModelError

Value = str | int | float | bool | list[str] | list[int] | list[float] | list[bool]

_MAGIC = b"GGUF"
_VERSIONS = (2, 3)
_MAX_DIMENSIONS = 4
_MAX_NAME_BYTES = 65_535
_DEFAULT_ALIGNMENT = 32
_STRING, _ARRAY = 8, 9
_SCALARS = {
    0: "B", 1: "b", 2: "H", 3: "h", 4: "I", 5: "i", 6: "f", 7: "?", 10: "Q", 11: "q", 12: "d",
}  # fmt: skip


@dataclass(frozen=True, slots=True)
class GgufTensor:
    """One tensor. `shape` is in the usual order: rows first, the contiguous dimension last."""

    name: str
    type: GGMLQuantizationType
    shape: tuple[int, ...]
    offset: int
    size_bytes: int


@dataclass(frozen=True, slots=True)
class GgufFile:
    path: Path
    metadata: Mapping[str, Value]
    tensors: Mapping[str, GgufTensor]

    def read(self, tensor: GgufTensor) -> bytes:
        """The raw data. Raises BrokenModelError when the file became shorter."""
        try:
            with self.path.open("rb") as file:
                file.seek(tensor.offset)
                data = file.read(tensor.size_bytes)
        except OSError as error:
            raise FileAccessError.of(error, self.path) from error
        if len(data) != tensor.size_bytes:
            raise BrokenModelError(f"{self.path.name} is truncated inside tensor {tensor.name}")
        return data


def open_gguf(path: Path) -> GgufFile:
    """Read the header. Raises UnsupportedModelError, BrokenModelError or FileAccessError."""
    try:
        with path.open("rb") as file:
            return _read(_Cursor(file, path.name), path)
    except OSError as error:
        raise FileAccessError.of(error, path) from error


class _Cursor:
    """Reads forward and never believes a length that the file cannot hold."""

    def __init__(self, file: BinaryIO, file_name: str) -> None:
        self._file = file
        self.file_name = file_name
        self.size = os.fstat(file.fileno()).st_size
        self.position = 0

    def take(self, count: int) -> bytes:
        if count > self.size - self.position:
            raise self.broken("truncated or damaged: a length runs past the end of the file")
        data = self._file.read(count)
        if len(data) != count:
            raise self.broken("truncated while it was read")
        self.position += count
        return data

    def u32(self) -> int:
        return int.from_bytes(self.take(4), "little")

    def u64(self) -> int:
        return int.from_bytes(self.take(8), "little")

    def string(self) -> str:
        try:
            return self.take(self.u64()).decode()
        except UnicodeDecodeError as error:
            raise self.broken("damaged: a text is not UTF-8") from error

    def name(self) -> str:
        length = self.u64()
        if length > _MAX_NAME_BYTES:
            raise self.broken("damaged: a name is too long")
        try:
            return self.take(length).decode()
        except UnicodeDecodeError as error:
            raise self.broken("damaged: a name is not UTF-8") from error

    def count(self, smallest_bytes: int) -> int:
        """A number of items, each of which needs some bytes."""
        count = self.u64()
        if count * smallest_bytes > self.size - self.position:
            raise self.broken("truncated or damaged: a count runs past the end of the file")
        return count

    def broken(self, why: str) -> BrokenModelError:
        return BrokenModelError(f"{self.file_name} is {why}")


def _read(cursor: _Cursor, path: Path) -> GgufFile:
    if cursor.size < 4 or cursor.take(4) != _MAGIC:
        raise BrokenModelError(f"{cursor.file_name} is not a GGUF file")
    version = cursor.u32()
    if version and version & 0xFFFF == 0:
        raise UnsupportedModelError(f"{cursor.file_name} is a big-endian GGUF file")
    if version not in _VERSIONS:
        raise UnsupportedModelError(f"{cursor.file_name} has GGUF version {version}, not 2 or 3")
    # Name length, dimension count, type and offset; then one dimension.
    tensor_count = cursor.count(8 + 4 + 8 + 4 + 8)
    metadata = _read_metadata(cursor)
    table = [_read_tensor(cursor) for _ in range(tensor_count)]
    alignment = metadata.get("general.alignment", _DEFAULT_ALIGNMENT)
    if not isinstance(alignment, int) or alignment <= 0 or alignment & (alignment - 1):
        raise cursor.broken(f"damaged: general.alignment is {alignment}")
    data_start = -(-cursor.position // alignment) * alignment
    return GgufFile(path, metadata, _place(table, data_start, cursor))


def _read_metadata(cursor: _Cursor) -> dict[str, Value]:
    metadata: dict[str, Value] = {}
    # Key length, value type and one byte of value.
    for _ in range(cursor.count(8 + 4 + 1)):
        key = cursor.name()
        if key in metadata:
            raise cursor.broken(f"damaged: key {printable(key)} is there twice")
        metadata[key] = _read_value(cursor, key)
    return metadata


def _read_value(cursor: _Cursor, key: str) -> Value:
    kind = cursor.u32()
    if kind == _STRING:
        return cursor.string()
    if kind in _SCALARS:
        return _read_scalars(cursor, kind, 1)[0]
    if kind != _ARRAY:
        raise cursor.broken(f"damaged: key {printable(key)} has the unknown type {kind}")
    item_kind = cursor.u32()
    if item_kind == _STRING:
        return [cursor.string() for _ in range(cursor.count(8))]
    if item_kind in _SCALARS:
        size = struct.calcsize("<" + _SCALARS[item_kind])
        return _read_scalars(cursor, item_kind, cursor.count(size))
    raise cursor.broken(f"damaged: key {printable(key)} is a list of the type {item_kind}")


def _read_scalars(cursor: _Cursor, kind: int, count: int) -> list[int]:
    # `struct` gives floats and booleans too; the union of lists has no better common name.
    layout = struct.Struct(f"<{count}{_SCALARS[kind]}")
    return list(layout.unpack(cursor.take(layout.size)))


def _read_tensor(cursor: _Cursor) -> GgufTensor:
    """An entry of the table; its offset still counts from the start of the data."""
    name = cursor.name()
    dimensions = cursor.u32()
    if not 1 <= dimensions <= _MAX_DIMENSIONS:
        raise cursor.broken(f"damaged: tensor {printable(name)} has {dimensions} dimensions")
    sizes = tuple(cursor.u64() for _ in range(dimensions))
    kind, offset = cursor.u32(), cursor.u64()
    try:
        tensor_type = GGMLQuantizationType(kind)
    except ValueError as error:
        raise UnsupportedModelError(
            f"tensor {printable(name)} has the unknown quantisation type {kind}"
        ) from error
    block, block_bytes = GGML_QUANT_SIZES[tensor_type]
    if 0 in sizes or sizes[0] % block:
        raise cursor.broken(f"damaged: tensor {printable(name)} has the shape {sizes}")
    size_bytes = math.prod(sizes) // block * block_bytes
    return GgufTensor(name, tensor_type, sizes[::-1], offset, size_bytes)


def _place(table: list[GgufTensor], data_start: int, cursor: _Cursor) -> dict[str, GgufTensor]:
    """The tensors with offsets from the start of the file, all of them inside it."""
    tensors: dict[str, GgufTensor] = {}
    for tensor in table:
        start = data_start + tensor.offset
        end = start + tensor.size_bytes
        if end > cursor.size:
            raise cursor.broken(
                f"truncated: tensor {printable(tensor.name)} ends at byte {end},"
                f" the file has {cursor.size}"
            )
        if tensor.name in tensors:
            raise cursor.broken(f"damaged: tensor {printable(tensor.name)} is there twice")
        tensors[tensor.name] = GgufTensor(
            tensor.name, tensor.type, tensor.shape, start, tensor.size_bytes
        )
    return tensors
