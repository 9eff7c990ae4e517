# SPDX-License-Identifier: Apache-2.0
"""Installation into JAX: its look-ups, stores and compilations go through the adapter."""

from __future__ import annotations

import functools
import inspect
import os
import pathlib
from collections.abc import Callable
from typing import Any

from lockcache.arguments import is_asked_for
from lockcache.integrations.adapter import (
    Parts,
    Shared,
    UnsupportedError,
    install as install_adapter,
    looking_for_doors,
    open_shared,
)
from lockcache.integrations.framework_keys import cpu_features
from lockcache.integrations.jax.imported import Imported
from lockcache.serving import watch

__all__ = ["initialize", "install"]

_OLDEST_TRIED = (0, 4, 38)


def initialize() -> None:
    """Call :func:`install` if ``$LOCKCACHE_JAX`` is set. JAX calls this to find back ends."""
    if is_asked_for("LOCKCACHE_JAX"):
        install()


def install(path: str | os.PathLike[str] | None = None, *, max_size_bytes: int | None = None) -> bool:
    """Make JAX keep its programs in ``path``, by default ``$LOCKCACHE_DIR``. Call it before the first compilation.

    Returns whether it does. If it cannot, a warning says why, and JAX's own cache is as it was. A second call changes
    nothing.
    """
    return install_adapter("jax", lambda: _install(path, max_size_bytes))


def _install(path: str | os.PathLike[str] | None, cap_bytes: int | None) -> Shared:
    import jax

    with looking_for_doors("jax", jax.__version__, _OLDEST_TRIED):
        from jax._src import compilation_cache, compiler, config, distributed
        from jax._src.compilation_cache_interface import CacheInterface

        own_cache, own_compile = compilation_cache.get_file_cache, compiler.compile_or_get_cached
        first_path, reset = config.compilation_cache_dir.value, compilation_cache.reset_cache
        place = _place_of_callbacks(own_compile)
        verifying = _verifying(config, compilation_cache)
        imported = Imported(
            compilation_cache.get_cache_key, config.persistent_cache_enable_xla_caches.value or "", cpu_features
        )
    shared = open_shared("jax", jax.__version__, path, cap_bytes, runs_code=True)
    queueing = _queueing(own_compile, shared, place)
    own = _OwnCache(own_cache, config, first_path, shared)

    def will_store() -> bool:
        """Returns whether JAX stores what it compiles now, however small its cost and size."""
        least = config.persistent_cache_min_compile_time_secs, config.persistent_cache_min_entry_size_bytes
        return all(state.value <= 0 for state in least) and distributed.global_state.process_id == 0

    asked = type("Cache", (_Asked, CacheInterface), {})(shared, imported, own, will_store)
    # Else the directory's name is in each key.
    config.config.update("jax_persistent_cache_enable_xla_caches", "none")
    config.config.update("jax_compilation_cache_dir", shared.cache.path)
    compilation_cache.get_cache_key = imported.noting(shared)
    compiler.compile_or_get_cached = queueing
    compilation_cache.get_file_cache = lambda _: (verifying(asked), shared.cache.path)
    reset()
    return shared


class _OwnCache:
    """JAX's own cache, where lockcache stores nothing."""

    def __init__(self, open_cache: Callable[[str], Any], config: Any, first_path: str | None, shared: Shared) -> None:
        """``first_path``: the directory that the program named before lockcache's was."""
        self._open = functools.cache(lambda path: (open_cache(path) or (None,))[0])
        self._config, self._first_path, self._shared = config, first_path, shared

    @property
    def path(self) -> str | None:
        """The directory that the program names for it by now."""
        path: str | None = self._config.compilation_cache_dir.value
        return self._first_path if path == self._shared.cache.path else path

    def find(self) -> Any:
        """Returns the cache; ``None`` while lockcache stores, and without a directory for it: then JAX has none."""
        path = self.path
        return self._open(path) if path and not self._shared.is_storing else None


class _Asked:
    """The cache that JAX asks; its own behind a directory that is only read, and after a failure of lockcache."""

    #: Whether JAX compares what it compiles with what is stored, which stays as it is then.
    is_verified = False

    def __init__(self, shared: Shared, imported: Imported, own: _OwnCache, will_store: Callable[[], bool]) -> None:
        self._shared, self._imported, self._own, self._will_store = shared, imported, own, will_store
        self._path = pathlib.Path(shared.cache.path)

    def get(self, key: str) -> bytes | None:
        """Returns the value of a key of JAX's. On a miss JAX compiles it."""
        shared, imported, will_store = self._shared, self._imported, self._will_store
        found, program, own_key, key = None, imported.take(key), key, imported.shared_name(key)
        look_up = functools.partial(_look_up, shared, key, _label(own_key), imported.parts_of(own_key, program))
        if not shared.has_failed:
            # In a sealed process a turn is taken once it is sure that JAX compiles.
            found = shared.look(key) if watch.is_on else look_up(will_store())
            found = found or imported.look(shared, key, program, self._own.path, will_store())
        own = self._own.find() if found is None else None
        found = own.get(own_key) if own else found
        is_compiled = found is None and watch.is_on and not shared.has_failed
        return look_up(will_store()) if is_compiled else found

    def put(self, key: str, value: bytes) -> None:
        """Store what JAX compiled."""
        if self.is_verified and self.get(key) is not None:
            return
        own = self._own.find()
        if own:
            own.put(key, value)
        elif not self._shared.has_failed:
            _store(self._shared, self._imported, key, value)


def _look_up(shared: Shared, key: str, label: str, parts: Parts, will_store: bool) -> bytes | None:
    """Returns the value of ``key``. On a miss JAX compiles it, and this thread has the turn if JAX will store it.

    Of what JAX may not store, the parts of the key are made when it does, or where compilations are reported.
    """
    return shared.look_up(key, label, parts) if will_store else shared.look(key, label, parts if watch.is_on else None)


def _store(shared: Shared, imported: Imported, key: str, value: bytes) -> None:
    name, label = imported.shared_name(key), _label(key)
    shared.state(name, label, imported.parts_of_missed(key))
    shared.store(name, value, label=label)


def _label(key: str) -> str:
    """Returns the name of a program, without the digest that JAX's key has behind it."""
    return key.rsplit("-", 1)[0]


def _place_of_callbacks(own_compile: Callable[..., Any]) -> int:
    """Returns the place of the argument by which JAX knows the programs that call back into Python."""
    parameters = [*inspect.signature(own_compile).parameters]
    if "host_callbacks" not in parameters:
        raise UnsupportedError(f"its compile_or_get_cached takes {', '.join(parameters)}, and no host_callbacks")
    return parameters.index("host_callbacks")


def _verifying(config: Any, compilation_cache: Any) -> Callable[[Any], Any]:
    """Returns a function that puts a cache into JAX's own that compares, where JAX's option says so.

    The option is read when JAX makes its cache. JAX before 0.9.1 has none.
    """
    option = getattr(config, "compilation_cache_check_contents", None)
    if option is None:
        return lambda cache: cache
    wrap = compilation_cache.VerificationCache

    def verifying(cache: Any) -> Any:
        cache.is_verified = option.value
        return wrap(cache) if cache.is_verified else cache

    return verifying


def _queueing(own_compile: Callable[..., Any], shared: Shared, place: int) -> Callable[..., Any]:
    """``own_compile``, within which a miss takes the turn, but for programs that call back into Python.

    Those (``jax.debug.print``, say) JAX never stores.
    """
    compiling = shared.compiling(own_compile)

    @functools.wraps(own_compile)
    def compile_or_get_cached(*args: Any, **kwargs: Any) -> Any:
        callbacks = args[place] if len(args) > place else kwargs.get("host_callbacks")
        return (own_compile if callbacks else compiling)(*args, **kwargs)

    return compile_or_get_cached
