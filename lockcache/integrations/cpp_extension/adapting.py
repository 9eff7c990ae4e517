# SPDX-License-Identifier: Apache-2.0
"""Installs the adapter: looks for all parts of torch that it needs, and has torch use them."""

from __future__ import annotations

import functools
import inspect
import os

from lockcache.integrations.adapter import (
    Shared,
    UnsupportedError,
    install as install_adapter,
    looking_for_doors,
    open_shared,
)
from lockcache.integrations.cpp_extension.builds import Builds
from lockcache.integrations.cpp_extension.keys import Torch
from lockcache.integrations.cpp_extension.libraries import Libraries

__all__ = ["install"]

_OLDEST_TRIED = (2, 13)
#: Torch waits for ever for another process's build, which takes minutes; a dead one's turn falls at once.
_PATIENCE_SECONDS = 3600.0
#: Before torch 2.14, and from then on.
_LOCKS = ("FileBaton", "FileLock")
_PRECOMPILE = "_check_and_build_extension_h_precompiler_headers"


def install(path: str | os.PathLike[str] | None = None, *, max_size_bytes: int | None = None) -> bool:
    """Make torch keep its extensions in ``path``, by default ``$LOCKCACHE_DIR``. Call it before the first is loaded.

    Returns whether it does. If it cannot, a warning says why, and torch builds as before. A second call changes
    nothing.
    """
    return install_adapter("cpp_extension", lambda: _install(path, max_size_bytes))


def _install(path: str | os.PathLike[str] | None, cap_bytes: int | None) -> Shared:
    import torch

    with looking_for_doors("torch", torch.__version__, _OLDEST_TRIED):
        from torch.utils import cpp_extension as module

        own_run = module._run_ninja_build
        lock = next(filter(vars(module).__contains__, _LOCKS), _LOCKS[-1])
        own_lock = getattr(module, lock)
        module._maybe_write, module._TORCH_PATH, module.CUDA_HOME  # noqa: B018 - doors
        if [*inspect.signature(own_run).parameters] != ["build_directory", "verbose", "error_prefix"]:
            raise UnsupportedError(f"its _run_ninja_build takes {inspect.signature(own_run)}")
        described = Torch(torch, module)
    shared = open_shared(
        "cpp_extension", torch.__version__, path, cap_bytes, runs_code=True, patience_seconds=_PATIENCE_SECONDS
    )
    builds = Builds(Libraries(shared, described), own_run)

    @functools.wraps(own_run)
    def run(build_directory: str, verbose: bool, error_prefix: str) -> None:
        builds.run(build_directory, verbose, error_prefix)

    setattr(module, lock, builds.baton if lock == _LOCKS[0] else builds.lock(own_lock))
    module._maybe_write, module._run_ninja_build = builds.write, run
    own_precompile = getattr(module, _PRECOMPILE, None)
    if own_precompile is not None:
        setattr(module, _PRECOMPILE, builds.precompile_later(own_precompile))
    return shared
