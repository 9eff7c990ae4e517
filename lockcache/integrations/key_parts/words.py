# SPDX-License-Identifier: Apache-2.0
"""Options, variables and values of keys, as the parts of all frameworks name them."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Mapping
from typing import Any

from lockcache.explain import Hashed

__all__ = ["digest_of", "in_words", "list_options", "list_variables", "without_paths"]

# What Python prints of an object without words of its own, which is another text in each process.
_ADDRESS = " at 0x"


def list_options(options: Mapping[str, object], named: Iterable[str] = ()) -> dict[str, object]:
    """Returns a part for each option that is set, and one for all of them, which is named if no other one differs.

    ``named``: those that come first, and have a part whatever their value is.
    """
    words = {name: in_words(value) for name, value in options.items()}
    first = [name for name in named if name in words]
    others = sorted(name for name in words if name not in first and not _is_unset(options[name]))
    found: dict[str, object] = {f"option {name}": without_paths(words[name]) for name in [*first, *others]}
    return {**found, "other options": Hashed(sorted(words.items()))}


def list_variables(variables: Iterable[Any]) -> dict[str, object]:
    """Returns a part for each name and value."""
    found = sorted((str(name), str(value)) for name, value in variables)
    return {f"variable {name}": without_paths(value) for name, value in found}


def without_paths(text: str) -> Hashed:
    """Returns a value that is shown unless it has a path in it, which may be private."""
    return Hashed(text, "" if "/" in text or "~" in text else text)


def digest_of(code: bytes) -> Hashed:
    """Returns the hash of code, of which there may be megabytes."""
    return Hashed(hashlib.sha256(code, usedforsecurity=False).hexdigest())


def in_words(value: object) -> str:
    """Returns a value as a text that is the same in each process."""
    text = str(value)
    return type(value).__qualname__ if _ADDRESS in text else text


def _is_unset(value: object) -> bool:
    return value is None or value is False or value in ("", (), [], {})
