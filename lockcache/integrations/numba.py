"""numba-cuda's cache of kernels (``@cuda.jit(cache=True)``) on lockcache: one entry a kernel, and no index to race for.

:func:`install`, before the first kernel is compiled. The directory is ``$LOCKCACHE_DIR``. numba's own directory is made
all the same, and stays empty but for its marks of kernels that depend on how they are launched.

Values are numba's pickles: who may write to the directory may run code in the processes that read it. Keys are numba's:
path and time of the source file, function, types, bytecode, device. A kernel whose key has an address in it, since an
argument is an object without a name, stays in numba's own cache.

Tried with numba-cuda 0.22.2 to 0.30.4. If its private parts are others, numba keeps its own cache, with a warning.
"""

from __future__ import annotations

import enum
import os
import pickle
from typing import Any, Final

from lockcache.integrations.adapter import (
    Shared,
    install as install_adapter,
    looking_for_doors,
    open_shared,
    warn,
)

__all__ = ["install"]

_OLDEST_TRIED = (0, 22)
# Of types in types.
_DEEPEST: Final = 32


def install(path: str | os.PathLike[str] | None = None, *, max_size_bytes: int | None = None) -> bool:
    """Make numba-cuda keep its kernels in ``path``, by default ``$LOCKCACHE_DIR``. Call it before the first kernel.

    Returns whether it does. If it cannot, a warning says why, and numba's own cache is as it was. A second call changes
    nothing.
    """
    return install_adapter("numba", lambda: _install(path, max_size_bytes))


def _install(path: str | os.PathLike[str] | None, cap_bytes: int | None) -> Shared:
    import numba
    import numba_cuda

    with looking_for_doors("numba-cuda", numba_cuda.__version__, _OLDEST_TRIED):
        from numba.cuda.core.caching import IndexDataCacheFile
        from numba.cuda.dispatcher import CUDADispatcher

        own_load, own_save, own_flush = IndexDataCacheFile.load, IndexDataCacheFile.save, IndexDataCacheFile.flush
        own_compile = CUDADispatcher.compile
    version = f"{numba.__version__}/{numba_cuda.__version__}"
    shared = open_shared("numba", version, path, cap_bytes, runs_code=True)
    # Functions that this process compiles again, and their kernels that it has stored since.
    flushed, renewed = set[tuple[str, str]](), set[str]()

    def load(self: Any, key: Any) -> Any:
        name = None if shared.has_failed else _name_of(self, key)
        if name is None:
            return own_load(self, key)
        if (self._cache_path, self._index_name) in flushed and name not in renewed:
            return None  # not the older kernel, which is stored over
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
            if (self._cache_path, self._index_name) in flushed:
                renewed.add(name)
            shared.store(name, self._dump(data))

    def flush(self: Any) -> None:
        """Read no older kernel of this function in this process: ``recompile()`` asks for it."""
        own_flush(self)
        flushed.add((self._cache_path, self._index_name))

    IndexDataCacheFile.load, IndexDataCacheFile.save, IndexDataCacheFile.flush = load, save, flush
    CUDADispatcher.compile = shared.compiling(own_compile)
    return shared


def _name_of(file: Any, key: Any) -> str | None:
    """All that numba's own file and index tell apart; ``None`` for what means something else in another process."""
    name = "/".join(map(repr, (file._cache_path, file._index_name, file._source_stamp, *key))) + _details(key)
    return None if " at 0x" in name else name


def _details(part: Any, depth: int = _DEEPEST) -> str:
    """Returns the details of types that numba prints alike: a named tuple's fields, an enumeration's members.

    Types that numba compares are equal if their classes and their ``key`` are, whatever they print.
    """
    if depth == 0:
        return " at 0x: types in types without an end"
    if isinstance(part, type):
        members = [(each.name, each.value) for each in part] if issubclass(part, enum.Enum) else None
        return f"<{part.__module__}.{part.__qualname__} {getattr(part, '_fields', None)} {members}>"
    if isinstance(part, (tuple, list, frozenset)):
        details = [_details(each, depth - 1) for each in part]
        return f"({','.join(sorted(details) if isinstance(part, frozenset) else details)})"
    if hasattr(part, "key") and hasattr(part, "name"):
        own = "" if part.key is part.name else _details(part.key, depth - 1)
        return f"{type(part).__module__}.{type(part).__qualname__}:{part!r}{own}"
    return repr(part)
