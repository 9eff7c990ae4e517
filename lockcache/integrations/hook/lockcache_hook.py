# SPDX-License-Identifier: Apache-2.0
"""Installs the adapters that ``$LOCKCACHE_INSTALL`` names, each when its framework is imported: for ``lockcache run``.

``sitecustomize``, next to this file, calls :func:`run` at the start of each Python that the command starts. Nothing
here may fail, whatever that Python is for.
"""

from __future__ import annotations

import contextlib
import importlib
import importlib.machinery
import importlib.util
import os
import struct
import sys
from collections.abc import Sequence
from importlib.abc import MetaPathFinder
from types import ModuleType
from typing import Any

# The module after whose import a framework can be adapted, if it is not the one of that name.
_MODULES = {
    "cpp_extension": "torch.utils.cpp_extension",
    "cuda_core": "cuda.core",
    "cute": "cutlass.cute",
    "cutile": "cuda.tile",
    "flashinfer": "flashinfer.jit.core",
    "inductor": "torch._inductor.compile_fx",
    "numba": "numba.cuda",
    "numba_mlir": "numba_cuda_mlir.cuda",
}


class _Installer(MetaPathFinder):
    """Finds nothing itself; has the adapter installed once the framework's module has run."""

    def __init__(self, frameworks: dict[str, str]) -> None:
        self._frameworks = frameworks

    def find_spec(
        self, fullname: str, path: Sequence[str] | None, target: ModuleType | None = None
    ) -> importlib.machinery.ModuleSpec | None:
        finders = [*sys.meta_path]
        if fullname not in self._frameworks or self not in finders:
            return None
        for finder in finders[finders.index(self) + 1 :]:
            find = getattr(finder, "find_spec", None)
            spec: importlib.machinery.ModuleSpec | None = None if find is None else find(fullname, path, target)
            if spec is not None:
                # Not of those that only have load_module, which make the module themselves.
                if hasattr(spec.loader, "exec_module"):
                    spec.loader = _Loader(fullname, spec.loader, self._frameworks)  # type: ignore[assignment]
                return spec
        return None


class _Loader:
    """Stands for the loader of one module until that runs.

    The loader itself stays as it is: its attributes may be fixed, and it may load other modules too.
    """

    def __init__(self, fullname: str, own: Any, frameworks: dict[str, str]) -> None:
        self._fullname = fullname
        self._own = own
        self._frameworks = frameworks

    @property  # type: ignore[misc]
    def __class__(self) -> Any:  # to isinstance it is what it stands for
        return type(self._own)

    def __getattr__(self, name: str) -> Any:
        return getattr(object.__getattribute__(self, "_own"), name)  # a copy that is being made has none yet

    def exec_module(self, module: ModuleType) -> None:
        """Run the module, which has its own loader by then, and have the adapter installed."""
        for holder, name in ((module, "__loader__"), (module.__spec__, "loader")):
            if getattr(holder, name, None) is self:
                setattr(holder, name, self._own)
        self._own.exec_module(module)
        framework = self._frameworks.pop(self._fullname, None)
        if framework is not None:
            _install(framework)


def _install(framework: str) -> None:
    try:
        importlib.import_module(f"lockcache.integrations.{framework}").install()
    except Exception as error:  # noqa: BLE001 - an import of the user's must not fail because of it
        if sys.stderr is not None:
            with contextlib.suppress(OSError, ValueError):  # a full disk, a closed stream
                sys.stderr.write(f"lockcache: {framework} goes on with its own cache: {error}\n")
        with contextlib.suppress(Exception):
            _note_own_cache(f"{framework}: {type(error).__name__}: {error}")


def _note_own_cache(refusal: str) -> None:
    """Note for the last line of ``lockcache run`` why a framework is not adapted, in a Python without lockcache too.

    As ``lockcache.filestream.accounting.run_record`` writes the part of a process, which has ended.
    """
    flags = os.O_RDWR | os.O_APPEND | os.O_CLOEXEC | os.O_NOFOLLOW | os.O_NONBLOCK
    fd = os.open(os.environ["LOCKCACHE_RUN"], flags)
    try:
        if os.pread(fd, 8, 0) == b"LCrunhd\x01":
            text = " ".join(refusal.split()).encode(errors="replace")[:250]
            part = b"LCrunpt\x01" + struct.pack("<8q", 0, 0, 0, 0, 0, 0, 0, 1) + b"\n" + text
            os.write(fd, part.ljust(1024, b"\0"))
    finally:
        os.close(fd)


def run(file: str) -> None:
    """Install the adapters once, and run the ``sitecustomize`` that ``file`` hides."""
    if not any(isinstance(finder, _Installer) for finder in sys.meta_path):
        wanted = filter(None, os.environ.get("LOCKCACHE_INSTALL", "").split(","))
        sys.meta_path.insert(0, _Installer({_MODULES.get(name, name): name for name in wanted}))
    _run_hidden(os.path.dirname(os.path.abspath(file)))


def _run_hidden(folder: str) -> None:
    """Run the ``sitecustomize`` that would have been run without the one in ``folder``.

    The folder stays in ``sys.path``: programs start children with a ``$PYTHONPATH`` made of it, as Inductor does its
    compile workers. Only what comes after the folder is searched: another lockcache's hook may be there, which searches
    in the same way, and each would find the other one without end.
    """
    places = [place for place, other in enumerate(sys.path) if os.path.abspath(other) == folder]
    spec = importlib.machinery.PathFinder.find_spec("sitecustomize", sys.path[max(places, default=-1) + 1 :])
    if spec is not None and spec.loader is not None:
        module = importlib.util.module_from_spec(spec)
        sys.modules["sitecustomize"] = module
        spec.loader.exec_module(module)
