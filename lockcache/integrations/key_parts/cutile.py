# SPDX-License-Identifier: Apache-2.0
"""Parts of the key of a cuTile kernel."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from lockcache.explain import Hashed
from lockcache.integrations.key_parts.words import digest_of, in_words

__all__ = ["parts_of_cutile"]

_CODE = "bytecode"


def parts_of_cutile(name: str, arguments: Mapping[str, Any]) -> dict[str, object]:
    """Returns the parts of the key of the kernel ``name``. ``arguments``: those of cuTile's ``cache_key``, by name."""
    found: dict[str, object] = {"code": digest_of(bytes(arguments.get(_CODE, b""))), "kernel": name}
    for each, value in arguments.items():
        if each == "linker_inputs":
            found["libraries"] = Hashed(value, ", ".join(in_words(version) for _, version in value))
        elif each != _CODE:
            found[each.replace("_", " ")] = in_words(value)
    return found
