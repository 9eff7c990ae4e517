"""Torch Inductor's FX graphs on lockcache: each compiled once by all processes of a machine. Experimental.

:func:`install`, before the first ``torch.compile``; or ``lockcache run``. The directory is ``$LOCKCACHE_DIR``. Inductor
asks its own directory (``$TORCHINDUCTOR_CACHE_DIR``) first and stores there too, which is not under the cap. What it
asks a remote cache for goes to lockcache: graphs, by turns, and what AOTAutograd makes of them. A process that finds a
graph there builds the graph's C++ kernels for the CPU, where its own directory has none; Triton's kernels have an
adapter of their own, :mod:`.triton`. Ranks of a distributed program do not wait for each other's graphs. What
AOTAutograd makes is stored where Inductor stores it too: torch 2.6 does if ``TORCHINDUCTOR_AUTOGRAD_CACHE`` is 1.

What autotuning chose for a kernel (Inductor's ``.best_config`` files) is shared with processes of the same GPU and
Triton, and nobody waits for it. Inductor's compile workers know only what is in Inductor's own directory.

Values are pickles: who may write to the directory may run code in the processes that read it. A directory that others
write to needs a signing key.

Tried with torch 2.6.0, 2.13.0 and 2.15.0. If its private parts are others, or it has a remote cache already, Inductor
keeps what it has, with a warning.
"""

from __future__ import annotations

import os
from typing import Any

from lockcache.integrations.adapter import (
    Shared,
    UnsupportedError,
    install as install_adapter,
    looking_for_doors,
    open_shared,
)

__all__ = ["install"]

_OLDEST_TRIED = (2, 6)


def install(path: str | os.PathLike[str] | None = None, *, max_size_bytes: int | None = None) -> bool:
    """Make Inductor keep its graphs in ``path``, by default ``$LOCKCACHE_DIR``. Call it before the first compilation.

    Returns whether it does. If it cannot, a warning says why, and Inductor's own cache is as it was. A second call
    changes nothing.
    """
    return install_adapter("inductor", lambda: _install(path, max_size_bytes))


def _install(path: str | os.PathLike[str] | None, cap_bytes: int | None) -> Shared:
    import torch

    with looking_for_doors("torch", torch.__version__, _OLDEST_TRIED):
        from torch._inductor import codecache, compile_fx, remote_cache
        from torch._inductor.runtime import autotune_cache

        own_compile, base = compile_fx._compile_fx_inner, remote_cache.RemoteCacheBackend
        graphs, autograd = remote_cache.RemoteFxGraphCache, remote_cache.RemoteAOTAutogradCache
        for cache in (graphs, autograd):
            if cache.backend_override_cls is not None:
                raise UnsupportedError(f"its {cache.__name__} has another back end")
        tuned, get_system = autotune_cache.LocalAutotuneCache, codecache.CacheBase.get_system
        own_tuned = tuned._backend_get, tuned._backend_put
        switches = _switches()
    shared = open_shared("inductor", torch.__version__, path, cap_bytes, runs_code=True)

    compile_fx._compile_fx_inner = shared.compiling(own_compile)
    graphs.backend_override_cls, autograd.backend_override_cls = _back_ends(shared, base)
    tuned._backend_get, tuned._backend_put = _tuned(shared, *own_tuned, get_system)
    for switch in switches:
        switch.env_value_default = True
    return shared


def _back_ends(shared: Shared, base: Any) -> tuple[Any, Any]:
    """Make the two stores: of Inductor's graphs, and of AOTAutograd's. After a failure of lockcache both are empty."""

    class Graphs(base):  # type: ignore[misc]
        """By turns: Inductor stores each that it looked for, unless compiling raises."""

        def _get(self, key: str) -> bytes | None:
            if shared.has_failed:
                return None
            return (shared.look if _has_ranks() else shared.look_up)(key, "an FX graph")

        def _put(self, key: str, data: bytes) -> None:
            if not shared.has_failed:
                shared.store(key, data)

    class Autograd(base):  # type: ignore[misc]
        """Without: it is looked for long before anything is known to come of it."""

        def _get(self, key: str) -> bytes | None:
            return None if shared.has_failed else shared.look(key)

        def _put(self, key: str, data: bytes) -> None:
            if not shared.has_failed:
                shared.store(key, data)

    return Graphs, Autograd


def _tuned(shared: Shared, own_get: Any, own_put: Any, get_system: Any) -> tuple[Any, Any]:
    """Returns how a file of what autotuning chose is read and written: Inductor's own, and lockcache's behind it.

    As methods, and not as a back end, which each object keeps: compile workers make the objects, without this adapter,
    and the process that tunes gets them pickled.
    """

    def name_of(file: str) -> str:
        # The file's name is a hash of the kernel's source; the system's hash is of the GPU's name and Triton.
        return f"autotune/{get_system()['hash']}/{os.path.basename(file)}"

    def get(self: Any, file: str) -> Any:
        found = own_get(self, file)
        if not found and not shared.has_failed:
            with shared.never_raising():
                found = shared.look(name_of(file))
        return found

    def put(self: Any, file: str, data: bytes) -> None:
        own_put(self, file, data)
        if not shared.has_failed:
            with shared.never_raising():
                shared.store(name_of(file), data)

    return get, put


def _has_ranks() -> bool:
    """Returns whether this is a rank of a distributed program. Such ranks talk to each other while they compile.

    A rank that waited for another one's graph would keep that waiting, until the lease timeout.
    """
    from torch import distributed

    return bool(distributed.is_available() and distributed.is_initialized() and distributed.get_world_size() > 1)


def _switches() -> list[Any]:
    """The settings by which Inductor asks a remote cache, which nobody may have used.

    What is assigned to a setting counts for one thread only, and a backward graph is compiled in another: so it is the
    value that a variable would give that is changed. That of AOTAutograd stays where Inductor does not store what that
    makes, as in torch 2.6.
    """
    from torch._functorch import config as autograd_config
    from torch._inductor import config

    found = []
    for module, name in ((config, "fx_graph_remote_cache"), (autograd_config, "enable_remote_autograd_cache")):
        if getattr(module, name) is not None:
            raise UnsupportedError(f"{module.__name__}.{name} is set to {getattr(module, name)}")
        switch = module._config[name]
        switch.env_value_default  # noqa: B018 - a door
        if module is config or autograd_config.enable_autograd_cache:
            found.append(switch)
    return found
