# SPDX-License-Identifier: Apache-2.0
"""Parts of the key of a Warp module."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any, Final

from lockcache.explain import Hashed
from lockcache.integrations.key_parts.words import in_words, list_options

__all__ = ["parts_of_warp"]

# Of a module that has one kernel alone, in its name.
_OWN_HASH: Final = re.compile(r"_[0-9a-f]{8}$")
# There is no room for some twenty, nearly all of which stay as Warp has them.
_NAMED: Final = (
    *("mode", "block_dim", "optimization_level", "max_unroll", "enable_backward", "fast_math", "fuse_fp"),
    *("lineinfo", "verify_fp", "deterministic"),
)


def parts_of_warp(
    module: Any, options: Mapping[str, object], arch: object, use_ptx: object, cpu_features: str
) -> dict[str, object]:
    """Returns the parts of the key of ``module``, compiled with these options.

    A kernel's hash is Warp's, of its code, the functions that it calls, its constants and structures.
    ``cpu_features``: what is added to the key of a module for the CPU, else empty.
    """
    block_dim = options.get("block_dim")
    hashers = getattr(module, "hashers", {})
    kernels = getattr(hashers.get(block_dim), "unique_kernels", {})
    hashed = sorted((str(kernel.key), bytes(digest).hex()) for digest, kernel in kernels.items())
    found: dict[str, object] = {
        "code": Hashed([digest for _, digest in hashed]),
        "module": _OWN_HASH.sub("", str(module.name)),
        "target": f"sm_{arch}" if arch is not None else "CPU",
        "output": "PTX" if use_ptx else "binary",
        **list_options({name: options[name] for name in _NAMED if name in options}, _NAMED),
        "other options": Hashed(sorted((name, in_words(value)) for name, value in options.items())),
        **{f"kernel {name}": Hashed(digest) for name, digest in hashed},
    }
    return {**found, "instructions of the CPU": Hashed(cpu_features)} if cpu_features else found
