# SPDX-License-Identifier: Apache-2.0
"""NVVM IR, compiled by libNVVM to PTX or LTO-IR.

Keeps the contract's rule for code_type "nvvm". The options are what cuda.core hands to libNVVM, and it is cuda.core
that refuses those which libNVVM does not have. The modules in ``extra_sources`` go in with their names, in order, and
the content of the libdevice that is linked. Not in the key: the working directory, which libNVVM output does not
contain (tried with debug and LTO-IR; paths in the IR's own debug information are part of the code), and name
expressions.
"""

from __future__ import annotations

from typing import Any

from lockcache.keys import environment, versions
from lockcache.keys.options import unknown_fields
from lockcache.keys.refusals import refuse, unusable
from lockcache.keys.request import Request


def describe(request: Request) -> dict[str, object]:
    """Returns all that decides the output of libNVVM, by the names of the key's parts."""
    options = request.options
    refuse(unusable(options))
    return {
        "code": request.code,
        "options": options.as_bytes("nvvm", request.target_type),
        "target": request.target_type,
        "name": options.name,
        "modules": _extra_sources(options.extra_sources),
        "libdevice": versions.libdevice() if options.use_libdevice else None,
        "newer options": unknown_fields(options),
        "compiler": versions.nvvm(),
        "variables": environment.variables(request.target_type),
        "extra digest": request.extra_digest,
    }


def _extra_sources(sources: Any) -> list[object]:
    if sources is None:
        return []
    if not isinstance(sources, (list, tuple)):
        accepted = "a list or tuple of (name, source)"
        raise TypeError(f"options.extra_sources must be {accepted}, got {type(sources).__name__} {sources!r:.80}")
    return [_extra_source(f"options.extra_sources[{index}]", source) for index, source in enumerate(sources)]


def _extra_source(argument: str, pair: Any) -> list[object]:
    if not isinstance(pair, (list, tuple)) or len(pair) != 2 or not isinstance(pair[0], str):
        raise TypeError(f"{argument} must be a (name, source) pair with a str name, got {pair!r:.80}")
    name, source = pair
    if isinstance(source, str):
        return [name, source.encode()]
    if isinstance(source, (bytes, bytearray)):
        return [name, bytes(source)]
    given = f"{type(source).__name__} {source!r:.80}"
    raise TypeError(f"{argument}[1], the source of {name!r}, must be str, bytes or bytearray, got {given}")
