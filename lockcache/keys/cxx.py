"""CUDA C++, compiled by NVRTC to PTX, cubin or LTO-IR.

Keeps the contract's rule for code_type "c++". The options are what cuda.core hands to NVRTC, byte for byte, so values
that NVRTC cannot tell apart (1 and True, a list and a tuple) are one key, and those that it can are two.

The working directory goes in where it reaches the output: debug and line information, and LTO-IR always.

Files that NVRTC opens are external content, whichever way they are named: by an option, by the directory of
``options.name``, or by the code itself. NVRTC looks for ``#include "x.h"`` in the working directory, and for
``</usr/x.h>`` where it says; with no ``include_path``, ``<x.h>`` reaches nothing but the headers that NVRTC brings
along (``use_bundled_headers``). Those are the one exception: they come out of NVRTC's own library, whose build is in
the key, so they need no extra_digest. Whoever edits them in the user's cache directory must pass one.
"""

from __future__ import annotations

from typing import Any

from lockcache.keys import environment, hashing, versions
from lockcache.keys.options import unknown_fields
from lockcache.keys.refusals import external, refuse_extra_sources, refuse_ptxas_files, side_effect
from lockcache.keys.request import Request
from lockcache.keys.scan import Reads, scan, scan_source

__all__ = ["describe"]

_SIDE_EFFECTS = ("create_pch", "time", "fdevice_time_trace")
_EXTERNAL = ("include_path", "pre_include", "pch", "use_pch", "pch_dir")


def describe(request: Request) -> list[object]:
    """All that decides the output of NVRTC."""
    options = request.options
    for field in _SIDE_EFFECTS:
        # Not only what is true: cuda.core renders time=False as --time=False, and NVRTC writes a file of that name.
        if getattr(options, field) is not None:
            raise side_effect(field)
    refuse_extra_sources(options, "c++")
    code_digest = hashing.digest(request.code)
    rendered = options.as_bytes("nvrtc", request.target_type)
    if request.extra_digest is None:
        _refuse_external(options)
        _refuse_reads(request.code, code_digest, options, rendered)
    return [
        code_digest,
        rendered,
        request.target_type,
        options.name,
        request.name_expressions,
        unknown_fields(options),
        versions.nvrtc(),
        environment.variables(request.target_type),
        environment.working_directory() if _names_directory(request) else None,
        request.extra_digest,
    ]


def _names_directory(request: Request) -> bool:
    options = request.options
    return bool(options.debug or options.lineinfo or options.link_time_optimization or request.target_type == "ltoir")


def _refuse_external(options: Any) -> None:
    for field in _EXTERNAL:
        value = getattr(options, field)
        # An empty list renders as nothing; an empty str renders as an option without a value, which NVRTC sees.
        if value is not None and value != [] and value != () and not (field == "pch" and not value):
            raise external(f"options.{field} {value!r}", "the compiler reads files for it")
    name = options.name or ""
    if "/" in name or "\\" in name:
        raise external(
            f"options.name {name!r}",
            "NVRTC looks for #include files in its directory part",
            ", or use a name without one",
        )
    if options.ptxas_options is not None:
        refuse_ptxas_files(options)


def _refuse_reads(code: bytes, code_digest: bytes, options: Any, rendered: list[bytes]) -> None:
    _refuse_found(scan_source(code, code_digest), options)
    if options.define_macro is not None:
        # -DV=__TIME__ and -DV=__has_include("x.h") read as much as the same words in the code.
        _refuse_found(scan(b"\n".join(rendered)), options)


def _refuse_found(reads: Reads, options: Any) -> None:
    if reads.clock:
        raise external(f"{reads.clock} in the code", "it takes the time of the compilation into the output")
    if reads.file:
        raise external(f"code that has {reads.file!r}", "NVRTC may open a file for it")
    if reads.beside and not options.no_source_include:
        raise external(
            f"code that has {reads.beside!r}",
            "NVRTC looks for that file in the working directory",
            ", or set no_source_include and use bundled headers",
        )
