# SPDX-License-Identifier: Apache-2.0
"""Contents of a cubin, by its ELF tables: kernels, their sizes, registers and memory.

Keeps one promise: any bytes at all give tables or a :class:`ValueError` that says what is wrong, in bounded time and
memory. What may be large in a hostile file is bounded before it is read: sections, symbols, kernels, each name, and all
names together, since a thousand names may be ends of one long string. It does not use pyelftools, which needed 596 MiB
for the names in 496 KB.

Registers and stack come from the attributes EIATTR_REGCOUNT and EIATTR_MIN_STACK_SIZE in ``.nv.info``, as cubins of
CUDA 12 and 13 have them; kernels are the
functions whose symbol carries STO_CUDA_ENTRY, as ``cuobjdump -elf`` lists them.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final, NamedTuple

#: More than any library has, and few enough to be shown.
MOST_KERNELS: Final = 10_000

# A cubin of a template-heavy library has some thousand sections.
_MOST_SECTIONS: Final = 20_000
_MOST_SYMBOLS: Final = 100_000
_LARGEST_TABLE_BYTES: Final = 16 * 1024 * 1024
_LONGEST_NAME: Final = 4096
# The bytes of all kernels' names: 10,000 mangled names of 400 characters each.
_LONGEST_NAMES: Final = 4 * 1024 * 1024

_MAGIC: Final = b"\x7fELF\x02\x01"
_HEADER: Final = struct.Struct("<40xQ10xHHH")
_SECTION: Final = struct.Struct("<IIQQQQIIQQ")
_SYMBOL: Final = struct.Struct("<IBBHQQ")
_STO_CUDA_ENTRY: Final = 0x10
_STT_FUNC: Final = 2
_SHF_COMPRESSED: Final = 0x800

_EIFMT_SVAL: Final = 4
_EIATTR_MIN_STACK_SIZE: Final = 0x12
_EIATTR_REGCOUNT: Final = 0x2F


@dataclass(frozen=True)
class Kernel:
    """One entry function."""

    name: str
    code_bytes: int
    #: The registers of each thread.
    registers: int | None
    #: The local memory of each thread: arrays, spilled registers, and what called functions need.
    stack_bytes: int | None
    #: The static shared memory of each block.
    shared_bytes: int
    constant_bytes: int


class Names:
    """Counts names against what all of them together may take. Raises :class:`ValueError` for the first too many."""

    def __init__(self, most_bytes: int = _LONGEST_NAMES) -> None:
        self._left_bytes = self._most_bytes = most_bytes

    def take(self, name: bytes) -> str:
        """Returns the name as text."""
        self._left_bytes -= len(name)
        if self._left_bytes < 0:
            raise ValueError(f"its names take more than {self._most_bytes} bytes")
        return name.decode("utf-8", "backslashreplace")

    def at(self, table: bytes, start: int) -> str:
        """Returns the name that stands there in a table of them."""
        end = table.find(b"\0", start, start + _LONGEST_NAME)
        return self.take(table[start : end if end >= 0 else start + _LONGEST_NAME])


class _Section(NamedTuple):
    name_at: int
    flags: int
    start: int
    size_bytes: int


def read_kernels(payload: bytes) -> list[Kernel]:
    """Returns the kernels of a cubin, by name. Raises :class:`ValueError` for what is none, or damaged."""
    sections = _named_sections(payload)
    if ".symtab" not in sections or ".strtab" not in sections:
        return []
    numbers = _numbers(_table(payload, ".nv.info", sections))
    symbols, strings = _table(payload, ".symtab", sections), _table(payload, ".strtab", sections)
    kernels = [
        Kernel(
            name,
            _size(f".text.{name}", sections),
            numbers.get((_EIATTR_REGCOUNT, index)),
            numbers.get((_EIATTR_MIN_STACK_SIZE, index)),
            _size(f".nv.shared.{name}", sections),
            _size(f".nv.constant0.{name}", sections),
        )
        for index, name in _kernel_names(symbols, strings)
    ]
    return sorted(kernels, key=lambda kernel: kernel.name)


def _named_sections(payload: bytes) -> dict[str, _Section]:
    if payload[: len(_MAGIC)] != _MAGIC:
        raise ValueError("a cubin is a 64-bit little-endian ELF file")
    if len(payload) < _HEADER.size:
        raise ValueError("its ELF header is cut off")
    start, entry_bytes, count, names_at = _HEADER.unpack_from(payload)
    if count > _MOST_SECTIONS:
        raise ValueError(f"it has {count} sections")
    heads = payload[start : start + count * _SECTION.size]
    if (entry_bytes != _SECTION.size and count) or len(heads) < count * _SECTION.size:
        raise ValueError("its table of sections is damaged, or cut off")
    sections = [_Section(head[0], head[2], head[4], head[5]) for head in _SECTION.iter_unpack(heads)]
    if not sections:
        return {}
    if names_at >= len(sections):
        raise ValueError(f"it has {count} sections, and their names in section {names_at}")
    names, table = Names(_LARGEST_TABLE_BYTES), _bytes(payload, "the table of section names", sections[names_at])
    return {names.at(table, section.name_at): section for section in sections}


def _size(name: str, sections: dict[str, _Section]) -> int:
    return sections[name].size_bytes if name in sections else 0


def _table(payload: bytes, name: str, sections: dict[str, _Section]) -> bytes:
    return _bytes(payload, name, sections[name]) if name in sections else b""


def _bytes(payload: bytes, name: str, section: _Section) -> bytes:
    if section.flags & _SHF_COMPRESSED or section.size_bytes > _LARGEST_TABLE_BYTES:
        raise ValueError(f"{name} is compressed, or has {section.size_bytes} bytes")
    return payload[section.start : section.start + section.size_bytes]


def _kernel_names(table: bytes, strings: bytes) -> Iterator[tuple[int, str]]:
    """Yields the indices of the symbols that are kernels, and their names."""
    if len(table) > _MOST_SYMBOLS * _SYMBOL.size:
        raise ValueError(f"it has {len(table) // _SYMBOL.size} symbols")
    names, count = Names(), 0
    whole = table[: len(table) // _SYMBOL.size * _SYMBOL.size]
    for index, (name_at, info, other, *_) in enumerate(_SYMBOL.iter_unpack(whole)):
        if info & 0xF == _STT_FUNC and other & _STO_CUDA_ENTRY:
            count += 1
            if count > MOST_KERNELS:
                raise ValueError(f"it has more than {MOST_KERNELS} kernels")
            yield index, names.at(strings, name_at)


def _numbers(info: bytes) -> dict[tuple[int, int], int]:
    """Returns the numbers in a list of (format, attribute, size or value, data), by attribute and index of a symbol."""
    start, found = 0, {}
    while start + 4 <= len(info):
        kind, attribute, size = struct.unpack_from("<BBH", info, start)
        start += 4
        if kind != _EIFMT_SVAL:
            continue  # its value is where others have their size
        if attribute in (_EIATTR_REGCOUNT, _EIATTR_MIN_STACK_SIZE) and size == 8 and start + size <= len(info):
            symbol, number = struct.unpack_from("<II", info, start)
            found[attribute, symbol] = number
        start += size
    return found
