# SPDX-License-Identifier: Apache-2.0
"""The code in a payload, in tables: kernels of a cubin, entry functions of PTX, the kind of all else.

Keeps the promise of :mod:`.cubin`: any bytes give an answer, in time and memory that grow with their number and no
faster. Damage is part of it (``error``), not an exception.
"""

from __future__ import annotations

import re
from dataclasses import asdict
from typing import Any, Final

from lockcache.artifact import identify
from lockcache.cli.cubin import MOST_KERNELS, Names, read_kernels

# The bytes of a PTX that are read, enough for its entry functions.
_LARGEST_TEXT_BYTES: Final = 64 * 1024 * 1024

_VERSION: Final = re.compile(rb"^[ \t]{0,80}\.version[ \t]{1,80}([0-9]{1,3}\.[0-9]{1,3})", re.MULTILINE)
_TARGET: Final = re.compile(rb"^[ \t]{0,80}\.target[ \t]{1,80}([a-z0-9_, \t]{1,80})", re.MULTILINE)
_ADDRESS: Final = re.compile(rb"^[ \t]{0,80}\.address_size[ \t]{1,80}([0-9]{1,3})", re.MULTILINE)
_ENTRY: Final = re.compile(rb"\.entry[ \t\r\n]{1,80}([A-Za-z_$%][A-Za-z0-9_$]{0,4095})")
# A comment without an end reaches to the end of the text: searching for the end behind every `/*`, 128 KiB of them took
# half a minute.
_COMMENT: Final = re.compile(rb"//[^\n]*|/\*.*?(?:\*/|\Z)", re.DOTALL)


def read_code(payload: bytes) -> dict[str, Any]:
    """Returns kind, architecture and compiler as the bytes show them, and the contents, ready for JSON."""
    identified = identify(payload)
    found: dict[str, Any] = {**identified._asdict(), "bytes": len(payload)}
    if identified.kind == "cubin":
        return {**found, **_read_elf_header(payload), **_read_cubin(payload)}
    if identified.kind == "ptx":
        return {**found, **_read_ptx(payload[:_LARGEST_TEXT_BYTES])}
    return found


def _read_elf_header(payload: bytes) -> dict[str, Any]:
    return {
        "elf_abi": payload[8],
        "elf_flags": f"0x{int.from_bytes(payload[48:52], 'little'):08x}",
        "elf_type": int.from_bytes(payload[16:18], "little"),
    }


def _read_cubin(payload: bytes) -> dict[str, Any]:
    try:
        return {"kernels": [asdict(kernel) for kernel in read_kernels(payload)]}
    except ValueError as error:
        return {"kernels": [], "error": str(error)}


def _read_ptx(text: bytes) -> dict[str, Any]:
    code = _without_comments(text)
    version, target, address = _VERSION.search(code), _TARGET.search(code), _ADDRESS.search(code)
    return {
        "ptx_version": version[1].decode() if version else None,
        "target": target[1].decode().strip() if target else None,
        "address_size": int(address[1]) if address else None,
        **_read_entries(code),
    }


def _read_entries(code: bytearray) -> dict[str, Any]:
    entries: list[str] = []
    names = Names()
    try:
        for found in _ENTRY.finditer(code):
            if len(entries) == MOST_KERNELS:
                raise ValueError(f"it has more than {MOST_KERNELS} entry functions")
            entries.append(names.take(found[1]))
    except ValueError as error:
        return {"entries": entries, "error": f"{error}: these are the first"}
    return {"entries": entries}


def _without_comments(text: bytes) -> bytearray:
    # Not by sub: it keeps a list of the pieces, 1 GB of them for 64 MiB of `/**/`.
    code = bytearray()
    start = 0
    for comment in _COMMENT.finditer(text):
        code += text[start : comment.start()] + b" "
        start = comment.end()
    code += text[start:]
    return code
