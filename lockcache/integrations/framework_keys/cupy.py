# SPDX-License-Identifier: Apache-2.0
"""The key of a CuPy kernel among processes that share a directory: CuPy's own, and what CuPy leaves out of it.

CuPy's key has the source, all options as they are spelled, the texts of CuPy's headers, and version and build of NVRTC.
It lacks the headers that the source includes, which harms nobody in a directory of one user: here their digest is
added. It has the paths of the virtual environment, of CUDA and of the user's headers: they are taken out where they
cannot reach the output. Assertions in CuPy's own headers, which its version stands for, may name the place where they
lay when the kernel was compiled.

What is compiled by nvcc or jitify, linked with ``cudadevrt``, or reads files by another option than ``-I`` has no key.
"""

from __future__ import annotations

import hashlib
import os
import re
from typing import Any, Final, NamedTuple

from lockcache import headers
from lockcache.headers import PathUse
from lockcache.keys import all_variables, kernel_names

__all__ = ["Request", "SharedKey", "restricts", "shared_key"]

_INCLUDE: Final = re.compile(r"(?:-I|--include-path=)\s*(.*)", re.DOTALL)
_DEFINE: Final = re.compile(r"(?:-D|--define-macro=)\s*(.*)", re.DOTALL)
# Each with a file that NVRTC or ptxas reads or writes, or a compilation by more than NVRTC.
_FILES: Final = re.compile(
    r"-{1,2}(?:pch|use-pch|create-pch|pch-dir|pre-include|include$|include=|options-file|optf|Xptxas|ptxas-options"
    r"|time|fdevice-time-trace|minimal$|no-source-include"
    r"|dc$|device-c$|rdc|relocatable-device-code|use_bundled_headers|use-bundled-headers)"
)
_RESTRICT: Final = ("-restrict", "--restrict", "-restrict=true", "--restrict=true")
# By these the output tells where headers lie, or the working directory.
_TELLING: Final = re.compile(r"-{1,2}(?:G|device-debug|lineinfo|generate-line-info|dlto|dlink-time-opt)$")
# CuPy removes the folder of the source before NVRTC reads it; next to headers NVRTC searches all the same.
_NOWHERE: Final = "/dev/null/kernel.cu"
# Of the toolkit's headers those that CuPy's own include: they are searched for where the user's are, too.
_OF_TOOLKIT: Final = "".join(
    f"#include <{name}.h>\n"
    for name in (
        *("cuda", "cuda_runtime_api", "cuda_runtime", "cuda_fp16", "cuda_bf16", "cuda_fp8", "cuda_fp6", "cuda_fp4"),
        *("cooperative_groups", "cooperative_groups/memcpy_async", "math", "vector"),
    )
)


class Request(NamedTuple):
    """One compilation that CuPy is asked for."""

    source: str
    #: As CuPy's caller gives them.
    options: tuple[str, ...]
    backend: str
    name_expressions: tuple[str, ...]
    is_jitified: bool
    is_ltoir: bool
    #: ``CUPY_NVRTC_USE_PCH``.
    is_precompiled: bool

    @property
    def label(self) -> str:
        """The names of the kernels, for people."""
        listed = ", ".join(sorted(self.name_expressions)[:3])
        return listed or kernel_names(self.source.encode(errors="replace"), "c++") or "a CuPy kernel"


class SharedKey(NamedTuple):
    """The key of a kernel, or why it has none."""

    name: str = ""
    #: The name with the paths of headers, if the output decides which of the two it has.
    with_paths: str = ""
    #: The beginnings of paths that the output holds then.
    printed: tuple[bytes, ...] = ()
    #: Whether the names of folders are in the name.
    has_paths: bool = False
    why_not: str = ""


def shared_key(request: Request, source_of_key: bytes, package: str, store: Any) -> SharedKey:
    """Returns the key of ``request``. Raises nothing that compiling would not.

    ``source_of_key``: all that CuPy makes its own key of. ``package``: where CuPy's own headers are. ``store`` has what
    other processes found out about headers.
    """
    why_not = _why_not(request)
    if why_not:
        return SharedKey(why_not=why_not)
    folders = [match[1] for option in request.options if (match := _INCLUDE.fullmatch(option))]
    users = [folder for folder in folders if not _is_below(folder, package)]
    if any(os.path.lexists(os.path.join(folder, "cupy")) for folder in users):
        return SharedKey(why_not="its headers may take the place of CuPy's own")
    try:
        found = headers.examine(
            _OF_TOOLKIT + request.source,
            users,
            define_macro=[match[1] for option in request.options if (match := _DEFINE.fullmatch(option))],
            name=_NOWHERE,
            store=store,
        )
    except (ValueError, OSError) as error:
        return SharedKey(why_not=getattr(error, "reasons", "") or str(error))
    return _named(request, source_of_key, folders, found)


def _named(request: Request, source_of_key: bytes, folders: list[str], found: headers.Closure) -> SharedKey:
    variables = repr(all_variables()).encode()
    own, suffix = _digest(variables + source_of_key), ".ltoir" if request.is_ltoir else ".cubin"
    spelled = f"{own}/{found.placed.hex()}{suffix}"
    is_used = found.paths & PathUse.USED or (found.paths & PathUse.PASTES and found.paths & PathUse.PIECES)
    if request.is_ltoir or any(map(_TELLING.match, request.options)) or _is_debugging():
        return SharedKey(f"{spelled}/{os.getcwd()}", has_paths=True)
    if is_used:
        return SharedKey(spelled, has_paths=True)
    name = f"{_digest(variables + _without_paths(source_of_key, request.options))}/{found.digest.hex()}{suffix}"
    if not found.paths & (PathUse.PRINTED | PathUse.PASTES):
        return SharedKey(name)
    return SharedKey(name, spelled, tuple({os.fsencode(folder).rstrip(b"/") + b"/" for folder in folders if folder}))


def _why_not(request: Request) -> str:
    if request.backend != "nvrtc":
        return f"what {request.backend} reads of files and variables is not known"
    if request.is_jitified or "-DCUPY_USE_JITIFY" in request.options:
        return "what jitify includes is not known"
    if request.is_precompiled:
        return "what NVRTC has precompiled of headers is not known"
    for option in request.options:
        if _FILES.match(option) or not option.startswith("-"):
            return f"what the option {option.partition('=')[0]} reads is not in its key"
        if option in _RESTRICT:
            return f"NVRTC goes on as with {option} in this process"
    return ""


def restricts(request: Request) -> bool:
    """Returns whether NVRTC takes all that this process compiles from now on for restricted, as 13.5 does."""
    return any(option in _RESTRICT for option in request.options)


def _is_debugging() -> bool:
    return os.environ.get("CUPY_CUDA_COMPILE_WITH_DEBUG", "0") not in ("", "0")


def _is_below(folder: str, package: str) -> bool:
    return os.path.realpath(folder).startswith(os.path.realpath(package) + os.sep)


def _without_paths(source_of_key: bytes, options: tuple[str, ...]) -> bytes:
    """Returns CuPy's description of a kernel, which begins with its options, without the names of folders."""
    text = source_of_key
    for option in options:
        if _INCLUDE.fullmatch(option):
            text = text.replace(repr(option).encode(), b"'-I'", 1)
    return text


def _digest(text: bytes) -> str:
    return hashlib.sha256(text, usedforsecurity=False).hexdigest()
