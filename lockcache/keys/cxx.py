# SPDX-License-Identifier: Apache-2.0
"""CUDA C++, compiled by NVRTC to PTX, cubin or LTO-IR.

Keeps the contract's rule for code_type "c++". The options are what cuda.core hands to NVRTC, byte for byte, so values
that NVRTC cannot tell apart (1 and True, a list and a tuple) are one key, and those that it can are two.

The working directory goes in where it reaches the output: debug and line information, and LTO-IR always. So does the
directory of temporary files where cuda.core has NVRTC compile a file there. Paths of headers go in where they do
(paths.py).

Files that NVRTC opens are external content, whichever way they are named: by an option, by the directory of
``options.name``, or by the code itself. NVRTC looks for ``#include "x.h"`` in the working directory, and for
``</usr/x.h>`` where it says; with no ``include_path``, ``<x.h>`` reaches nothing but the headers that NVRTC brings
along (``use_bundled_headers``). Those come out of NVRTC's own library, whose build is in the key, so they need no
digest. A user who edits them in the cache directory must pass one.
"""

from __future__ import annotations

import os
from typing import Any

from lockcache.keys import environment, hashing, versions
from lockcache.keys.options import By, as_strings, options_by, unknown_fields
from lockcache.keys.refusals import (
    Refusal,
    external,
    extra_sources,
    ptxas_files,
    refuse,
    side_effect,
    unusable,
)
from lockcache.keys.request import Request
from lockcache.keys.scan import Reads, scan, scan_source


def describe(request: Request) -> dict[str, object]:
    """Returns all that decides the output of NVRTC, by the names of the key's parts."""
    options = request.options
    code_digest = hashing.digest(request.code)
    rendered = options.as_bytes("nvrtc", request.target_type)
    refuse([*_always_refused(options), *_external(request, code_digest, rendered)])
    return {
        "code": code_digest,
        "options": rendered,
        "target": request.target_type,
        "name": options.name,
        "name expressions": request.name_expressions,
        "newer options": unknown_fields(options),
        "compiler": versions.nvrtc(),
        "variables": environment.variables(request.target_type),
        "working directory": _directories(request),
        "headers": None if request.headers is None else request.headers.placed,
        "extra digest": request.extra_digest,
    }


def _directories(request: Request) -> list[object] | None:
    if not _names_directory(request):
        return None
    source = environment.temporary_source(request.options)
    found = environment.working_directory()
    # Nested, since the others may be one or two.
    return found if source is None else [*found, [os.fsencode(os.path.dirname(source))]]


def _names_directory(request: Request) -> bool:
    options = request.options
    return bool(options.debug or options.lineinfo or options.link_time_optimization or request.target_type == "ltoir")


def _always_refused(options: Any) -> list[Refusal]:
    # Not only what is true: cuda.core renders time=False as --time=False, and NVRTC writes a file of that name.
    fields = options_by("c++", By.SIDE_EFFECT)
    found = [side_effect(field.name) for field in fields if getattr(options, field.name) is not None]
    return found + extra_sources(options, "c++") + unusable(options)


def _external(request: Request, code_digest: bytes, rendered: list[bytes]) -> list[Refusal]:
    """Returns the refusals of what is read from outside and has no digest."""
    options = request.options
    if request.extra_digest is not None:
        return []
    found = _set_options(options, By.REFUSED) + ptxas_files(as_strings(options.ptxas_options))
    if request.headers is not None:
        return found
    return (
        found
        + _set_options(options, By.HEADERS)
        + _name(options)
        + _reads(request.code, code_digest, options, rendered)
    )


def _set_options(options: Any, by: By) -> list[Refusal]:
    values = [(each, getattr(options, each.name)) for each in options_by("c++", by)]
    return [
        external(f"options.{each.name} {value!r}", each.why)
        for each, value in values
        # An empty list renders as nothing; an empty str renders as an option without a value, which NVRTC sees.
        if value is not None and value != [] and value != () and not (each.name == "pch" and not value)
    ]


def _name(options: Any) -> list[Refusal]:
    name = options.name or ""
    if "/" not in name and "\\" not in name:
        return []
    why = "NVRTC looks for #include files in its directory part"
    return [external(f"options.name {name!r}", why, ", or use a name without one")]


def _reads(code: bytes, code_digest: bytes, options: Any, rendered: list[bytes]) -> list[Refusal]:
    found = _found("code", scan_source(code, code_digest), options)
    if options.define_macro is not None:
        # -DV=__TIME__ and -DV=__has_include("x.h") read as much as the same words in the code.
        found += _found("options.define_macro", scan(b"\n".join(rendered)), options)
    return found


def _found(where: str, reads: Reads, options: Any) -> list[Refusal]:
    found = []
    if reads.clock:
        why = "it takes the time of the compilation into the output"
        found.append(external(f"{reads.clock} in {where}", why))
    if reads.file:
        found.append(external(f"{where} that has {reads.file!r}", "NVRTC may open a file for it"))
    if reads.beside and not options.no_source_include:
        why = "NVRTC looks for that file in the working directory"
        instead = ", or set no_source_include and use bundled headers"
        found.append(external(f"{where} that has {reads.beside!r}", why, instead))
    return found
