"""cuTile's compile cache on lockcache: each kernel compiled once by all processes of a machine.

:func:`install`, before the first kernel is compiled. The directory is ``$LOCKCACHE_DIR``, and cuTile's own database
(``$CUDA_TILE_CACHE_DIR``) is neither read nor written. Where that variable switches the cache off, nothing is stored,
and ``$CUDA_TILE_CACHE_SIZE`` has no meaning: the cap is the directory's. ``cutile-cache`` lists the own database alone.

Keys are cuTile's: the kernel's bytecode, in which the path of its source file is, since a cubin has line information;
architecture, optimisation and the compiler's version. Of libraries that a kernel is linked with lockcache adds the
bytes, and leaves out the paths.

Tried with cuda-tile 1.7.0. If its private parts are others, cuTile keeps its own cache, with a warning.
"""

from __future__ import annotations

import functools
import hashlib
import os
import threading
from typing import Any

from lockcache.integrations.adapter import (
    Shared,
    install as install_adapter,
    looking_for_doors,
    open_shared,
)

__all__ = ["install"]

_OLDEST_TRIED = (1, 7)


def install(path: str | os.PathLike[str] | None = None, *, max_size_bytes: int | None = None) -> bool:
    """Make cuTile keep its kernels in ``path``, by default ``$LOCKCACHE_DIR``. Call it before the first kernel.

    Returns whether it does. If it cannot, a warning says why, and cuTile's own cache is as it was. A second call
    changes nothing.
    """
    return install_adapter("cutile", lambda: _install(path, max_size_bytes))


def _install(path: str | os.PathLike[str] | None, cap_bytes: int | None) -> Shared:
    from cuda.tile import __version__ as version

    with looking_for_doors("cuda-tile", version, _OLDEST_TRIED):
        from cuda.tile import _compile as compiler

        own_compile, own_key = compiler.compile_tile, compiler.cache_key
        own_look_up, own_store, own_evict = compiler.cache_lookup, compiler.cache_store, compiler.evict_lru
    shared, current = open_shared("cutile", version, path, cap_bytes), _Current()

    @functools.wraps(own_compile)
    def compile_tile(function: Any, *args: Any, **kwargs: Any) -> Any:
        before, current.name = current.name, getattr(getattr(function, "pyfunc", function), "__name__", "")
        try:
            return own_compile(function, *args, **kwargs)
        finally:
            current.name = before

    def make_key(*args: Any, linker_inputs: tuple[tuple[str, str], ...] = (), **kwargs: Any) -> str:
        if shared.has_failed:
            key: str = own_key(*args, linker_inputs=linker_inputs, **kwargs)
        else:
            key = own_key(*args, linker_inputs=tuple(map(_describe_library, linker_inputs)), **kwargs)
        return key

    def look_up(directory: str, key: str) -> bytes | None:
        if shared.has_failed:
            found: bytes | None = own_look_up(directory, key)
            return found
        return shared.look_up(key, current.name)

    def store(directory: str, key: str, cubin: bytes, metadata: Any = None) -> None:
        if shared.has_failed:
            own_store(directory, key, cubin, metadata)
        else:
            shared.store(key, bytes(cubin))

    def evict(directory: str, limit_bytes: int) -> None:
        if shared.has_failed:
            own_evict(directory, limit_bytes)

    compiler.cache_key, compiler.cache_lookup = make_key, look_up
    compiler.cache_store, compiler.evict_lru = store, evict
    compiler.compile_tile = shared.compiling(compile_tile)
    return shared


class _Current(threading.local):
    """What this thread compiles."""

    #: The name of the function.
    name = ""


def _describe_library(library: tuple[str, str]) -> tuple[str, str]:
    """Returns the digest of a library and its version, for its path and its version."""
    path, version = library
    try:
        with open(path, "rb") as file:
            return hashlib.sha256(file.read()).hexdigest(), version
    except OSError:  # it is for the compiler to say so, and then nothing is stored
        return library
