# SPDX-License-Identifier: Apache-2.0
"""Processes that count hits and misses on a shared directory, each ending in its own way."""

from __future__ import annotations

import os
import sys
from typing import Any

from lockcache import FileStreamProgramCache

_kept: list[Any] = []


def hit_and_return(root: str, hits: int) -> None:
    """Hit so often and keep the cache, so that only the end of the process can report."""
    cache = FileStreamProgramCache(root)
    _kept.append(cache)
    for _ in range(hits):
        assert cache[b"key"] == b"code"


def hit_with(cache: FileStreamProgramCache, hits: int) -> None:
    """Hit like :func:`hit_and_return`, with a cache object of the parent of this forked process."""
    for _ in range(hits):
        assert cache[b"key"] == b"code"


def main(root: str, ending: str) -> None:
    """Hit three times, miss once, then end."""
    hit_and_return(root, 3)
    assert _kept[0].get(b"no such key") is None
    if ending == "collected":
        _kept.clear()
        os._exit(0)
    if ending == "closed":
        _kept[0].close()
        os._exit(0)
    if ending == "stats":
        _kept[0].stats()
        os._exit(0)
    if ending == "raises":
        raise SystemExit("an error of the program's own")


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2])
