# SPDX-License-Identifier: Apache-2.0
"""Parts of the key by which Helion's autotuner finds what it chose."""

from __future__ import annotations

import dataclasses
from typing import Any, Final

from lockcache.explain import Hashed
from lockcache.integrations.key_parts.words import in_words

__all__ = ["parts_of_helion"]

_CODE: Final = "kernel_source_hash"


def parts_of_helion(key: Any) -> dict[str, object]:
    """Returns the parts of one of Helion's keys, by the names of its fields. Raises :class:`TypeError` for no key."""
    fields = {field.name: getattr(key, field.name) for field in dataclasses.fields(key)}
    code = Hashed(in_words(fields.pop(_CODE, "")))
    return {"code": code, **{name.replace("_", " "): in_words(value) for name, value in fields.items()}}
