"""What is in a cubin, by its ELF tables: kernels, their sizes, registers and memory.

Keeps one promise: any bytes at all give tables or a :class:`ValueError` that says what is wrong, in bounded time and
memory. Read with pyelftools, which is made for well-formed files: what it raises on others is caught here, and what may
only be large in a hostile one (sections, symbols, names) is bounded.

Registers come from the attribute EIATTR_REGCOUNT in ``.nv.info``, as cubins of CUDA 12 and 13 have it; kernels are the
functions whose symbol carries STO_CUDA_ENTRY, as ``cuobjdump -elf`` lists them.
"""

from __future__ import annotations

import io
import struct
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, Final

from elftools.common.exceptions import ELFError
from elftools.construct.core import ConstructError
from elftools.elf.elffile import ELFFile

__all__ = ["Kernel", "read_kernels"]

# A cubin of a template-heavy library has some thousand sections.
_MOST_SECTIONS: Final = 20_000
_MOST_SYMBOLS: Final = 100_000
_LARGEST_TABLE_BYTES: Final = 16 * 1024 * 1024
_LONGEST_NAME: Final = 4096

_SYMBOL_BYTES: Final = 24
_STO_CUDA_ENTRY: Final = 0x10
_STT_FUNC: Final = 2
_SHF_COMPRESSED: Final = 0x800

_EIFMT_SVAL: Final = 4
_EIATTR_REGCOUNT: Final = 0x2F

# What reading a damaged file with pyelftools ends in, besides its own error; found by fuzzing.
_DAMAGE: Final = (
    ELFError,
    ConstructError,
    struct.error,
    ArithmeticError,
    AttributeError,
    LookupError,
    MemoryError,
    OSError,
    RecursionError,
    TypeError,
    ValueError,
)


@dataclass(frozen=True)
class Kernel:
    """One entry function."""

    name: str
    code_bytes: int
    #: Of each thread.
    registers: int | None
    #: Of each block, static.
    shared_bytes: int
    constant_bytes: int


@dataclass(frozen=True)
class _Symbol:
    name: str
    is_kernel: bool
    section: int


def read_kernels(payload: bytes) -> list[Kernel]:
    """The kernels of a cubin, by name. Raises :class:`ValueError` for what is none, or damaged."""
    try:
        return _read(ELFFile(io.BytesIO(payload)))
    except _DAMAGE as error:
        raise ValueError(f"its ELF tables are damaged: {type(error).__name__}: {error}") from error


def _read(elf: Any) -> list[Kernel]:
    if elf.elfclass != 64 or not elf.little_endian:
        raise ValueError("a cubin is a 64-bit little-endian ELF file")
    if elf.num_sections() > _MOST_SECTIONS:
        raise ValueError(f"it has {elf.num_sections()} sections")
    sizes: dict[str, int] = {}
    tables: dict[str, Any] = {}
    for section in elf.iter_sections():
        sizes[section.name] = section["sh_size"]
        if section.name in (".symtab", ".strtab", ".nv.info"):
            tables[section.name] = section
    if ".symtab" not in tables or ".strtab" not in tables:
        return []
    symbols = list(_symbols(_bytes(tables[".symtab"]), _bytes(tables[".strtab"])))
    registers = dict(_register_counts(_bytes(tables[".nv.info"]))) if ".nv.info" in tables else {}
    kernels = [
        Kernel(
            symbol.name,
            sizes.get(f".text.{symbol.name}", 0),
            registers.get(index),
            sizes.get(f".nv.shared.{symbol.name}", 0),
            sizes.get(f".nv.constant0.{symbol.name}", 0),
        )
        for index, symbol in enumerate(symbols)
        if symbol.is_kernel
    ]
    return sorted(kernels, key=lambda kernel: kernel.name)


def _bytes(section: Any) -> bytes:
    if section["sh_flags"] & _SHF_COMPRESSED or section["sh_size"] > _LARGEST_TABLE_BYTES:
        raise ValueError(f"{section.name} is compressed, or has {section['sh_size']} bytes")
    data: bytes = section.data()
    return data


def _symbols(table: bytes, names: bytes) -> Iterator[_Symbol]:
    # Not by pyelftools: it drops the bit of st_other that tells a kernel from a device function.
    if len(table) > _MOST_SYMBOLS * _SYMBOL_BYTES:
        raise ValueError(f"it has {len(table) // _SYMBOL_BYTES} symbols")
    for name, info, other, section, _, _ in struct.iter_unpack("<IBBHQQ", table[: len(table) // 24 * 24]):
        is_kernel = info & 0xF == _STT_FUNC and bool(other & _STO_CUDA_ENTRY)
        yield _Symbol(_string(names, name) if is_kernel else "", is_kernel, section)


def _string(names: bytes, start: int) -> str:
    end = names.find(b"\0", start, start + _LONGEST_NAME)
    return names[start : end if end >= 0 else start + _LONGEST_NAME].decode("utf-8", "backslashreplace")


def _register_counts(info: bytes) -> Iterator[tuple[int, int]]:
    """Pairs of symbol index and registers. The section is a list of (format, attribute, size or value, data)."""
    start = 0
    while start + 4 <= len(info):
        kind, attribute, size = struct.unpack_from("<BBH", info, start)
        start += 4
        if kind != _EIFMT_SVAL:
            continue  # its value is where others have their size
        if attribute == _EIATTR_REGCOUNT and size == 8 and start + size <= len(info):
            yield struct.unpack_from("<II", info, start)
        start += size
