# SPDX-License-Identifier: Apache-2.0
"""Parts of a numba-cuda kernel's key."""

from __future__ import annotations

import os
from collections.abc import Sequence
from typing import Any, Final

from lockcache.explain import Hashed
from lockcache.integrations.framework_keys import describe_program
from lockcache.integrations.key_parts.words import in_words, list_options, list_variables

__all__ = ["parts_of_numba"]

_VARIABLES: Final = "NUMBA_"
# Where numba keeps things: not in a key.
_NEUTRAL: Final = ("NUMBA_CACHE_", "NUMBA_DEBUG_CACHE")


def parts_of_numba(
    name: str, key: Sequence[Any], dispatcher: Any, settings: object, compilers: object
) -> dict[str, object]:
    """Returns the parts of numba's own ``key`` of a kernel, and of what is added to it.

    ``name``: that of numba's index: the function, with its file and line. ``settings``: numba's. ``compilers``: their
    builds.
    """
    signature, target = key[0], key[1]
    found: dict[str, object] = {
        "code": Hashed(describe_program(dispatcher.py_func, {})),
        "function": name.removesuffix(".nbi"),
        "argument types": _types(signature),
        **_target(target),
        **list_options(dispatcher.targetoptions),
    }
    own = [each for each in os.environ.items() if each[0].startswith(_VARIABLES) and not each[0].startswith(_NEUTRAL)]
    return {
        **found,
        **list_variables(own),
        "settings": Hashed(settings),
        "builds of compilers": Hashed(compilers),
    }


def _types(signature: Any) -> str:
    """Returns the types of arguments, which numba prints with parentheses."""
    types = signature if isinstance(signature, tuple) else (signature,)
    return in_words(", ".join(map(str, types))).replace("(", "<").replace(")", ">")


def _target(target: Any) -> dict[str, object]:
    try:
        (toolkit, capability) = (".".join(map(str, each)) for each in target)
    except (TypeError, ValueError):  # in another version
        return {"target": Hashed(target)}
    return {"compute capability": capability, "CUDA": toolkit}
