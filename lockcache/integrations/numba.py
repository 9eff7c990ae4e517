"""numba-cuda's cache of kernels (``@cuda.jit(cache=True)``) on lockcache: one entry a kernel, and no index to race for.

:func:`install`, before the first kernel is compiled. The directory is ``$LOCKCACHE_DIR``. numba's own directory is made
all the same, and stays empty but for its marks of kernels that depend on how they are launched.

Values are numba's pickles: who may write to the directory may run code in the processes that read it. Keys are numba's,
without the path and time of the source file, and with what numba leaves out: the program of the kernel
(:mod:`.numba_key`), numba's settings, and the builds of NVVM, libdevice, NVRTC and the linker. A kernel whose program
cannot be described, or whose key has an address in it, since an argument is an object without a name, stays in numba's
own cache.

Tried with numba-cuda 0.22.2 to 0.30.4. If its private parts are others, numba keeps its own cache, with a warning.
"""

from __future__ import annotations

import contextlib
import functools
import os
import pickle
import threading
from collections.abc import Iterator
from typing import Any, Final

from lockcache.integrations.adapter import (
    Shared,
    install as install_adapter,
    looking_for_doors,
    open_shared,
    warn,
)
from lockcache.integrations.framework_keys import NotDescribedError, describe_program, describe_types
from lockcache.integrations.key_parts import parts_of_numba
from lockcache.keys import all_variables, compilers_of_numba

__all__ = ["install"]

_OLDEST_TRIED = (0, 22)
# Beginnings of the names of numba's settings that change no kernel: where it keeps, shows and says things, and the CPU.
_NEUTRAL: Final = (
    *("CACHE_", "CHROME_", "COLOR_", "CPU_", "CUDA_LOG", "CUDA_WARN", "DEBUG_CACHE", "DEVELOPER", "DISABLE_PERF"),
    *("DUMP_", "ENABLE_AVX", "ENABLE_PROF", "ENABLE_SYS", "FULL_", "GDB_", "HIGHLIGHT", "HTML", "IS_", "NUMBA_"),
    *("RUNNING_", "SHOW_", "THREADING_", "TRACE", "USING_", "CUDA_DEALLOCS", "CUDA_MEMORY", "CUDA_DRIVER"),
)


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

        own_load, own_save, own_flush = IndexDataCacheFile.load, IndexDataCacheFile.save, IndexDataCacheFile.flush
        own_compile = CUDADispatcher.compile
    version = "/".join(each.__version__ for each in (numba, numba_cuda, np))
    shared = open_shared("numba", version, path, cap_bytes, runs_code=True)
    compiling = _Compiling(shared, config)
    # Functions that this process compiles again, and their kernels that it has stored since.
    flushed, renewed = set[tuple[str, str]](), set[str]()

    def load(self: Any, key: Any) -> Any:
        name = compiling.name_of(self, key)
        if name is None:
            return own_load(self, key)
        if (self._cache_path, self._index_name) in flushed and name not in renewed:
            return None  # not the older kernel, which is stored over
        found = shared.look_up(name, self._index_name, functools.partial(compiling.parts_of, self, key))
        try:
            return None if found is None else pickle.loads(found)
        except Exception as error:  # noqa: BLE001  it is compiled again, and stored
            warn("numba", error)
            return None

    def save(self: Any, key: Any, data: Any) -> None:
        name = compiling.name_of(self, key)
        if name is None:
            compiling.note_unshared()
            own_save(self, key, data)
            return
        if (self._cache_path, self._index_name) in flushed:
            renewed.add(name)
        if compiling.is_unchanged(name):
            shared.store(name, self._dump(data), label=self._index_name.removesuffix(".nbi"))

    def flush(self: Any) -> None:
        """Read no older kernel of this function in this process: ``recompile()`` asks for it."""
        own_flush(self)
        flushed.add((self._cache_path, self._index_name))

    IndexDataCacheFile.load, IndexDataCacheFile.save, IndexDataCacheFile.flush = load, save, flush
    CUDADispatcher.compile = compiling.noting(shared.compiling(own_compile))
    return shared


class _Compilation:
    """What a thread compiles now."""

    def __init__(self, dispatcher: Any) -> None:
        self.dispatcher = dispatcher
        #: What its program and numba's settings were when its key was made first.
        self.described = ""
        self.why_not = ""


class _Compiling:
    """The kernels that the threads of this process compile, and their names among all processes."""

    def __init__(self, shared: Shared, config: Any) -> None:
        self._shared, self._config = shared, config
        self._threads = threading.local()

    def noting(self, compile_kernel: Any) -> Any:
        """``compile_kernel``, a method of numba's, within which its object is known."""

        @functools.wraps(compile_kernel)
        def call(dispatcher: Any, *args: Any, **options: Any) -> Any:
            with self._noted(dispatcher):
                return compile_kernel(dispatcher, *args, **options)

        return call

    @contextlib.contextmanager
    def _noted(self, dispatcher: Any) -> Iterator[None]:
        before = self._now
        self._threads.now = _Compilation(dispatcher)
        try:
            yield
        finally:
            self._threads.now = before

    @property
    def _now(self) -> _Compilation | None:
        found: _Compilation | None = getattr(self._threads, "now", None)
        return found

    def name_of(self, file: Any, key: Any) -> str | None:
        """Returns the key of a kernel, the same in each process that would compile the same; ``None`` without one."""
        now = self._now
        if now is None or self._shared.has_failed:
            return None
        try:
            return self._named(now, file, key)
        except NotDescribedError as error:
            now.why_not = str(error)
        except Exception as error:  # noqa: BLE001 - of a user's objects, which were asked for their parts
            now.why_not = f"{type(error).__name__}: {error}"
        return None

    def _named(self, now: _Compilation, file: Any, key: Any) -> str:
        parts = [part for part in key if not _is_digests(part)]
        described = f"{describe_program(now.dispatcher.py_func, now.dispatcher.targetoptions)}/{self._settings()}"
        now.described = now.described or described
        name = "/".join([file._index_name, *map(repr, parts), describe_types(tuple(parts)), described])
        if " at 0x" in name:
            raise NotDescribedError("its key has an address in it")
        return name

    def parts_of(self, file: Any, key: Any) -> dict[str, object]:
        """Returns the parts of the key of a kernel."""
        now = self._now
        if now is None:
            return {}
        return parts_of_numba(file._index_name, key, now.dispatcher, self._changing(), compilers_of_numba())

    def _settings(self) -> str:
        return f"{self._changing()} {all_variables()} {compilers_of_numba()}"

    def _changing(self) -> list[tuple[str, str]]:
        """Returns numba's settings that may change a kernel."""
        values = {name: value for name, value in vars(self._config).items() if name.isupper()}
        return sorted((name, str(values[name])) for name in values if not name.startswith(_NEUTRAL))

    def is_unchanged(self, name: str) -> bool:
        """Returns whether a kernel's program is what it was before it was compiled."""
        now = self._now
        if now is not None and name.endswith(now.described):
            return True
        self._shared.note_unshared("a value that a kernel names changed while it was compiled")
        return False

    def note_unshared(self) -> None:
        """Say why a kernel stays in numba's own cache."""
        if self._now is not None and self._now.why_not:
            self._shared.note_unshared(self._now.why_not)


def _is_digests(part: Any) -> bool:
    """Returns whether these are numba's digests of bytecode and pickled closure, for which the program stands."""
    return (
        isinstance(part, tuple) and len(part) == 2 and all(isinstance(each, str) and len(each) == 64 for each in part)
    )
