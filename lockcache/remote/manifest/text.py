# SPDX-License-Identifier: Apache-2.0
"""The text of a manifest: a line that says what it is, and then a key a line, as the 64 hex digits of its digest.

Decides the format and its bounds. Keys are sorted, so that two manifests can be compared and merged as text; empty
lines, and lines that begin with ``#``, count for nothing. Not promised: that comments survive when keys are added.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import Final

__all__ = ["LARGEST_BYTES", "MOST_KEYS", "format_manifest", "parse_manifest"]

#: Keys of one manifest. The largest known jobs look up some thousand; this many are a megabyte of text.
MOST_KEYS: Final = 16_384
#: The bytes of a file, with room for comments.
LARGEST_BYTES: Final = 66 * MOST_KEYS + 65_536

_HEADING: Final = "# lockcache manifest "
_VERSION: Final = "1"
_KEY: Final = re.compile(r"[0-9a-f]{64}")
# The characters of a refused line that are shown.
_MOST_SHOWN: Final = 80


def begins(text: bytes) -> bool:
    """Returns whether a file's first bytes are a manifest's, of whatever version."""
    return text.startswith(_HEADING.encode())


def parse_manifest(text: bytes, path: str) -> frozenset[str]:
    """Returns the keys of a manifest. Raises :class:`ValueError` naming ``path`` and the line that is wrong."""
    if len(text) > LARGEST_BYTES:
        raise ValueError(f"{path}: this is longer than a manifest of {MOST_KEYS} keys")
    lines = text.decode("utf-8", errors="replace").split("\n")
    heading = lines[0].rstrip()
    if not heading.startswith(_HEADING):
        raise ValueError(f"{path}: line 1: this is not a manifest, which begins with '{_HEADING}{_VERSION}'")
    if heading != _HEADING + _VERSION:
        raise ValueError(f"{path}: line 1: this manifest was made by a newer lockcache: {_shown(heading)}")
    keys = set()
    for number, line in enumerate(lines, 1):
        word = line.strip()
        if word and not word.startswith("#"):
            if _KEY.fullmatch(word) is None:
                raise ValueError(f"{path}: line {number}: {_shown(word)} is not a key, which is 64 digits 0-9 and a-f")
            keys.add(word)
    if len(keys) > MOST_KEYS:
        raise ValueError(f"{path}: this has {len(keys)} keys, and a manifest has at most {MOST_KEYS}")
    return frozenset(keys)


def format_manifest(keys: Iterable[str]) -> bytes:
    """Returns the text of a manifest of these keys."""
    return "\n".join([_HEADING + _VERSION, *sorted(keys), ""]).encode()


def _shown(word: str) -> str:
    return repr(word if len(word) <= _MOST_SHOWN else f"{word[:_MOST_SHOWN]}...")
