# SPDX-License-Identifier: Apache-2.0
"""Choices of Helion's autotuner on lockcache: each kernel is tuned by one process, and not again on other nodes.

``HELION_AUTOTUNE_CACHE=RemoteAutotuneCache`` and ``HELION_REMOTE_CACHE_BACKEND=lockcache.integrations.helion.Backend``
(``lockcache env helion`` prints them), or :func:`install` before the first kernel is defined. The directory is
``$LOCKCACHE_DIR``. This is Helion's public door for caches: it asks ``Backend`` first, and keeps a copy in its own
directory. The kernels themselves are compiled by Triton, CuTe DSL or torch, which have adapters of their own.

Keys are Helion's: source, shapes, types, device and, for the strict cache, the code of Helion, torch and Triton. Those
versions are in all keys here. A value is a configuration in JSON, which Helion reads; loading it runs no code.

Tuning takes minutes, and those who wait for it go on by themselves when the lease timeout is over
(``$LOCKCACHE_LEASE_TIMEOUT``). Ranks of a distributed program tune together, and do not wait. Configurations to start
from (Helion's ``list``) come from its own directory alone.

Tried with helion 1.5.1, without a GPU.
"""

from __future__ import annotations

import functools
import os
from importlib import metadata
from typing import Any, Final

from lockcache.integrations.adapter import (
    Shared,
    UnsupportedError,
    install as install_adapter,
    installed,
    looking_for_doors,
    open_shared,
)
from lockcache.integrations.inductor import has_ranks
from lockcache.integrations.key_parts import parts_of_helion
from lockcache.resource import Entry
from lockcache.single_flight import Turn

__all__ = ["install"]

_OLDEST_TRIED = (1, 5)
_CACHE, _BACK_END = "HELION_AUTOTUNE_CACHE", "HELION_REMOTE_CACHE_BACKEND"
_REMOTE: Final = ("RemoteAutotuneCache", "StrictRemoteAutotuneCache")
_FILE: Final = "config.json"
_PARTS: Final = ("helion", "torch", "triton")


def install(path: str | os.PathLike[str] | None = None, *, max_size_bytes: int | None = None) -> bool:
    """Make Helion keep what it tuned in ``path``, by default ``$LOCKCACHE_DIR``. Call it before kernels are defined.

    Returns whether it does. If it cannot, a warning says why, and Helion's own cache is as it was. A second call
    changes nothing. Sets the variables of this process that name Helion's cache, unless they are set.
    """
    return install_adapter("helion", lambda: _install(path, max_size_bytes))


def _install(path: str | os.PathLike[str] | None, cap_bytes: int | None) -> Shared:
    with looking_for_doors("helion", metadata.version("helion"), _OLDEST_TRIED):
        from helion import autotuner
        from helion.autotuner import RemoteCacheBackend

        RemoteCacheBackend.get, RemoteCacheBackend.put  # noqa: B018 - doors
        if os.environ.get(_CACHE, _REMOTE[0]) not in _REMOTE:
            raise UnsupportedError(f"{_CACHE} is {os.environ[_CACHE]}")
        wanted = f"{__name__}.Backend"
        if os.environ.get(_BACK_END, wanted) != wanted:
            raise UnsupportedError(f"{_BACK_END} is {os.environ[_BACK_END]}")
    shared = open_shared("helion", _describe_versions(), path, cap_bytes)
    for name in _REMOTE:
        _have_key_told(getattr(autotuner, name, None))
    os.environ.setdefault(_CACHE, _REMOTE[0])
    os.environ.setdefault(_BACK_END, wanted)
    return shared


def _have_key_told(cache: Any) -> None:
    """Have Helion's caches of a kind tell their back end the whole key, of which ``get`` has a digest.

    Where they have other parts, only the digest is known.
    """
    own = getattr(cache, "get", None)
    if own is None:
        return

    @functools.wraps(own)
    def get(self: Any) -> Any:
        back_end = getattr(self, "_backend", None)
        if isinstance(back_end, _Backend):
            back_end.whole_key = getattr(self, "key", None)
        return own(self)

    cache.get = get


def _describe_versions() -> str:
    found = []
    for name in _PARTS:
        try:
            found.append(f"{name}-{metadata.version(name)}")
        except metadata.PackageNotFoundError:  # Triton comes with torch or by itself, and has no part in some back ends
            continue
    return "/".join(found)


def __getattr__(name: str) -> Any:
    """Make ``Backend``, which has to be a class of Helion's, when it is asked for: only there is Helion installed."""
    if name != "Backend":
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from helion.autotuner import RemoteCacheBackend

    made = type(name, (_Backend, RemoteCacheBackend), {"__module__": __name__})
    globals()[name] = made
    return made


class _Backend:
    """Helion's remote cache. Each kernel that is tuned has an object of its own, whose turn ends with it at the latest.

    Raises nothing: after a failure of lockcache nothing is found, and Helion's own directory takes over.
    """

    def __init__(self) -> None:
        install()
        self._shared = installed("helion")
        self._turns: dict[str, Turn[Entry]] = {}
        #: Helion's key of the kernel, whose digest is looked up.
        self.whole_key: Any = None

    def get(self, key: str) -> str | None:
        """Returns the record of ``key`` as JSON. On a miss this process has the turn to tune, unless it has ranks."""
        shared = self._shared
        if shared is None or shared.has_failed:
            return None
        found: Any = None
        parts = functools.partial(parts_of_helion, self.whole_key)
        with shared.never_raising():
            found = shared.look_at_files(key) if has_ranks() else shared.begin_files(key, "a Helion kernel", parts)
            if isinstance(found, Turn):
                self._turns[key] = found
                return None
            return None if found is None else found[_FILE].decode()
        return None

    def put(self, key: str, data: str) -> None:
        """Store the record, and end the turn."""
        shared = self._shared
        if shared is not None and not shared.has_failed:
            with shared.never_raising():
                shared.store_files(key, {_FILE: data.encode()}, self._turns.pop(key, None))
