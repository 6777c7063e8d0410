"""Finding the slots of a library's functions in an image as the loader leaves it in memory."""

from __future__ import annotations

import struct

import pytest

from skulkd.runner.cpu.elf import Image, UnexpectedLayout, slots

BASE = 0x7F00_0000_0000
NAMES = ("puts", "cblas_sgemm", "cblas_dgemm")
WANTED = frozenset({"cblas_sgemm", "cblas_dgemm"})
DYNAMIC, STRINGS, SYMBOLS, PLT, OTHER, END = 0x000, 0x200, 0x400, 0x600, 0x800, 0xA00


def an_image(
    kinds: dict[str, int],
    *,
    in_plt: tuple[str, ...] = NAMES,
    elsewhere: tuple[str, ...] = (),
    relocated: bool = True,
    leave_out: int | None = None,
    string_bytes: int | None = None,
    plt_kind: int = 7,
) -> bytes:
    """A dynamic section with its tables. The slot of a name is at 0x1000 and its place in NAMES."""
    memory = bytearray(END)
    strings = b"\0" + b"\0".join(name.encode() for name in NAMES) + b"\0"
    memory[STRINGS : STRINGS + len(strings)] = strings
    for number, name in enumerate(NAMES, start=1):
        at = SYMBOLS + 24 * number
        memory[at : at + 4] = struct.pack("<I", strings.index(name.encode()))

    def table(begin: int, names: tuple[str, ...]) -> int:
        entries = [
            struct.pack("<QQq", 0x1000 + 8 * number, (number + 1) << 32 | kinds[name], 0)
            for number, name in enumerate(NAMES)
            if name in names
        ]
        memory[begin : begin + 24 * len(entries)] = b"".join(entries)
        return 24 * len(entries)

    shift = BASE if relocated else 0
    tags = {
        5: STRINGS + shift,
        6: SYMBOLS + shift,
        10: len(strings) if string_bytes is None else string_bytes,
        23: PLT + shift,
        2: table(PLT, in_plt),
        20: plt_kind,
        7: OTHER + shift,
        8: table(OTHER, elsewhere),
    }
    if leave_out is not None:
        del tags[leave_out]
    section = b"".join(struct.pack("<qQ", *item) for item in tags.items())
    memory[DYNAMIC : DYNAMIC + len(section)] = section
    return bytes(memory)


def found_in(memory: bytes, machine: str) -> dict[str, list[int]]:
    def read(address: int, size: int) -> bytes:
        assert BASE <= address <= address + size <= BASE + END, hex(address)
        return memory[address - BASE : address - BASE + size]

    return slots(Image(BASE, BASE + DYNAMIC, machine), WANTED, read)


@pytest.mark.parametrize("relocated", [True, False], ids=["addresses", "offsets"])
@pytest.mark.parametrize(
    ("machine", "kind", "in_plt", "elsewhere"),
    [
        pytest.param("x86_64", 7, NAMES, (), id="x86-64 jump slots"),
        pytest.param("x86_64", 6, (), NAMES, id="x86-64 without a PLT"),
        pytest.param("aarch64", 1026, NAMES, (), id="aarch64 jump slots"),
        pytest.param("aarch64", 1025, (), NAMES, id="aarch64 without a PLT"),
    ],
)
def test_slots_are_found_by_name_on_both_machines(
    machine: str, kind: int, in_plt: tuple[str, ...], elsewhere: tuple[str, ...], relocated: bool
) -> None:
    memory = an_image(
        dict.fromkeys(NAMES, kind), in_plt=in_plt, elsewhere=elsewhere, relocated=relocated
    )
    assert found_in(memory, machine) == {
        "cblas_sgemm": [BASE + 0x1008],
        "cblas_dgemm": [BASE + 0x1010],
    }


def test_a_function_that_is_called_and_pointed_at_has_two_slots() -> None:
    memory = an_image(dict.fromkeys(NAMES, 7), elsewhere=("cblas_sgemm",))
    assert len(found_in(memory, "x86_64")["cblas_sgemm"]) == 2


def test_relocations_of_another_kind_are_no_slots() -> None:
    memory = an_image({"puts": 7, "cblas_sgemm": 1, "cblas_dgemm": 7})
    assert list(found_in(memory, "x86_64")) == ["cblas_dgemm"]
    assert found_in(memory, "aarch64") == {}


@pytest.mark.parametrize(
    ("machine", "changes", "why"),
    [
        pytest.param("riscv64", {}, "riscv64", id="an unknown machine"),
        pytest.param("x86_64", {"leave_out": 6}, "no tags", id="no symbol table"),
        pytest.param("x86_64", {"string_bytes": 3}, "outside", id="names outside of their table"),
        pytest.param("x86_64", {"plt_kind": 17}, "addends", id="relocations without addends"),
    ],
)
def test_another_layout_is_refused(machine: str, changes: dict[str, int], why: str) -> None:
    memory = an_image(dict.fromkeys(NAMES, 7), **changes)  # type: ignore[arg-type]
    with pytest.raises(UnexpectedLayout, match=why):
        found_in(memory, machine)
