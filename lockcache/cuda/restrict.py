# SPDX-License-Identifier: Apache-2.0
"""A fault of NVRTC: once a process compiled with ``restrict``, it goes on as if every later program had it.

Decides what is not stored for that reason: other processes would get code that is wrong where pointers alias. Found in
NVRTC 12.9, 13.0, 13.2, 13.4 and 13.5, the newest there is; a later one is asked, once in a process that needs to know.
What NVRTC was asked for by others in this process is not known here.
"""

from __future__ import annotations

import functools
from typing import Final

from cuda.core import ProgramOptions

from lockcache.cuda.lazy_program import OwnProgram

_NEWEST_WITH_THE_FAULT: Final = (13, 5)
# Its loads come first only if it may be assumed that pointers do not alias.
_PROBE: Final = 'extern "C" __global__ void k(int* a, const int* b) { a[0] = *b; a[1] = *b + 1; a[2] = *b + 2; }'

_has_restricted = False


def note_restrict() -> None:
    """Note that this process compiles a program with ``restrict``."""
    global _has_restricted
    _has_restricted = True


def is_tainted(arch: str) -> bool:
    """Returns whether what this process just compiled without ``restrict`` came out as if with it."""
    return _has_restricted and _has_fault(arch)


@functools.cache
def _has_fault(arch: str) -> bool:
    from cuda.bindings import nvrtc

    _, *version = nvrtc.nvrtcVersion()
    if tuple(version) <= _NEWEST_WITH_THE_FAULT:
        return True
    try:
        return _compiled(arch, restrict=True) == _compiled(arch, restrict=None)
    except Exception:  # noqa: BLE001 - the program itself was compiled: one that cannot be asked may have the fault
        return True


def _compiled(arch: str, *, restrict: bool | None) -> bytes:
    options = ProgramOptions(arch=arch.replace("compute_", "sm_"), restrict=restrict)
    program = OwnProgram(_PROBE, "c++", options)
    try:
        return bytes(program.compile("cubin").code)
    finally:
        program.close()
