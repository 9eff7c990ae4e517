# SPDX-License-Identifier: Apache-2.0
"""Modules that a version in a key stands for: Python's own, and those of packages that an adapter names."""

from __future__ import annotations

import functools
import os
import sys
from collections.abc import Collection
from typing import Final

__all__ = ["is_known"]

_WITHOUT_FILES: Final = ("built-in", "frozen")
_OF_PACKAGES: Final = ("site-packages", "dist-packages")


def is_known(module: str | None, packages: Collection[str]) -> bool:
    """Returns whether ``module`` is Python's own or one of ``packages``."""
    if module is None:
        return False
    name = module.partition(".")[0]
    return name in packages or (name in sys.stdlib_module_names and _is_pythons(name))


@functools.cache
def _is_pythons(name: str) -> bool:
    """Returns whether a name of Python's names Python's module, and not one of a program's, ``wave.py`` say."""
    spec = getattr(sys.modules.get(name), "__spec__", None)
    if spec is None:  # Python makes some without: __main__ is a program's
        return name != "__main__"
    if spec.origin in _WITHOUT_FILES:
        return True
    where = os.path.realpath(spec.origin or next(iter(spec.submodule_search_locations or ()), ""))
    return where.startswith(os.path.dirname(os.path.realpath(os.__file__)) + os.sep) and not any(
        f"{os.sep}{folder}{os.sep}" in where for folder in _OF_PACKAGES
    )
