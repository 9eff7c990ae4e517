# SPDX-License-Identifier: Apache-2.0
"""Import of a directory of JAX's own: its programs become entries, by the keys and with the values that JAX has there.

Changes nothing in JAX's directory, follows no symlink in it, and reads no more of a file than a bound. JAX writes an
entry in place: what a killed process left half written is left out, as far as the compressed form tells. The least
recently used come first, so that a cap keeps those used last.
"""

from __future__ import annotations

import os
import re
import stat
import time
import zlib
from collections.abc import Callable
from functools import partial
from typing import Final

from lockcache.composition import FileStreamProgramCache
from lockcache.filestream.disk import last_use_ns
from lockcache.integrations.adapter import Shared
from lockcache.layouts.openat import opened_root, read_in, status_in
from lockcache.layouts.triton_import import Outcomes, outcome_of
from lockcache.lowlevel import Found

# No executable is nearly as long.
_LARGEST_BYTES: Final = 1 << 30
# The name of a program and its digest, as JAX names its files since 0.4.31.
_ENTRY: Final = re.compile(r"(.+-[0-9a-f]{64})-cache")
_USED_SUFFIX: Final = "-atime"
_USED_BYTES: Final = 8

_PIECE_BYTES: Final = 1 << 20
# RFC 8878, 3.1.1.
_ZSTD: Final = b"\x28\xb5\x2f\xfd"
_ZSTD_RUN, _ZSTD_RESERVED = 1, 3


def jax_entries(root: str) -> list[Found]:
    """Returns the entries of JAX's own directory ``root``, the least recently used first: the name of each is its key.

    Raises :class:`OSError`.
    """
    found = []
    with opened_root(root) as fd, os.scandir(fd) as files:
        for file in files:
            entry = _ENTRY.fullmatch(file.name)
            status = status_in(fd, file.name) if entry and file.name.isprintable() else None
            if entry and status is not None and stat.S_ISREG(status.st_mode):
                found.append(Found(_used_ns(fd, entry[1], status), entry[1], status.st_size, status.st_ino))
    return sorted(found)


def import_jax(
    root: str,
    found: list[Found],
    cache: FileStreamProgramCache | None,
    version: str,
    advance: Callable[[int], object],
    *,
    is_dry_run: bool = False,
) -> Outcomes:
    """Take over what :func:`jax_entries` found in ``root``. ``is_dry_run``: only count, without ``cache`` as for an
    empty one.

    ``version`` is the version of JAX that is to find them. Outcomes are ``imported``, ``present``, ``damaged`` and
    ``dropped``. Raises :class:`OSError`.
    """
    outcomes = Outcomes()
    shared = None if cache is None else Shared("jax", version, cache)
    with opened_root(root) as fd:
        for entry in found:
            value = read_in(fd, f"{entry.name}-cache", entry.inode, _LARGEST_BYTES) or b""
            if not _is_whole(value):
                outcomes["damaged"] += 1
            elif shared is None:
                outcomes["imported"] += 1
            elif shared.look(entry.name) is not None:
                outcomes["present"] += 1
            else:
                store = partial(shared.store, entry.name, value)
                outcomes["imported" if is_dry_run else outcome_of(shared, store)] += 1
            advance(1)
    return outcomes


def _used_ns(root_fd: int, key: str, status: os.stat_result) -> int:
    """Returns when JAX used an entry, which it notes if its directory has a cap; else what the file system notes."""
    noted = status_in(root_fd, key + _USED_SUFFIX)
    used = noted and read_in(root_fd, key + _USED_SUFFIX, noted.st_ino, _USED_BYTES)
    return min(int.from_bytes(used, "little"), time.time_ns()) if used else last_use_ns(status)


def _is_whole(value: bytes) -> bool:
    """Returns whether a value is one whole stream of zlib or zstd, with which JAX compresses."""
    return _is_whole_zstd(value) if value.startswith(_ZSTD) else _is_whole_zlib(value)


def _is_whole_zlib(value: bytes) -> bool:
    stream, rest = zlib.decompressobj(), value
    try:
        while rest and not stream.eof:
            stream.decompress(rest, _PIECE_BYTES)
            rest = stream.unconsumed_tail
    except zlib.error:
        return False
    return stream.eof and not stream.unused_data


def _is_whole_zstd(value: bytes) -> bool:
    """Returns whether the blocks of a frame end where ``value`` does. What is in them is not decompressed."""
    kinds = int.from_bytes(value[4:5], "little")
    is_single, has_checksum = kinds >> 5 & 1, kinds >> 2 & 1
    size_bytes = (is_single, 2, 4, 8)[kinds >> 6]
    place = 5 + (1 - is_single) + (0, 1, 2, 4)[kinds & 3] + size_bytes
    while place + 3 <= len(value):
        head = int.from_bytes(value[place : place + 3], "little")
        is_last, kind, length = head & 1, head >> 1 & 3, head >> 3
        if kind == _ZSTD_RESERVED:
            return False
        place += 3 + (1 if kind == _ZSTD_RUN else length)
        if is_last:
            return place + 4 * has_checksum == len(value)
    return False
