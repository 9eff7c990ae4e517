"""numba-cuda's cache of kernels (``@cuda.jit(cache=True)``) on lockcache: one entry a kernel, and no index to race for.

:func:`install`, before the first kernel is compiled. The directory is ``$LOCKCACHE_DIR``. numba's own directory is made
all the same, and stays empty but for its marks of kernels that depend on how they are launched.

Values are numba's pickles: who may write to the directory may run code in the processes that read it. Keys are numba's:
path and time of the source file, function, types, bytecode, device. A kernel whose key has an address in it, since an
argument is an object without a name, stays in numba's own cache.

Adapted: numba-cuda 0.20 and newer; tried with 0.30.4. If its private parts are others, numba keeps its own cache, with
a warning.
"""

from __future__ import annotations

import os
import pickle
from typing import Any

from lockcache.integrations.adapter import Shared, install as install_adapter, open_shared, refuse_older, warn

__all__ = ["install"]

_OLDEST = (0, 20)


def install(path: str | os.PathLike[str] | None = None, *, max_size_bytes: int | None = None) -> bool:
    """Make numba-cuda keep its kernels in ``path``, by default ``$LOCKCACHE_DIR``. Call it before the first kernel.

    Returns whether it does. If it cannot, a warning says why, and numba's own cache is as it was. A second call changes
    nothing.
    """
    return install_adapter("numba", lambda: _install(path, max_size_bytes))


def _install(path: str | os.PathLike[str] | None, cap_bytes: int | None) -> Shared:
    import numba
    import numba_cuda

    refuse_older("numba", numba_cuda.__version__, _OLDEST)
    from numba.cuda.core.caching import IndexDataCacheFile
    from numba.cuda.dispatcher import CUDADispatcher

    own_load, own_save, own_compile = IndexDataCacheFile.load, IndexDataCacheFile.save, CUDADispatcher.compile
    version = f"{numba.__version__}/{numba_cuda.__version__}"
    shared = open_shared("numba", version, path, cap_bytes, runs_code=True)

    def load(self: Any, key: Any) -> Any:
        name = None if shared.has_failed else _name_of(self, key)
        if name is None:
            return own_load(self, key)
        found = shared.look_up(name, self._index_name)
        try:
            return None if found is None else pickle.loads(found)
        except Exception as error:  # noqa: BLE001  it is compiled again, and stored
            warn("numba", error)
            return None

    def save(self: Any, key: Any, data: Any) -> None:
        name = None if shared.has_failed else _name_of(self, key)
        if name is None:
            own_save(self, key, data)
        else:
            shared.store(name, self._dump(data))

    IndexDataCacheFile.load, IndexDataCacheFile.save = load, save
    CUDADispatcher.compile = shared.compiling(own_compile)
    return shared


def _name_of(file: Any, key: Any) -> str | None:
    """All that numba's own file and index tell apart; ``None`` for what means something else in another process."""
    name = "/".join(map(repr, (file._cache_path, file._index_name, file._source_stamp, *key)))
    return None if " at 0x" in name else name
