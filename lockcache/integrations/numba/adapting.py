# SPDX-License-Identifier: Apache-2.0
"""Installs numba-cuda's adapter."""

from __future__ import annotations

import os

from lockcache.integrations.adapter import Shared, install as install_adapter, looking_for_doors, open_shared
from lockcache.integrations.numba.kernels import Doors, adapt_kernels
from lockcache.keys import compilers_of_numba

__all__ = ["install"]

_OLDEST_TRIED = (0, 22)


def install(path: str | os.PathLike[str] | None = None, *, max_size_bytes: int | None = None) -> bool:
    """Make numba-cuda keep its kernels in ``path``, by default ``$LOCKCACHE_DIR``. Call it before the first kernel.

    Returns whether it does. If it cannot, a warning says why, and numba's own cache is as it was. A second call changes
    nothing.
    """
    return install_adapter("numba", lambda: _install(path, max_size_bytes))


def _install(path: str | os.PathLike[str] | None, cap_bytes: int | None) -> Shared:
    import numba
    import numba_cuda
    import numpy as np

    with looking_for_doors("numba-cuda", numba_cuda.__version__, _OLDEST_TRIED):
        from numba.cuda.core import config
        from numba.cuda.core.caching import IndexDataCacheFile
        from numba.cuda.dispatcher import CUDADispatcher

        doors = Doors(IndexDataCacheFile, CUDADispatcher, ("compile",), config, compilers_of_numba)
    version = "/".join(each.__version__ for each in (numba, numba_cuda, np))
    shared = open_shared("numba", version, path, cap_bytes, runs_code=True)
    adapt_kernels(shared, doors)
    return shared
