# SPDX-License-Identifier: Apache-2.0
"""Imported programs of JAX: found by the key that each has in JAX's own directory, and by the adapter's from then on.

JAX's key of a program contains the name of its directory wherever XLA keeps caches of its own in there, as it does by
default; the adapter's key does not. A key is a digest, so that neither can be made of the other: only a process that
has the program can make both. It makes the second one after a miss, if it knows the directory, and asks whether there
is an entry of that name, which counts nothing.
"""

from __future__ import annotations

import copy
import functools
import inspect
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any, Final, NamedTuple

from lockcache.integrations.adapter import Parts, Shared
from lockcache.integrations.key_parts import parts_of_jax
from lockcache.metadata import COMPILE_COST

_KERNELS: Final = "xla_gpu_kernel_cache_file"
# XLA's own caches, as JAX puts them into its directory: each the option for its path, and its name in there.
_XLA_CACHES: Final = (_KERNELS, "xla_gpu_per_fusion_autotune_cache_dir")


class Program(NamedTuple):
    """JAX's key of a program, and the arguments by which JAX makes it."""

    key: str
    args: tuple[Any, ...]
    kwargs: dict[str, Any]


class Imported:
    """The imported programs."""

    def __init__(self, make_key: Callable[..., str], xla_caches: str, cpu_features: Callable[[], str]) -> None:
        """``make_key``: JAX's own ``get_cache_key``. ``xla_caches``: XLA's own caches, as the program chose them.

        ``cpu_features`` returns what programs for the CPU are compiled for.
        """
        self._make_key, self._xla_caches, self._cpu_features = make_key, xla_caches, cpu_features
        # Of programs for the CPU, the names among all hosts.
        self._names: dict[str, str] = {}
        self._noted = threading.local()

    def noting(self, shared: Shared) -> Callable[..., str]:
        """Returns JAX's ``get_cache_key``, which keeps the program until :meth:`take` in the same thread."""

        @functools.wraps(self._make_key)
        def get_cache_key(*args: Any, **kwargs: Any) -> str:
            key = self._make_key(*args, **kwargs)
            self._noted.last = Program(key, args, kwargs)
            with shared.never_raising():
                if self._is_for_cpu(args, kwargs):
                    self._names[key] = f"{key}/{self._cpu_features()}"
            return key

        return get_cache_key

    def _is_for_cpu(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> bool:
        """Returns whether a program is compiled for the CPU of this host, or it is not known for what."""
        backend = inspect.signature(self._make_key).bind(*args, **kwargs).arguments.get("backend")
        return getattr(backend, "platform", "cpu") == "cpu"

    def shared_name(self, key: str) -> str:
        """Returns the key of a program among all hosts, by JAX's own."""
        return self._names.get(key, key)

    def take(self, key: str) -> Program | None:
        """Returns the program whose key was made last in this thread, if that is ``key``. The next call has none."""
        return _of_key(key, self._noted.__dict__.pop("last", None))

    def parts_of_missed(self, key: str) -> Parts:
        """Returns what says the parts of ``key``, if its program is the one that :meth:`look` was asked for last."""
        return self.parts_of(key, _of_key(key, self._noted.__dict__.pop("missed", None)))

    def parts_of(self, key: str, program: Program | None) -> Parts:
        """Returns what says the parts of ``key``, JAX's own of ``program``."""
        return functools.partial(self._parts_of, key, program)

    def _parts_of(self, key: str, program: Program | None) -> dict[str, object]:
        name = key.rsplit("-", 1)[0]
        if program is None:
            return {"program": name}
        arguments = inspect.signature(self._make_key).bind(*program.args, **program.kwargs).arguments
        return parts_of_jax(name, arguments, self._cpu_features() if key in self._names else "")

    def look(
        self, shared: Shared, key: str, program: Program | None, directory: str | None, may_store: bool
    ) -> bytes | None:
        """Returns the value of ``program`` as it was imported from JAX's own ``directory``; ``None`` without one.

        ``may_store``: store it as ``key``, which ends this thread's turn.
        """
        self._noted.missed = program
        if program is None or not directory:
            return None
        with shared.never_raising():
            own_key = self._key_in(directory, program)
            found = shared.look(own_key) if own_key != key and shared.is_stored(own_key) else None
            if found is not None and may_store:
                # Not this process compiled it: the time since its turn began is not its cost.
                shared.import_value(key, found, **{COMPILE_COST: 0})
            return found
        return None

    def _key_in(self, directory: str, program: Program) -> str:
        arguments = inspect.signature(self._make_key).bind(*program.args, **program.kwargs).arguments
        options = copy.deepcopy(arguments["compile_options"])
        known = options.executable_build_options.debug_options
        for option in _XLA_CACHES:
            if self._xla_caches == "all" or option in self._xla_caches:
                setattr(known, option, str(Path(directory) / option))
                if option == _KERNELS:
                    known.xla_gpu_enable_llvm_module_compilation_parallelism = True
        return self._make_key(**{**arguments, "compile_options": options})


def _of_key(key: str, program: Program | None) -> Program | None:
    return program if program is not None and program.key == key else None
