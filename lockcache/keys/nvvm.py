"""NVVM IR, compiled by libNVVM to PTX or LTO-IR.

Keeps the contract's rule for code_type "nvvm". The options are what cuda.core hands to libNVVM, and it is cuda.core
that refuses those which libNVVM does not have. The modules in ``extra_sources`` go in with their names, in order; the
libdevice file is external content. Not in the key: the working directory, which libNVVM output does not contain (tried
with debug and LTO-IR; paths in the IR's own debug information are part of the code), and name expressions.
"""

from __future__ import annotations

from typing import Any

from lockcache.keys import environment, versions
from lockcache.keys.options import unknown_fields
from lockcache.keys.refusals import external
from lockcache.keys.request import Request

__all__ = ["describe"]


def describe(request: Request) -> list[object]:
    """All that decides the output of libNVVM."""
    options = request.options
    if options.use_libdevice and request.extra_digest is None:
        raise external("options.use_libdevice", "libdevice is a file that a toolkit upgrade replaces")
    return [
        request.code,
        options.as_bytes("nvvm", request.target_type),
        request.target_type,
        options.name,
        _extra_sources(options.extra_sources),
        bool(options.use_libdevice),
        unknown_fields(options),
        versions.nvvm(),
        environment.variables(request.target_type),
        request.extra_digest,
    ]


def _extra_sources(sources: Any) -> list[object]:
    if sources is None:
        return []
    if not isinstance(sources, (list, tuple)):
        raise TypeError(
            f"options.extra_sources must be a list or tuple of (name, source), got {type(sources).__name__}"
        )
    return [_extra_source(source) for source in sources]


def _extra_source(pair: Any) -> list[object]:
    if not isinstance(pair, (list, tuple)) or len(pair) != 2 or not isinstance(pair[0], str):
        raise TypeError(
            f"each of options.extra_sources must be a (name, source) pair with a str name, got {pair!r:.80}"
        )
    name, source = pair
    if isinstance(source, str):
        return [name, source.encode()]
    if isinstance(source, (bytes, bytearray)):
        return [name, bytes(source)]
    raise TypeError(
        f"the source of {name!r} in options.extra_sources must be str, bytes or bytearray, got {source!r:.80}"
    )
