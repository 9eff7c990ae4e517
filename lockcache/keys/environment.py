# SPDX-License-Identifier: Apache-2.0
"""Inputs of the compilers that are not arguments: environment variables, working directory, temporary directory.

Keeps the contract's rule that what can change the output changes the key. Found by watching ``getenv`` and ``getcwd``
under NVRTC, NVVM and nvJitLink 13.5 and compiling with each variable set. Those that only choose where compilers put
temporary files, how many threads work or what is logged are not here: the bytes stay the same. ``TMPDIR`` counts where
cuda.core writes the source there.
"""

from __future__ import annotations

import os
import tempfile
from typing import Any

_GENERATOR = "NV_NVVM_VERSION"  # picks one of two code generators: all output differs
_NVVM_GENERATOR = "LIBNVVM_NVVM_VERSION"  # the same, for libNVVM only
_PRODUCER = "LLVM_OVERRIDE_PRODUCER"  # is written into LTO-IR
_ELF_BUILDER = "FINALIZER_USE_LEGACY_ELF_BUILDER"  # another layout of the cubin

# By target, because looking up a variable that is unset costs 0.6 us, a twentieth of a key.
_VARIABLES = {
    "ptx": (_GENERATOR, _NVVM_GENERATOR),
    "cubin": (_GENERATOR, _ELF_BUILDER),
    "ltoir": (_GENERATOR, _NVVM_GENERATOR, _PRODUCER),
}
_ALL_VARIABLES = sorted({name for each in _VARIABLES.values() for name in each})
_ALL_ENCODED = frozenset(map(os.fsencode, _ALL_VARIABLES))


def variables(target_type: str) -> list[object]:
    """Returns the names and values of the set variables that change this kind of output.

    Read again at each call: a program may set them between two compilations.
    """
    get = os.environ.get
    return [[name, value] for name in _VARIABLES[target_type] if (value := get(name)) is not None]


def variable_names() -> list[str]:
    """Returns the names of all variables that change the output of a compiler."""
    return list(_ALL_VARIABLES)


def all_variables() -> list[object]:
    """Returns the names and values of the set variables that change any kind of output."""
    # The dictionary in os.environ, if this Python has it there, knows at once that all are unset.
    known = getattr(os.environ, "_data", None)
    if isinstance(known, dict) and known.keys().isdisjoint(_ALL_ENCODED):
        return []
    get = os.environ.get
    return [[name, value] for name in _ALL_VARIABLES if (value := get(name)) is not None]


def working_directory() -> list[object]:
    """Returns both names of the working directory for NVRTC: the real one, and $PWD if that is the same directory.

    NVRTC writes $PWD where it is a name of the working directory: through a symbolic link the output differs.
    A directory that was removed has no name, to us as to NVRTC.
    """
    try:
        real = os.getcwd()
    except FileNotFoundError:
        return []
    named = os.environ.get("PWD")
    if not named or named == real or not _is_working_directory(named):
        return [os.fsencode(real)]
    return [os.fsencode(real), os.fsencode(named)]


def temporary_source(options: Any) -> str | None:
    """Returns where cuda.core writes the source that NVRTC compiles then; ``None`` where it compiles the text itself.

    With debug or line information and without a name, it writes a file for debuggers, under another name each time, in
    the directory of temporary files. The output names that directory, and ``__FILE__`` does.
    """
    if (options.debug or options.lineinfo) and options.name in (None, "default_program"):
        return os.path.join(tempfile.gettempdir(), "source.cu")
    return None


def _is_working_directory(path: str) -> bool:
    try:
        return os.path.samefile(path, ".")
    except OSError:
        return False  # it names nothing that can be looked at: NVRTC does not use it either
