"""CuPy's kernel cache on lockcache: each kernel compiled once by all processes of a machine.

:func:`install`, once CuPy is imported and before its first kernel. The directory is ``$LOCKCACHE_DIR``. CuPy makes a
directory of its own when it is imported, whatever comes later; ``$CUPY_CACHE_DIR`` says where.

Tried with CuPy 14.1.1 and 14.2.0. If its private parts are others, CuPy keeps its own cache, with a warning.
"""

from __future__ import annotations

import os

from lockcache.integrations.adapter import (
    Shared,
    UnsupportedError,
    install as install_adapter,
    looking_for_doors,
    open_shared,
)

__all__ = ["install"]

_OLDEST_TRIED = (14, 1)


def install(path: str | os.PathLike[str] | None = None, *, max_size_bytes: int | None = None) -> bool:
    """Make CuPy keep its kernels in ``path``, by default ``$LOCKCACHE_DIR``. Call it before the first kernel.

    Returns whether it does. If it cannot, a warning says why, and CuPy's own cache is as it was. A second call changes
    nothing.
    """
    return install_adapter("cupy", lambda: _install(path, max_size_bytes))


def _install(path: str | os.PathLike[str] | None, cap_bytes: int | None) -> Shared:
    import cupy

    with looking_for_doors("cupy", cupy.__version__, _OLDEST_TRIED):
        from cupy.cuda import compiler
        from cupy.cuda._compiler_cache import KernelCacheBackend

        own, own_compile = compiler._kernel_cache_backend, compiler._compile_with_cache_cuda
        set_backend = compiler._set_kernel_cache_backend
        if not isinstance(own, KernelCacheBackend):
            raise UnsupportedError(f"its cache is a {type(own).__name__}, which the adapter does not know")

    shared = open_shared("cupy", cupy.__version__, path, cap_bytes)

    class Backend(KernelCacheBackend):  # type: ignore[misc]
        """The cache that CuPy asks; its own after a failure of lockcache."""

        def load(self, name: str) -> bytes | None:
            if shared.has_failed:
                found: bytes | None = own.load(name)
                return found
            return shared.look_up(name, "a CuPy kernel")

        def save(self, name: str, cubin: bytes, source: str) -> None:
            if shared.has_failed:
                own.save(name, cubin, source)
            else:
                shared.store(name, bytes(cubin))

    compiler._compile_with_cache_cuda = shared.compiling(own_compile)
    set_backend(Backend())
    return shared
