"""Installs the adapters that ``$LOCKCACHE_INSTALL`` names, each when its framework is imported: for ``lockcache run``.

Python runs this at its start, since ``lockcache run`` has put the folder in front of the others. The ``sitecustomize``
that it hides is run too. Nothing here may fail: it runs in each Python that the command starts, whatever that is for.
"""

from __future__ import annotations

import importlib
import importlib.machinery
import importlib.util
import os
import sys
from collections.abc import Sequence
from importlib.abc import MetaPathFinder
from types import ModuleType

# The module after whose import a framework can be adapted, if it is not the one of that name.
_MODULES = {"inductor": "torch._inductor.compile_fx", "numba": "numba.cuda"}


class _Installer(MetaPathFinder):
    """Finds nothing itself; has the adapter installed once the framework's module has run."""

    def __init__(self, frameworks: dict[str, str]) -> None:
        self._frameworks = frameworks
        self._looking: set[str] = set()

    def find_spec(
        self, fullname: str, path: Sequence[str] | None, target: ModuleType | None = None
    ) -> importlib.machinery.ModuleSpec | None:
        if fullname not in self._frameworks or fullname in self._looking:
            return None
        self._looking.add(fullname)
        try:
            spec = importlib.util.find_spec(fullname)
        finally:
            self._looking.discard(fullname)
        if spec is not None and spec.loader is not None:
            execute = spec.loader.exec_module

            def execute_and_install(module: ModuleType) -> None:
                execute(module)
                framework = self._frameworks.pop(fullname, None)
                if framework is not None:
                    _install(framework)

            spec.loader.exec_module = execute_and_install  # type: ignore[method-assign]
        return spec


def _install(framework: str) -> None:
    try:
        importlib.import_module(f"lockcache.integrations.{framework}").install()
    except Exception as error:  # noqa: BLE001 - an import of the user's must not fail because of it
        sys.stderr.write(f"lockcache: {framework} goes on with its own cache: {error}\n")


def _run_hidden() -> None:
    """Run the ``sitecustomize`` that would have been run without this one."""
    here = os.path.dirname(os.path.abspath(__file__))
    sys.path[:] = [folder for folder in sys.path if os.path.abspath(folder) != here]
    spec = importlib.machinery.PathFinder.find_spec("sitecustomize", sys.path)
    if spec is not None and spec.loader is not None:
        module = importlib.util.module_from_spec(spec)
        sys.modules["sitecustomize"] = module
        spec.loader.exec_module(module)


_wanted = filter(None, os.environ.get("LOCKCACHE_INSTALL", "").split(","))
sys.meta_path.insert(0, _Installer({_MODULES.get(name, name): name for name in _wanted}))
_run_hidden()
