# SPDX-License-Identifier: Apache-2.0
"""Parts of the key of a library that torch or FlashInfer builds from C++ and CUDA sources."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from lockcache.explain import Hashed

__all__ = ["parts_of_extension"]

_STATED: Final = ("system", "processor", "torch", "FlashInfer", "compiler", "environment", "paths")


def parts_of_extension(parts: Mapping[str, str]) -> dict[str, object]:
    """Returns the parts of a key: those of its ``parts`` that have a name of their own, and the steps of the build.

    A step has the contents of sources and headers, and options. None is shown.
    """
    steps = sorted(item for item in parts.items() if item[0] not in _STATED)
    return {
        "code": Hashed(steps),
        "steps": len(steps),
        **{name: Hashed(parts[name]) for name in _STATED if name in parts},
    }
