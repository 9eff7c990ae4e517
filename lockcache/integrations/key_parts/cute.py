# SPDX-License-Identifier: Apache-2.0
"""Parts of the key of a CuTe DSL program."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Final

from lockcache.explain import Hashed
from lockcache.integrations.key_parts.words import digest_of, in_words, list_options

__all__ = ["parts_of_cute"]

#: Options of the passes, ``opt-level=3`` say.
_OPTION: Final = re.compile(r"([\w-]+)=([^\s{}]+)")


def parts_of_cute(
    name: str, code: bytes, pipeline: str, args: Sequence[object], wanted: Mapping[str, object]
) -> dict[str, object]:
    """Returns the parts of the key of the traced program ``name``: all that the compiler is given."""
    return {
        "code": digest_of(code),
        "function": name,
        "target": in_words(args[0]) if args else "",
        **list_options({name: value != "false" and value for name, value in _OPTION.findall(pipeline)} | {**wanted}),
        "passes": Hashed(_OPTION.sub(r"\1", " ".join(pipeline.split()))),
    }
