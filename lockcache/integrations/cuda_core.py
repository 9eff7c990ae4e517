# SPDX-License-Identifier: Apache-2.0
"""cuda.core's ``Program.compile`` on lockcache: each program compiled once by all processes of a machine.

:func:`install`, once cuda.core is imported, gives the name ``cuda.core.Program`` to a subclass that has a cache where
``compile`` is called without one. Results and errors are those of cuda.core, as :class:`lockcache.cuda.Program`
promises. The directory is ``$LOCKCACHE_DIR``. The subclass is made when somebody asks for the name: a process that
imports cuda.core and compiles nothing loads nothing for it, and lockcache's own import of cuda.core does not come back
here.

Programs that frameworks with an adapter of their own compile stay as they are: their results are stored once.
Tried with cuda.core 1.2.2.
"""

from __future__ import annotations

import importlib
import os
import sys
from typing import Any, Final

from lockcache.integrations.adapter import (
    Shared,
    UnsupportedError,
    install as install_adapter,
    looking_for_doors,
    open_shared,
)

__all__ = ["install"]

_OLDEST_TRIED: Final = (1, 2)
#: Where the class stands that was there before, for :mod:`lockcache.cuda.lazy_program`.
_OWN: Final = "_program_without_lockcache"
_ADAPTED: Final = ("cupy", "cutlass", "flashinfer", "jax", "numba", "numba_cuda_mlir", "torch", "triton", "warp")


def install(path: str | os.PathLike[str] | None = None, *, max_size_bytes: int | None = None) -> bool:
    """Make ``cuda.core.Program.compile`` use the cache in ``path``, by default ``$LOCKCACHE_DIR``.

    For programs that ask cuda.core for ``Program`` from now on, and give ``compile`` no cache. Returns whether it does.
    If it cannot, a warning says why, and cuda.core stays as it was. A second call changes nothing.
    """
    return install_adapter("cuda_core", lambda: _install(path, max_size_bytes))


def _install(path: str | os.PathLike[str] | None, cap_bytes: int | None) -> Shared:
    core: Any = importlib.import_module("cuda.core")  # which is not yet an attribute of its package
    with looking_for_doors("cuda_core", core.__version__, _OLDEST_TRIED):
        own = vars(core)["Program"]
        if hasattr(core, "__getattr__"):
            raise UnsupportedError("it makes its names when they are asked for, which the adapter does not know")
    shared = open_shared("cuda_core", core.__version__, path, cap_bytes)

    def made_when_asked_for(name: str) -> Any:
        if name != "Program":
            raise AttributeError(f"module {core.__name__!r} has no attribute {name!r}")
        made = _cached(own, shared)
        core.Program = made
        return made

    setattr(core, _OWN, own)
    core.__getattr__ = made_when_asked_for
    del core.Program
    return shared


def _cached(own: type, shared: Shared) -> type:
    """Returns the class that stands for ``own``; that itself where lockcache's cannot be made, with a warning."""
    made: list[type] = []
    with shared.never_raising():
        from lockcache.cuda import Program as WithCache  # here: it imports cuda.core

        class Program(WithCache):
            __doc__ = own.__doc__

            def compile(
                self, target_type: Any, name_expressions: Any = (), logs: Any = None, *, cache: Any = None
            ) -> Any:
                if cache is None and not (shared.has_failed or _is_of_a_framework(sys._getframe(1).f_globals)):
                    cache = shared.cache
                return super().compile(target_type, name_expressions, logs, cache=cache)

        Program.__module__, Program.__qualname__ = own.__module__, own.__qualname__
        made.append(Program)
    return made[0] if made else own


def _is_of_a_framework(names: dict[str, Any]) -> bool:
    return str(names.get("__name__")).partition(".")[0] in _ADAPTED
