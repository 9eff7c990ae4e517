# SPDX-License-Identifier: Apache-2.0
"""Variables that put a program's frameworks on lockcache: for a shell, and for ``lockcache run``."""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping

from lockcache.arguments import resolve_path

__all__ = ["FRAMEWORKS", "hooked", "variables_for", "without_variables"]

# JAX stores nothing that took less than a second, unless it is asked to: then all processes compile it.
_JAX = {
    "LOCKCACHE_JAX": "1",
    "JAX_PERSISTENT_CACHE_MIN_COMPILE_TIME_SECS": "0",
    "JAX_PERSISTENT_CACHE_MIN_ENTRY_SIZE_BYTES": "0",
}

#: Each with the variables that it needs, besides the directory. Those that have none want a line of code.
FRAMEWORKS: dict[str, Mapping[str, str]] = {
    "cpp_extension": {},
    "cupy": {},
    "cute": {},
    "cutile": {},
    "flashinfer": {},
    "helion": {},
    "inductor": {},
    "jax": _JAX,
    "numba": {},
    "numba_mlir": {},
    "triton": {},
    "warp": {},
}

# For a shell. Under ``lockcache run`` a hook does it: with the variables Triton and Helion raise in a Python without
# lockcache.
_WITHOUT_HOOK = {
    "triton": {"TRITON_CACHE_MANAGER": "lockcache.integrations.triton:LockcacheManager"},
    "helion": {
        "HELION_AUTOTUNE_CACHE": "RemoteAutotuneCache",
        "HELION_REMOTE_CACHE_BACKEND": "lockcache.integrations.helion.Backend",
    },
}


#: Not a framework: programs of cuda.core, whose ``compile`` gets a cache.
_HOOKED_TOO = ("cuda_core",)


def variables_for(
    frameworks: Iterable[str], directory: str | None, max_size: str | None, *, is_hooked: bool = False
) -> dict[str, str]:
    """The variables for ``frameworks`` on ``directory``, by default the one of ``$LOCKCACHE_DIR``.

    ``is_hooked``: without those that :func:`hooked` makes needless.

    Without either the directory is not named: the default one has a cap, and one that is named has none.
    """
    is_named = directory is not None or os.environ.get("LOCKCACHE_DIR")
    found = {"LOCKCACHE_DIR": resolve_path(directory)} if is_named else {}
    if max_size is not None:
        found["LOCKCACHE_MAX_SIZE"] = max_size
    for name in frameworks:
        found |= {**FRAMEWORKS[name], **({} if is_hooked else _WITHOUT_HOOK.get(name, {}))}
    return found


def without_variables(frameworks: Iterable[str]) -> list[str]:
    """Returns those of ``frameworks`` that no variable puts on lockcache, but a line of code."""
    return [name for name in frameworks if not FRAMEWORKS[name] and name not in _WITHOUT_HOOK]


def hooked(environment: Mapping[str, str], frameworks: Iterable[str]) -> dict[str, str]:
    """``environment``, so that Python installs the adapters of ``frameworks`` when they are imported."""
    hook = os.path.join(os.path.dirname(os.path.abspath(__file__)), "hook")
    # As it is: an empty entry in it means the current directory.
    paths = [hook, environment["PYTHONPATH"]] if environment.get("PYTHONPATH") else [hook]
    return {
        **environment,
        "LOCKCACHE_INSTALL": ",".join([*frameworks, *_HOOKED_TOO]),
        "PYTHONPATH": os.pathsep.join(paths),
    }
