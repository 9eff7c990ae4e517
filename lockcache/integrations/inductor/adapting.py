# SPDX-License-Identifier: Apache-2.0
"""Installs the adapter: looks for all parts of torch that it needs, and has Inductor use them."""

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
from lockcache.integrations.inductor.autotuning import share_tuned
from lockcache.integrations.inductor.builds import share_builds
from lockcache.integrations.inductor.graph_keys import note_graph_keys
from lockcache.integrations.inductor.spans import Spans
from lockcache.integrations.inductor.stores import Stores

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

        own_graph, own_all, base = compile_fx._compile_fx_inner, compile_fx.compile_fx, remote_cache.RemoteCacheBackend
        caches = (
            remote_cache.RemoteFxGraphCache,
            remote_cache.RemoteAOTAutogradCache,
            remote_cache.RemoteDynamoPGOCache,
        )
        for cache in caches:
            if cache.backend_override_cls is not None:
                raise UnsupportedError(f"its {cache.__name__} has another back end")
        tuned, get_system = autotune_cache.LocalAutotuneCache, codecache.CacheBase.get_system
        tuned._backend_get, tuned._backend_put  # noqa: B018 - doors
        switches = _switches()
    shared, builds = open_shared("inductor", torch.__version__, path, cap_bytes, runs_code=True), Spans()

    stores = Stores(shared, builds, note_graph_keys(codecache))
    for cache, back_end in zip(caches, stores.back_ends(base), strict=True):
        cache.backend_override_cls = back_end
    compile_fx._compile_fx_inner = shared.compiling(own_graph, stores_all=True)
    compile_fx.compile_fx = stores.compiling_bundles(own_all)
    share_tuned(shared, tuned, get_system)
    for switch in switches:
        switch.env_value_default = True
    share_builds(shared, builds)
    return shared


def _switches() -> list[Any]:
    """The settings by which torch asks a remote cache, which nobody may have used.

    What is assigned to a setting counts for one thread only, and a backward graph is compiled in another: so it is the
    value that a variable would give that is changed. That of AOTAutograd stays where Inductor does not store what that
    makes, as in torch 2.6, and that of profiles where the program decided on it.
    """
    from torch._dynamo import config as dynamo_config
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
    if dynamo_config.automatic_dynamic_remote_pgo is None:
        found.append(dynamo_config._config["automatic_dynamic_remote_pgo"])
    return found
