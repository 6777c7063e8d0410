"""Gives MLX on a Linux CPU a fast BLAS without a preload, a compiler or a system package.

The PyPI build of MLX for Linux CPUs calls `cblas_sgemm`, `cblas_dgemm` and `cblas_cgemm` of the
reference BLAS, which is many times slower than OpenBLAS. `libmlx.so` jumps to them through cells
that the loader filled in. This module finds those cells by name (`elf.py`), writes the addresses
of the same functions of another library into them, and multiplies before and after: where anything
differs from what is expected, MLX stays as it was and the reason is told.
"""

import ctypes
import importlib.util
import os
import platform
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import mlx.core as mx

from skulkd.runner.cpu.elf import PT_DYNAMIC, Image, UnexpectedLayout, slots

FUNCTIONS = ("cblas_sgemm", "cblas_dgemm", "cblas_cgemm")
MLX_LIBRARY = "libmlx.so"
_BUNDLED_PACKAGE = "scipy_openblas32"
_BUNDLED_PREFIX = "scipy_"
SYSTEM_LIBRARIES = ("libopenblas.so.0", "libmkl_rt.so.3", "libmkl_rt.so.2", "libblis.so.4")
# One thread in each: MLX's streams are the threads, and a library's own would fight with them.
_ONE_THREAD = {
    "OPENBLAS_NUM_THREADS": "1",
    "MKL_NUM_THREADS": "1",
    "MKL_THREADING_LAYER": "SEQUENTIAL",
    "OMP_NUM_THREADS": "1",
    "BLIS_NUM_THREADS": "1",
}
_READ_WRITE = 1 | 2
_READ_ONLY = 1
_TOLERANCE = 1e-4


class CannotBind(Exception):
    """MLX keeps its own BLAS; the text says why."""


@dataclass(frozen=True, slots=True)
class BlasInUse:
    """What computes MLX's products. `problem` is set when another library was wanted."""

    name: str
    problem: str | None = None


OWN_BLAS = BlasInUse("MLX's own BLAS")


@dataclass(frozen=True, slots=True)
class Library:
    """A loaded BLAS and the addresses of its functions, by MLX's names for them."""

    name: str
    handle: ctypes.CDLL
    addresses: dict[str, int]


def bind_blas(setting: str) -> BlasInUse:
    """Follow `runtime.blas`. Must come before anything is computed; never raises CannotBind."""
    if setting == "off" or sys.platform != "linux" or mx.default_device() != mx.cpu:
        return OWN_BLAS
    try:
        library = find_library(setting)
        bind(library)
    except (CannotBind, UnexpectedLayout) as error:
        return BlasInUse(OWN_BLAS.name, str(error))
    return BlasInUse(library.name)


def find_library(setting: str) -> Library:
    """The library that `runtime.blas` means. Raises CannotBind."""
    os.environ.update(_ONE_THREAD)
    if setting == "auto":
        try:
            return _bundled()
        except CannotBind as missing:
            return _system(f"{missing}, and ")
    if setting == "bundled":
        return _bundled()
    if setting == "system":
        return _system()
    return _loaded(setting, Path(setting).name)


def _bundled() -> Library:
    found = importlib.util.find_spec(_BUNDLED_PACKAGE)
    folders = found.submodule_search_locations if found is not None else None
    for folder in folders or ():
        for path in sorted((Path(folder) / "lib").glob("libscipy_openblas*.so")):
            return _loaded(str(path), "bundled OpenBLAS", _BUNDLED_PREFIX)
    raise CannotBind("the package scipy-openblas32 is not installed")


def _system(before: str = "") -> Library:
    for name in SYSTEM_LIBRARIES:
        try:
            return _loaded(name, name)
        except CannotBind:
            continue
    raise CannotBind(f"{before}the loader finds none of {', '.join(SYSTEM_LIBRARIES)}")


def _loaded(path: str, name: str, prefix: str = "") -> Library:
    try:
        handle = ctypes.CDLL(path)
    except OSError as error:
        raise CannotBind(f"{name} cannot be loaded: {error}") from error
    addresses: dict[str, int] = {}
    for function in FUNCTIONS:
        try:
            found = getattr(handle, prefix + function)
        except AttributeError:
            raise CannotBind(f"{name} has no function {prefix}{function}") from None
        addresses[function] = ctypes.cast(found, ctypes.c_void_p).value or 0
    return Library(name, handle, addresses)


def bind(library: Library, into: str = MLX_LIBRARY) -> None:
    """Point MLX at this library. Raises CannotBind or UnexpectedLayout, with MLX as it was."""
    cells = slots(find_image(into), frozenset(FUNCTIONS), ctypes.string_at)
    if missing := [name for name in FUNCTIONS if name not in cells]:
        raise UnexpectedLayout(f"{into} has no slot for {', '.join(missing)}")
    expected = check_products()
    before: dict[int, int] = {}
    right = False
    try:
        for name in FUNCTIONS:
            for cell in cells[name]:
                before[cell] = exchange(cell, library.addresses[name])
        right = _agree(expected, check_products())
    finally:
        if not right:
            for cell, address in before.items():
                exchange(cell, address)
    if not right:
        raise CannotBind(f"{library.name} multiplies differently from MLX's own BLAS")


class _PhdrInfo(ctypes.Structure):
    """The beginning of the C library's dl_phdr_info."""

    _fields_ = (
        ("base", ctypes.c_uint64),
        ("name", ctypes.c_char_p),
        ("headers", ctypes.c_void_p),
        ("count", ctypes.c_uint16),
    )


class _Phdr(ctypes.Structure):
    _fields_ = (
        ("kind", ctypes.c_uint32),
        ("flags", ctypes.c_uint32),
        ("offset", ctypes.c_uint64),
        ("address", ctypes.c_uint64),
        ("physical", ctypes.c_uint64),
        ("in_file", ctypes.c_uint64),
        ("in_memory", ctypes.c_uint64),
        ("align", ctypes.c_uint64),
    )


def find_image(file_name: str) -> Image:
    """Where the loader put this library. Raises UnexpectedLayout."""
    found: list[Image] = []
    visitor = ctypes.CFUNCTYPE(
        ctypes.c_int, ctypes.POINTER(_PhdrInfo), ctypes.c_size_t, ctypes.c_void_p
    )

    def visit(info: Any, _size: int, _data: int | None) -> int:
        loaded = info.contents
        if Path(os.fsdecode(loaded.name or b"")).name == file_name:
            headers = ctypes.cast(loaded.headers, ctypes.POINTER(_Phdr))
            found.extend(
                Image(loaded.base, loaded.base + headers[at].address, platform.machine())
                for at in range(loaded.count)
                if headers[at].kind == PT_DYNAMIC
            )
        return 0

    ctypes.CDLL(None).dl_iterate_phdr(visitor(visit), None)
    if len(found) != 1:
        raise UnexpectedLayout(f"{file_name} is loaded {len(found)} times")
    return found[0]


def exchange(cell: int, address: int) -> int:
    """Put an address into a cell; the one that was there. Raises CannotBind when it is sealed."""
    target = ctypes.c_uint64.from_address(cell)
    before = target.value
    writable = _writable(cell)
    if not writable:
        # A linker may have asked for slots that are read-only once they are filled in (RELRO).
        _protect(cell, _READ_WRITE)
    target.value = address
    if not writable:
        _protect(cell, _READ_ONLY)
    return before


def _writable(address: int) -> bool:
    for line in Path("/proc/self/maps").read_text().splitlines():
        span, rights = line.split(maxsplit=2)[:2]
        begin, _, end = span.partition("-")
        if int(begin, 16) <= address < int(end, 16):
            return "w" in rights
    raise UnexpectedLayout("a slot is outside of mapped memory")


def _protect(address: int, rights: int) -> None:
    size = os.sysconf("SC_PAGESIZE")
    libc = ctypes.CDLL(None, use_errno=True)
    if libc.mprotect(ctypes.c_void_p(address // size * size), ctypes.c_size_t(size), rights):
        number = ctypes.get_errno()
        raise CannotBind(f"the slots are in sealed memory: {os.strerror(number)}")


def check_products() -> list[mx.array]:
    """Products of every kind that MLX asks a BLAS for: types, transpositions, row counts."""
    made: list[mx.array] = []
    for kind in (mx.float32, mx.float64, mx.complex64):
        for rows in (1, 3, 17):
            left, right = _numbers(rows, 40, kind), _numbers(40, 23, kind)
            made += [left @ right, left @ _numbers(23, 40, kind).T, (right.T @ left.T)]
            made.append(mx.addmm(_numbers(rows, 23, kind), left, right, alpha=0.5, beta=2.0))
    mx.eval(made)
    return made


def _numbers(rows: int, columns: int, kind: mx.Dtype) -> mx.array:
    values = mx.remainder(mx.arange(rows * columns) * 37, 101).astype(mx.float32) / 101 - 0.5
    return values.reshape(rows, columns).astype(kind)


def _agree(expected: list[mx.array], computed: list[mx.array]) -> bool:
    return all(
        bool(mx.all(mx.abs(one - other) <= _TOLERANCE).item())
        for one, other in zip(expected, computed, strict=True)
    )
