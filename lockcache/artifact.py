# SPDX-License-Identifier: Apache-2.0
"""Kind, architecture, compiler and kernels of a payload, as far as its first bytes tell.

For what nobody recorded: entries of cuda.core's own cache, and values that were stored as plain bytes. Keeps one
promise: any bytes at all give an answer in time linear in their number, never an error; what is not recognised is
``None``. Bytes on disk are input that others may have written, so the answers are short and printable, and nobody
decides more by them than what to show or which entries an operator meant.

Seen in cubins of NVRTC 12.4, 12.9 and 13.5: CUDA 12, below sm_100, writes ELF ABI version 7, which has the architecture
in the lowest byte of e_flags, 0x800 for its "a" variant, and the toolkit (124 for 12.4) in e_version. ABI version 8 has
the architecture in the second byte, and a note names the compiler and the full architecture.
"""

from __future__ import annotations

import re
from typing import Final, NamedTuple

__all__ = ["HEAD_BYTES", "PTX_ENTRY", "Artifact", "identify"]

#: The bytes of a payload that are read. The notes of a cubin follow its names: sized for some hundred kernels.
HEAD_BYTES: Final = 16384

_ELF: Final = b"\x7fELF"
_LITTLE_ENDIAN_64: Final = b"\x02\x01"
_EM_CUDA: Final = 190
_OLD_ABI: Final = 7
_OLD_VARIANT_A: Final = 0x800

_MAGICS: Final = (
    (b"\xedCN\x7f", "ltoir"),
    (b"\x50\xed\x55\xba", "fatbin"),
    (b"BC\xc0\xde", "llvm-bitcode"),
)

_COMPILER: Final = re.compile(rb"Cuda compilation tools, release [0-9.]{1,12}, V([0-9]{1,4}(?:\.[0-9]{1,5}){1,3})")
_NOTED_ARCH: Final = re.compile(rb"-arch (sm_([0-9]{2,4})[af]?)[ \0]")
_PTX_VERSION: Final = re.compile(rb"^[ \t]{0,80}\.version[ \t]{1,80}[0-9]{1,3}\.[0-9]{1,3}", re.MULTILINE)
_PTX_TARGET: Final = re.compile(rb"^[ \t]{0,80}\.target[ \t]{1,80}(sm_[0-9]{2,4}[af]?)\b", re.MULTILINE)
#: An entry function of PTX.
PTX_ENTRY: Final = re.compile(rb"\.entry\s+([\w$]{1,80})")
# Of the sections that a cubin has for each function, only kernels have this one: their parameters. Names come first.
_PARAMETERS: Final = re.compile(rb"\.nv\.constant0\.([\w$.]{1,200})\0")


class Artifact(NamedTuple):
    """The properties of a payload; ``None`` for those not recognized."""

    #: ``cubin``, ``ptx``, ``ltoir``, ``fatbin``, ``llvm-bitcode`` or ``elf`` (of another machine).
    kind: str | None = None
    #: ``sm_90``, ``sm_100a``: of a cubin, or a PTX's target.
    arch: str | None = None
    #: ``cuda 13.5.37``, by what the compiler left in its output.
    compiler: str | None = None
    #: The names of its kernels, as far as they were seen.
    kernels: tuple[str, ...] = ()


def identify(payload: bytes) -> Artifact:
    """Returns the kind of program that ``payload`` is; its first :data:`HEAD_BYTES` suffice."""
    head = payload[:HEAD_BYTES]
    if head.startswith(_ELF):
        return _identify_elf(head)
    for magic, kind in _MAGICS:
        if head.startswith(magic):
            return Artifact(kind)
    if _PTX_VERSION.search(head):
        target = _PTX_TARGET.search(head)
        return Artifact("ptx", target[1].decode() if target else None, _compiler(head), _names(PTX_ENTRY, head))
    return Artifact()


def _identify_elf(head: bytes) -> Artifact:
    if len(head) < 64 or head[4:6] != _LITTLE_ENDIAN_64:
        return Artifact("elf")
    if int.from_bytes(head[18:20], "little") != _EM_CUDA:
        return Artifact("elf")
    flags, kernels = int.from_bytes(head[48:52], "little"), _names(_PARAMETERS, head)
    if head[8] > _OLD_ABI:
        return Artifact("cubin", _arch(head, flags >> 8 & 0xFF), _compiler(head), kernels)
    # In the years of this ABI e_version was the toolkit's.
    toolkit = int.from_bytes(head[20:24], "little")
    compiler = f"cuda {toolkit // 10}.{toolkit % 10}" if 50 <= toolkit < 1000 else None
    variant = "a" if flags & _OLD_VARIANT_A else ""
    return Artifact("cubin", f"sm_{flags & 0xFF}{variant}", _compiler(head) or compiler, kernels)


def _arch(head: bytes, number: int) -> str:
    """Returns the architecture, with its variant ("a", "f") if the note states one for the same number."""
    noted = _NOTED_ARCH.search(head)
    return noted[1].decode() if noted and int(noted[2]) == number else f"sm_{number}"


def _compiler(head: bytes) -> str | None:
    found = _COMPILER.search(head)
    return f"cuda {found[1].decode()}" if found else None


def _names(pattern: re.Pattern[bytes], head: bytes) -> tuple[str, ...]:
    return tuple(dict.fromkeys(name.decode() for name in pattern.findall(head)))
