"""Torch Inductor's FX graphs on lockcache: each compiled once by all processes of a machine. Experimental.

:func:`install`, before the first ``torch.compile``; or ``lockcache run``. The directory is ``$LOCKCACHE_DIR``. Inductor
asks its own directory (``$TORCHINDUCTOR_CACHE_DIR``) first and stores there too, which is not under the cap. What it
asks a remote cache for goes to lockcache: graphs, by turns, and what AOTAutograd makes of them. A process that finds a
graph there builds the graph's C++ kernels for the CPU, where its own directory has none; Triton's kernels have an
adapter of their own, :mod:`.triton`. Ranks of a distributed program do not wait for each other's graphs.

Values are pickles: who may write to the directory may run code in the processes that read it. A directory that others
write to needs a signing key.

Adapted and tried: torch 2.13. If its private parts are others, or it has a remote cache already, Inductor keeps what it
has, with a warning.
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

_OLDEST_TRIED = (2, 13)


def install(path: str | os.PathLike[str] | None = None, *, max_size_bytes: int | None = None) -> bool:
    """Make Inductor keep its graphs in ``path``, by default ``$LOCKCACHE_DIR``. Call it before the first compilation.

    Returns whether it does. If it cannot, a warning says why, and Inductor's own cache is as it was. A second call
    changes nothing.
    """
    return install_adapter("inductor", lambda: _install(path, max_size_bytes))


def _install(path: str | os.PathLike[str] | None, cap_bytes: int | None) -> Shared:
    import torch

    with looking_for_doors("torch", torch.__version__, _OLDEST_TRIED):
        from torch._inductor import compile_fx, remote_cache

        own_compile = compile_fx._compile_fx_inner
        graphs, autograd = remote_cache.RemoteFxGraphCache, remote_cache.RemoteAOTAutogradCache
        for cache in (graphs, autograd):
            if cache.backend_override_cls is not None:
                raise UnsupportedError(f"its {cache.__name__} has another back end")
        switches = _switches()
    shared = open_shared("inductor", torch.__version__, path, cap_bytes, runs_code=True)

    compile_fx._compile_fx_inner = shared.compiling(own_compile)
    graphs.backend_override_cls, autograd.backend_override_cls = _back_ends(shared, remote_cache.RemoteCacheBackend)
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
            return shared.look(key) if _has_ranks() else shared.look_up(key, "an FX graph")

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


def _has_ranks() -> bool:
    """Returns whether this is a rank of a distributed program. Such ranks talk to each other while they compile.

    A rank that waited for another one's graph would keep that waiting, until the lease timeout.
    """
    from torch import distributed

    return bool(distributed.is_available() and distributed.is_initialized() and distributed.get_world_size() > 1)


def _switches() -> list[Any]:
    """The settings by which Inductor asks a remote cache, which nobody may have used.

    What is assigned to a setting counts for one thread only, and a backward graph is compiled in another: so it is the
    value that a variable would give that is changed.
    """
    from torch._functorch import config as autograd_config
    from torch._inductor import config

    found = []
    for module, name in ((config, "fx_graph_remote_cache"), (autograd_config, "enable_remote_autograd_cache")):
        if getattr(module, name) is not None:
            raise UnsupportedError(f"{module.__name__}.{name} is set to {getattr(module, name)}")
        switch = module._config[name]
        switch.env_value_default  # noqa: B018 - or it is another torch than the adapter knows
        found.append(switch)
    return found
