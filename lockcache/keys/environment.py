# SPDX-License-Identifier: Apache-2.0
"""Inputs of the compilers that are not arguments: environment variables, working directory, temporary directory.

Keeps the contract's rule that what can change the output changes the key. Found by watching ``getenv`` and ``getcwd``
under NVRTC, NVVM and nvJitLink 13.5 and compiling with each variable set. Those that only choose where compilers put
temporary files, how many threads work or what is logged are not here: the bytes stay the same. ``TMPDIR`` counts where
cuda.core writes the source there.

A variable counts only while it is what it was when the process began. Some compilers read some of them once, when they
are loaded (NVRTC and NVVM 13.5 two each), others at each compilation, and frameworks bring further builds along: after
a change nobody knows by which value a program is compiled, so that it has no key.

Not promised: that a change is seen which was undone before the first key, with a compiler loaded in between.
"""

from __future__ import annotations

import os
import tempfile
from typing import Any, Final

from lockcache.errors import UncacheableError

_GENERATOR = "NV_NVVM_VERSION"  # picks one of two code generators: all output differs
_NVVM_GENERATOR = "LIBNVVM_NVVM_VERSION"  # the same, for libNVVM only
_PRODUCER = "LLVM_OVERRIDE_PRODUCER"  # is written into LTO-IR
_ELF_BUILDER = "FINALIZER_USE_LEGACY_ELF_BUILDER"  # another layout of the cubin

_VARIABLES = {
    "ptx": (_GENERATOR, _NVVM_GENERATOR),
    "cubin": (_GENERATOR, _ELF_BUILDER),
    "ltoir": (_GENERATOR, _NVVM_GENERATOR, _PRODUCER),
}
_ALL_VARIABLES = sorted({name for each in _VARIABLES.values() for name in each})
_ALL_ENCODED = frozenset(map(os.fsencode, _ALL_VARIABLES))


def variables(target_type: str) -> list[object]:
    """Returns the names and values of the set variables that change this kind of output.

    Raises :class:`UncacheableError` as :func:`all_variables` does.
    """
    return [each for each in all_variables() if each[0] in _VARIABLES[target_type]]


def variable_names() -> list[str]:
    """Returns the names of all variables that change the output of a compiler."""
    return list(_ALL_VARIABLES)


def all_variables() -> list[list[str]]:
    """Returns the names and values of the set variables that change any kind of output.

    Raises :class:`UncacheableError` where one of them has changed since the process began, and from then on.
    """
    global _at_start
    now = _set_now()
    if _at_start is None:
        _at_start = _set_at_start()
    if now != _at_start:
        if _at_start is not _CHANGED:
            _changed.update(each[0] for each in (*now, *_at_start) if each not in now or each not in _at_start)
            _at_start = _CHANGED
        raise UncacheableError(_why(", ".join(sorted(_changed))))
    return now


#: What :func:`_set_at_start` returned; what no environment is, once a variable has changed: a compiler may have been
#: loaded in between, also if the variable is changed back.
_at_start: list[list[str]] | None = None
_CHANGED: Final = [["a change", ""]]
_changed: set[str] = set()


def _why(names: str) -> str:
    return (
        f"{names} changed after the process began, and some compilers read it when they are loaded, others each time. "
        "Set it before"
    )


def _set_now() -> list[list[str]]:
    # The dictionary in os.environ, if this Python has it there, knows at once that all are unset.
    known = getattr(os.environ, "_data", None)
    if isinstance(known, dict) and known.keys().isdisjoint(_ALL_ENCODED):
        return []
    get = os.environ.get
    return [[name, value] for name in _ALL_VARIABLES if (value := get(name)) is not None]


_AT_IMPORT: Final = _set_now()


def _set_at_start() -> list[list[str]]:
    """Returns the variables with which the process began; with which this module was loaded where nobody knows."""
    try:
        with open("/proc/self/environ", "rb") as file:
            began = file.read()
    except OSError:
        return _AT_IMPORT
    if b"\0\0" in began:  # setproctitle, as in vLLM, Ray and gunicorn, writes over it, and fills the rest with zeros
        return _AT_IMPORT
    given = dict(each.partition(b"=")[::2] for each in began.split(b"\0"))
    return [
        [name, os.fsdecode(value)] for name in _ALL_VARIABLES if (value := given.get(os.fsencode(name))) is not None
    ]


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
