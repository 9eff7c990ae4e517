# SPDX-License-Identifier: Apache-2.0
"""CuPy's kernel cache on lockcache: each kernel compiled once by all processes of a machine.

:func:`install`, once CuPy is imported and before its first kernel. The directory is ``$LOCKCACHE_DIR``. CuPy makes a
directory of its own when it is imported, whatever comes later; ``$CUPY_CACHE_DIR`` says where. It keeps the kernels
that cannot be shared (:mod:`.cupy_key`), and the sources that ``$CUPY_CACHE_SAVE_CUDA_SOURCE`` asks for.

Tried with CuPy 14.1.1 and 14.2.0. If its private parts are others, CuPy keeps its own cache, with a warning.
"""

from __future__ import annotations

import contextlib
import functools
import inspect
import os
import threading
from collections.abc import Callable, Iterator
from typing import Any

from lockcache.integrations.adapter import (
    Shared,
    UnsupportedError,
    install as install_adapter,
    looking_for_doors,
    open_shared,
)
from lockcache.integrations.framework_keys import Request, SharedKey, restricts, shared_key
from lockcache.integrations.key_parts import parts_of_cupy
from lockcache.integrations.staged import write_whole
from lockcache.keys import prints_one

__all__ = ["install"]

_OLDEST_TRIED = (14, 1)
_PARAMETERS = {"source", "options", "backend", "name_expressions", "jitify", "to_ltoir"}


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

        own, own_compile, own_digest = (
            compiler._kernel_cache_backend,
            compiler._compile_with_cache_cuda,
            compiler._hash_hexdigest,
        )
        set_backend = compiler._set_kernel_cache_backend
        if not isinstance(own, KernelCacheBackend):
            raise UnsupportedError(f"its cache is a {type(own).__name__}, which the adapter does not know")
        signature = inspect.signature(own_compile)
        if not signature.parameters.keys() >= _PARAMETERS:
            raise UnsupportedError(f"its _compile_with_cache_cuda takes {signature}")

    shared = open_shared("cupy", cupy.__version__, path, cap_bytes)
    is_precompiled = functools.partial(getattr, compiler, "_use_pch", False)
    compilations = _Compilations(shared, os.path.dirname(cupy.__file__), is_precompiled)

    class Backend(KernelCacheBackend):  # type: ignore[misc]
        """The cache that CuPy asks; its own for what cannot be shared, and after a failure of lockcache."""

        def load(self, name: str) -> bytes | None:
            key = compilations.key()
            if key is None:
                found: bytes | None = own.load(name)
                return found
            found = compilations.look_up(key)
            if found is not None:
                _save_source(own, name, compilations.source)
            return found

        def save(self, name: str, cubin: bytes, source: str) -> None:
            key = compilations.key_to_store()
            if key is None:
                own.save(name, cubin, source)
                compilations.note_unshared()
            else:
                compilations.store(key, bytes(cubin))
                _save_source(own, name, source)

    compiler._compile_with_cache_cuda = compilations.noting(shared.compiling(own_compile), signature)
    compiler._hash_hexdigest = compilations.noting_source(own_digest)
    set_backend(Backend())
    return shared


class _Compilation:
    """What a thread compiles now."""

    def __init__(self, request: Request) -> None:
        self.request = request
        #: What CuPy makes its key of, once it has.
        self.source_of_key: bytes | None = None
        self.key: SharedKey | None = None
        #: Why it cannot be shared, and whether it was looked up before that was known.
        self.why_not: tuple[str, bool] | None = None


class _Compilations:
    """What the threads of this process compile, and the keys by which it is shared."""

    def __init__(self, shared: Shared, package: str, is_precompiled: Callable[[], bool]) -> None:
        self._shared, self._package, self._is_precompiled = shared, package, is_precompiled
        self._threads = threading.local()
        # NVRTC's fault: see lockcache.cuda.Program.
        self._has_restricted = False

    def noting(self, compile_kernel: Callable[..., Any], signature: inspect.Signature) -> Callable[..., Any]:
        """``compile_kernel``, within which its arguments are known."""

        @functools.wraps(compile_kernel)
        def call(*args: Any, **kwargs: Any) -> Any:
            with self._noted(signature, args, kwargs):
                return compile_kernel(*args, **kwargs)

        return call

    @contextlib.contextmanager
    def _noted(self, signature: inspect.Signature, args: Any, kwargs: Any) -> Iterator[None]:
        before = self._now
        self._threads.now = None
        with self._shared.never_raising():
            bound = signature.bind(*args, **kwargs)
            bound.apply_defaults()
            given = bound.arguments
            self._threads.now = _Compilation(
                Request(
                    str(given["source"]),
                    tuple(map(str, given["options"])),
                    str(given["backend"]),
                    tuple(map(str, given["name_expressions"] or ())),
                    bool(given["jitify"]),
                    bool(given["to_ltoir"]),
                    self._is_precompiled(),
                )
            )
        try:
            yield
        finally:
            self._threads.now = before

    def noting_source(self, digest: Callable[[bytes], str]) -> Callable[[bytes], str]:
        """``digest``, by which CuPy makes its key: the first text of a compilation that it is asked for is noted."""

        @functools.wraps(digest)
        def call(text: bytes) -> str:
            now = self._now
            if now is not None and now.source_of_key is None:
                now.source_of_key = text
            return digest(text)

        return call

    @property
    def _now(self) -> _Compilation | None:
        found: _Compilation | None = getattr(self._threads, "now", None)
        return found

    @property
    def source(self) -> str:
        """What is compiled."""
        return "" if self._now is None else self._now.request.source

    def key(self) -> SharedKey | None:
        """Returns the key of what is compiled; ``None`` for what CuPy's own cache has."""
        now = self._now
        if now is None or now.source_of_key is None or self._shared.has_failed:
            return None
        with self._shared.never_raising():
            if restricts(now.request):
                self._has_restricted = True
            now.key = shared_key(now.request, now.source_of_key, self._package, self._shared.cache._closures)
            return now.key if now.key.name else None
        return None

    def key_to_store(self) -> SharedKey | None:
        """Returns the key under which the kernel may be stored; ``None`` where only CuPy's own cache may keep it."""
        now = self._now
        before = None if now is None else now.key
        key = self.key()
        if now is None or before is None:
            return None
        if before.why_not:
            now.why_not = before.why_not, False
        elif key is not None and key != before:
            now.why_not = "a header changed while it was compiled", True
        elif key is not None and self._has_restricted:
            now.why_not = "NVRTC goes on as with --restrict in this process", True
        return None if now.why_not else key

    def note_unshared(self) -> None:
        """Say why a kernel stays in CuPy's own cache, which has just stored it."""
        if self._now is not None and self._now.why_not:
            why_not, was_asked = self._now.why_not
            self._shared.note_unshared(why_not, self._now.request.label, had_turn=was_asked)

    def look_up(self, key: SharedKey) -> bytes | None:
        """Returns what is stored. On a miss this thread has the turn to compile it."""
        label = "" if self._now is None else self._now.request.label
        found = self._shared.look_up(key.name, label, functools.partial(self._parts_of, key))
        if found is None and key.with_paths and self._shared.is_stored(key.with_paths):
            found = self._shared.look(key.with_paths)
        return found

    def _parts_of(self, key: SharedKey) -> dict[str, object]:
        now = self._now
        return {} if now is None else parts_of_cupy(now.request, key, now.source_of_key or b"")

    def store(self, key: SharedKey, cubin: bytes) -> None:
        """Store a kernel: by the key that has the paths, if the kernel has them."""
        label = "" if self._now is None else self._now.request.label
        kind = "cubin" if b"\x7fELF" in cubin[:65536] else "ptx"
        is_printed = bool(key.with_paths)
        with self._shared.never_raising():
            is_printed = is_printed and prints_one(cubin, kind, key.printed)
        if is_printed:
            self._shared.state(key.with_paths, label, functools.partial(self._parts_of, key))
        self._shared.store(key.with_paths if is_printed else key.name, cubin, label=label)


def _save_source(own: Any, name: str, source: str) -> None:
    """Write the source where CuPy's own cache would, for profilers, if its variable asks for that."""
    if getattr(own, "_save_cuda_source", False):  # of a back end of the program's own there is neither
        path = os.path.join(own._cache_dir, f"{name}.cu")
        if not os.path.exists(path):
            write_whole(path, source.encode(), "source", 0o666)
