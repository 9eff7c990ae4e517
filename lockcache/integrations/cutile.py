# SPDX-License-Identifier: Apache-2.0
"""cuTile's compile cache on lockcache: each kernel compiled once by all processes of a machine.

:func:`install`, before the first kernel is compiled. The directory is ``$LOCKCACHE_DIR``, and cuTile's own database
(``$CUDA_TILE_CACHE_DIR``) is neither read nor written. Where that variable, or a ``$CUDA_TILE_CACHE_SIZE`` of 0,
switches the cache off, nothing is read or stored. Other sizes have no meaning: the cap is the directory's.
``cutile-cache`` lists the own database alone.

Keys are cuTile's: the kernel's bytecode, in which the path of its source file is, since a cubin has line information;
architecture, optimisation and the compiler's version. Of libraries that a kernel is linked with lockcache adds the
bytes, and leaves out the paths.

Tried with cuda-tile 1.3.0 to 1.7.0. If its private parts are others, cuTile keeps its own cache, with a warning.
"""

from __future__ import annotations

import functools
import hashlib
import inspect
import os
import threading
from typing import Any

from lockcache.integrations.adapter import (
    Shared,
    UnsupportedError,
    install as install_adapter,
    looking_for_doors,
    open_shared,
)
from lockcache.integrations.key_parts import parts_of_cutile

__all__ = ["install"]

_OLDEST_TRIED = (1, 3)


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

        own = _Doors(compiler)
    shared = open_shared("cutile", version, path, cap_bytes)
    cache = _Cache(shared, own)

    @functools.wraps(own.compile)
    def compile_tile(*args: Any, **kwargs: Any) -> Any:
        return cache.compile(*args, **kwargs)

    compiler.cache_key, compiler.cache_lookup = cache.make_key, cache.look_up
    compiler.cache_store, compiler.evict_lru = cache.store, cache.evict
    compiler.compile_tile = shared.compiling(compile_tile)
    return shared


class _Doors:
    """cuTile's own functions. Raises :class:`UnsupportedError` where they take something else."""

    def __init__(self, compiler: Any) -> None:
        self.compile, self.make_key, self.look_up = compiler.compile_tile, compiler.cache_key, compiler.cache_lookup
        self.store, self.evict = compiler.cache_store, compiler.evict_lru
        self.signature = inspect.signature(self.compile)
        if "context" not in self.signature.parameters:
            raise UnsupportedError(f"its compile_tile takes {self.signature}")
        asked_with = inspect.signature(self.look_up)
        if [*asked_with.parameters] != ["cache_dir", "key"]:
            raise UnsupportedError(f"its cache_lookup takes {asked_with}")


class _Cache(threading.local):
    """The cache that cuTile asks; its own after a failure of lockcache. Each thread knows what it compiles."""

    #: The name of the function.
    name = ""
    #: Whether cuTile is to keep nothing.
    is_off = False
    #: What its key was made of last.
    asked: tuple[tuple[Any, ...], dict[str, Any]] = ((), {})

    def __init__(self, shared: Shared, own: _Doors) -> None:
        self._shared, self._own = shared, own

    def compile(self, function: Any, *args: Any, **kwargs: Any) -> Any:
        """``compile_tile``: asks the functions below."""
        before = self.name, self.is_off
        self.name = getattr(getattr(function, "pyfunc", function), "__name__", "")
        self.is_off = False
        with self._shared.never_raising():
            self.is_off = _has_no_room(self._own.signature, function, *args, **kwargs)
        try:
            return self._own.compile(function, *args, **kwargs)
        finally:
            self.name, self.is_off = before
            self.asked = (), {}

    def make_key(self, *args: Any, **kwargs: Any) -> str:
        """``cache_key``. Libraries are in it since 1.7."""
        if "linker_inputs" in kwargs and not self._shared.has_failed:
            with self._shared.never_raising():
                kwargs["linker_inputs"] = tuple(map(_describe_library, kwargs["linker_inputs"]))
        key: str = self._own.make_key(*args, **kwargs)
        self.asked = args, kwargs
        return key

    def _parts(self) -> dict[str, object]:
        args, kwargs = self.asked
        return parts_of_cutile(self.name, inspect.signature(self._own.make_key).bind(*args, **kwargs).arguments)

    def look_up(self, directory: str, key: str) -> bytes | None:
        """``cache_lookup``."""
        if self._shared.has_failed:
            found: bytes | None = self._own.look_up(directory, key)
            return found
        return None if self.is_off else self._shared.look_up(key, self.name, self._parts)

    def store(self, directory: str, key: str, cubin: bytes, *metadata: Any) -> None:
        """``cache_store``. There is no metadata before 1.6."""
        if self._shared.has_failed:
            self._own.store(directory, key, cubin, *metadata)
        elif not self.is_off:
            self._shared.store(key, bytes(cubin))

    def evict(self, directory: str, limit_bytes: int) -> None:
        """``evict_lru``."""
        if self._shared.has_failed:
            self._own.evict(directory, limit_bytes)


def _has_no_room(signature: inspect.Signature, *args: Any, **kwargs: Any) -> bool:
    """Returns whether ``$CUDA_TILE_CACHE_SIZE``, as a call of ``compile_tile`` has it, makes cuTile keep nothing."""
    try:
        call = signature.bind(*args, **kwargs)
    except TypeError:  # it is for the call to say so
        return False
    call.apply_defaults()
    return bool(call.arguments["context"].config.cache_size_limit <= 0)


def _describe_library(library: tuple[str, str]) -> tuple[str, str]:
    """Returns the digest of a library and its version, for its path and its version."""
    path, version = library
    try:
        with open(path, "rb") as file:
            return hashlib.sha256(file.read()).hexdigest(), version
    except OSError:  # it is for the compiler to say so, and then nothing is stored
        return library
