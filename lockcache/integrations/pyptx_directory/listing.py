# SPDX-License-Identifier: Apache-2.0
"""Scan of a pyptx directory: the three files of a name as one, with their bytes and their last use.

Decides what counts: every file with an entry's name, also of a name that lacks its json or its PTX and so is not an
entry (a writer is at it, or died of it). Its bytes fill the disk all the same, and a program that bounds the directory
must know. Not promised: a consistent picture while writers go on; who needs one looks again under the lock of the name.
"""

from __future__ import annotations

import os
import re
import stat
from collections.abc import Callable, Iterator
from typing import Final

from lockcache.filestream.disk import last_use_ns
from lockcache.lowlevel import Found

__all__ = ["SUFFIXES", "changed_ns", "look", "parse_name", "scan"]

#: In the order in which they are removed: without the json there is no entry, for pyptx's readers neither.
SUFFIXES: Final = ("json", "cubin", "ptx")

_FILE: Final = re.compile(r"([0-9a-f]{32})\.(ptx|cubin|json)", re.ASCII)


def parse_name(file_name: str) -> tuple[str, str] | None:
    """``(hash, suffix)`` of a file that belongs to an entry, or ``None``."""
    match = _FILE.fullmatch(file_name)
    return None if match is None else (match[1], match[2])


def scan(root: str, between: Callable[[], object] = lambda: None) -> Iterator[Found]:
    """Every name, in no order: bytes of all its files, and the newest of their times.

    The inode is the json's, or 0 where the name is not an entry. ``between`` is called after each file, and may raise
    to give up. Raises :class:`OSError`: a directory that cannot be read now is not an empty one.
    """
    names: dict[str, dict[str, os.stat_result]] = {}
    try:
        with os.scandir(root) as files:
            for file in files:
                between()
                parsed = parse_name(file.name)
                status = None if parsed is None else _status(file.path)
                if parsed is not None and status is not None:
                    names.setdefault(parsed[0], {})[parsed[1]] = status
    except FileNotFoundError:
        return
    for name, parts in names.items():
        yield _found(name, parts)


def look(root: str, name: str) -> Found | None:
    """One name as it stands now; ``None`` if nothing is left of it."""
    parts = _parts(root, name)
    return _found(name, parts) if parts else None


def changed_ns(root: str, name: str, ending: str = "") -> int:
    """Returns when the files of a name last changed or appeared: the ctime, which no copy can set."""
    return max((status.st_ctime_ns for status in _parts(root, name, ending).values()), default=0)


def _parts(root: str, name: str, ending: str = "") -> dict[str, os.stat_result]:
    found = {suffix: _status(f"{root}/{name}.{suffix}{ending}") for suffix in SUFFIXES}
    return {suffix: status for suffix, status in found.items() if status is not None}


def _status(path: str) -> os.stat_result | None:
    """``None`` for what is not there, and for a directory: that is nobody's file, and no unlink removes it."""
    try:
        status = os.lstat(path)
    except FileNotFoundError:
        return None
    return None if stat.S_ISDIR(status.st_mode) else status


def _found(name: str, parts: dict[str, os.stat_result]) -> Found:
    inode = parts["json"].st_ino if {"json", "ptx"} <= parts.keys() else 0
    used_ns = max(last_use_ns(status) for status in parts.values())
    return Found(used_ns, name, sum(status.st_size for status in parts.values()), inode)
