# SPDX-License-Identifier: Apache-2.0
"""numba-cuda-mlir's cache of kernels (``@cuda.jit(cache=True)``) on lockcache, as :mod:`lockcache.integrations.numba`.

:func:`install`, before the first kernel is compiled. The directory is ``$LOCKCACHE_DIR``. numba-cuda-mlir has
numba-cuda's index and data files, with their races. Its own key lacks most options of ``cuda.jit``, so that it loads a
kernel that was compiled with another ``fastmath``; keys here have all, and the signatures that functions are annotated
with.

What stays in numba-cuda-mlir's own cache, besides what stays in numba-cuda's: kernels that evaluate code of the program
while they compile (``consteval``), and those that are compiled with ``abi_info``. numba-cuda-mlir caches nothing that
depends on how it is launched, and nothing while a planner is registered.

numba-cuda-mlir looks into its cache under locks that it takes to compile, too. They are free while a thread waits here
for another one's compilation.

Tried with numba-cuda-mlir 0.6.0. If its private parts are others, it keeps its own cache, with a warning.
"""

from __future__ import annotations

import functools
import os

from lockcache.integrations.adapter import Shared, install as install_adapter, looking_for_doors, open_shared
from lockcache.integrations.numba import Doors, adapt_kernels
from lockcache.keys import compilers_of_numba, file_digest, fingerprint

__all__ = ["install"]

_OLDEST_TRIED = (0, 6)
#: The variable that names another code generator than the one that comes along.
_GENERATOR = "LIBLLVM7"


def install(path: str | os.PathLike[str] | None = None, *, max_size_bytes: int | None = None) -> bool:
    """Make numba-cuda-mlir keep its kernels in ``path``, by default ``$LOCKCACHE_DIR``. Call it before the first one.

    Returns whether it does. If it cannot, a warning says why, and its own cache is as it was. A second call changes
    nothing.
    """
    return install_adapter("numba_mlir", lambda: _install(path, max_size_bytes))


def _install(path: str | os.PathLike[str] | None, cap_bytes: int | None) -> Shared:
    import numba_cuda_mlir
    import numpy as np

    with looking_for_doors("numba-cuda-mlir", numba_cuda_mlir.__version__, _OLDEST_TRIED):
        from numba_cuda_mlir._whole_function_planners import _planner_registry
        from numba_cuda_mlir.descriptor import MLIRDispatcher
        from numba_cuda_mlir.numba_cuda.core import config
        from numba_cuda_mlir.numba_cuda.core.caching import IndexDataCacheFile
        from numba_cuda_mlir.numba_cuda.core.compiler_lock import global_compiler_lock
        from numba_cuda_mlir.numba_cuda.cudadrv.libs import get_cudalib, get_libdevice

        @functools.cache
        def digest(generator: str | None) -> str:
            # It finds them in other places than the packages that lockcache asks, and once.
            libraries = [get_cudalib("nvvm"), *filter(None, [generator])]
            builds = [*map(fingerprint, libraries), file_digest(os.fspath(get_libdevice()))]
            return f"{compilers_of_numba()} {[build.hex() for build in builds]}"

        doors = Doors(
            IndexDataCacheFile,
            MLIRDispatcher,
            ("_compile_public", "_compile_impl"),
            config,
            lambda: digest(os.environ.get(_GENERATOR)),
            (_planner_registry._lock, global_compiler_lock),
            has_annotations=True,
        )
    version = "/".join(each.__version__ for each in (numba_cuda_mlir, np))
    shared = open_shared("numba_mlir", version, path, cap_bytes, runs_code=True)
    adapt_kernels(shared, doors)
    return shared
