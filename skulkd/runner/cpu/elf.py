"""Which memory cells of a loaded library hold the addresses of functions from other libraries.

Reads the dynamic section of a 64-bit ELF image as the loader left it in memory. Knows nothing of
MLX, and changes nothing.
"""

import struct
from collections.abc import Callable, Iterator
from dataclasses import dataclass

ReadMemory = Callable[[int, int], bytes]
"""Bytes at an address: how many are wanted comes second."""

PT_DYNAMIC = 2
_DT_NULL, _DT_PLTRELSZ, _DT_STRTAB, _DT_SYMTAB = 0, 2, 5, 6
_DT_RELA, _DT_RELASZ, _DT_STRSZ, _DT_PLTREL, _DT_JMPREL = 7, 8, 10, 20, 23
# R_X86_64_GLOB_DAT and JUMP_SLOT, R_AARCH64_GLOB_DAT and JUMP_SLOT.
SLOT_KINDS = {"x86_64": {6, 7}, "aarch64": {1025, 1026}}
_DYN = struct.Struct("<qQ")
_RELA = struct.Struct("<QQq")
_SYM_BYTES = 24
_MOST_ENTRIES = 1 << 20


class UnexpectedLayout(Exception):
    """The image is not what this module can read; the text says why."""


@dataclass(frozen=True, slots=True)
class Image:
    """A loaded library: where it begins, where its dynamic section is, and for which machine."""

    base: int
    dynamic: int
    machine: str


def slots(image: Image, names: frozenset[str], read: ReadMemory) -> dict[str, list[int]]:
    """Addresses of the cells for each of these functions. Raises UnexpectedLayout."""
    kinds = SLOT_KINDS.get(image.machine)
    if kinds is None:
        raise UnexpectedLayout(f"no relocation kinds are known for {image.machine}")
    tags = _tags(image, read)
    found: dict[str, list[int]] = {}
    for offset, info in _relocations(image, tags, read):
        if info & 0xFFFF_FFFF in kinds:
            name = _symbol_name(image, tags, info >> 32, read)
            if name in names:
                found.setdefault(name, []).append(image.base + offset)
    return found


def _tags(image: Image, read: ReadMemory) -> dict[int, int]:
    tags: dict[int, int] = {}
    for at in range(_MOST_ENTRIES):
        tag, value = _DYN.unpack(read(image.dynamic + at * _DYN.size, _DYN.size))
        if tag == _DT_NULL:
            break
        tags[tag] = value
    if missing := {_DT_STRTAB, _DT_SYMTAB, _DT_STRSZ} - tags.keys():
        raise UnexpectedLayout(f"the dynamic section has no tags {sorted(missing)}")
    return tags


def _relocations(image: Image, tags: dict[int, int], read: ReadMemory) -> Iterator[tuple[int, int]]:
    if tags.get(_DT_PLTREL, _DT_RELA) != _DT_RELA:
        raise UnexpectedLayout("its relocations have no addends")
    for table, size in ((_DT_JMPREL, _DT_PLTRELSZ), (_DT_RELA, _DT_RELASZ)):
        if table not in tags:
            continue
        count = tags.get(size, 0)
        if count % _RELA.size or count > _MOST_ENTRIES * _RELA.size:
            raise UnexpectedLayout(f"a relocation table of {count} bytes")
        for offset, info, _ in _RELA.iter_unpack(read(_address(image, tags[table]), count)):
            yield offset, info


def _symbol_name(image: Image, tags: dict[int, int], index: int, read: ReadMemory) -> str:
    symbol = _address(image, tags[_DT_SYMTAB]) + index * _SYM_BYTES
    (offset,) = struct.unpack("<I", read(symbol, 4))
    if offset >= tags[_DT_STRSZ]:
        raise UnexpectedLayout("a symbol's name is outside of the string table")
    begin = _address(image, tags[_DT_STRTAB]) + offset
    return _text(begin, tags[_DT_STRSZ] - offset, read)


def _text(begin: int, most: int, read: ReadMemory) -> str:
    """Up to a zero byte; only as long as a name that anybody looks for."""
    return read(begin, min(most, 64)).partition(b"\0")[0].decode("ascii", "replace")


def _address(image: Image, value: int) -> int:
    """glibc writes addresses into the dynamic section, other loaders leave offsets there."""
    return value if value >= image.base else image.base + value
