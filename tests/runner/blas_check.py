"""`python -m tests.runner.blas_check`: bind MLX to another BLAS in this process, in every way.

Prints one JSON object. A process of its own, because what is bound stays bound.
"""

from __future__ import annotations

import ctypes
import json
import mmap

import mlx.core as mx

from skulkd.runner.compute import measured_gflops
from skulkd.runner.cpu.blas_binding import (
    FUNCTIONS,
    CannotBind,
    Library,
    bind,
    bind_blas,
    check_products,
    exchange,
    find_image,
    find_library,
)
from skulkd.runner.cpu.elf import UnexpectedLayout, slots

_MSEAL = 462  # the same number on every machine


def cells() -> dict[str, int]:
    found = slots(find_image("libmlx.so"), frozenset(FUNCTIONS), ctypes.string_at)
    return {
        f"{name} {cell}": ctypes.c_uint64.from_address(cell).value
        for name in FUNCTIONS
        for cell in found[name]
    }


def refusal(library: Library, into: str = "libmlx.so") -> str:
    try:
        bind(library, into)
    except (CannotBind, UnexpectedLayout) as error:
        return str(error)
    return ""


def read_only_page() -> tuple[mmap.mmap, int]:
    page = mmap.mmap(-1, mmap.PAGESIZE)
    address = ctypes.addressof(ctypes.c_char.from_buffer(page))
    ctypes.CDLL(None).mprotect(ctypes.c_void_p(address), ctypes.c_size_t(mmap.PAGESIZE), 1)
    return page, address


def sealed() -> str | None:
    """What is said of a cell in sealed memory; None where this kernel cannot seal."""
    page, address = read_only_page()
    if ctypes.CDLL(None).syscall(_MSEAL, ctypes.c_void_p(address), mmap.PAGESIZE, 0):
        return None
    try:
        exchange(address, 1)
    except CannotBind as error:
        return str(error)
    return f"written, {len(page)} bytes"


def main() -> None:
    check_products()  # slots that are filled in lazily are filled in now
    expected, before = check_products(), cells()
    own_gflops = measured_gflops()
    getpid = ctypes.cast(ctypes.CDLL(None).getpid, ctypes.c_void_p).value or 0
    wrong = Library("a wrong library", ctypes.CDLL(None), dict.fromkeys(FUNCTIONS, getpid))
    said = {
        "wrong": refusal(wrong),
        "no slot": refusal(find_library("bundled"), into="libc.so.6"),
        "not loaded": refusal(find_library("bundled"), into="libnone.so"),
        "no file": bind_blas("/nowhere/libblas.so").problem,
        "no function": bind_blas("libc.so.6").problem,
        "off": bind_blas("off").problem,
        "sealed": sealed(),
    }
    untouched = cells() == before
    _, page = read_only_page()
    read_only = exchange(page, 7), exchange(page, 0)
    bound = bind_blas("auto")
    after = cells()
    far = max(
        float(mx.max(mx.abs(one - two)).item())
        for one, two in zip(expected, check_products(), strict=True)
    )
    print(  # noqa: T201
        json.dumps(
            {
                "said": said,
                "untouched": untouched,
                "read_only": read_only,
                "name": bound.name,
                "problem": bound.problem,
                "changed": [cell for cell in after if after[cell] != before[cell]] == list(before),
                "far": far,
                "faster": measured_gflops() / own_gflops,
            }
        )
    )


if __name__ == "__main__":
    main()
