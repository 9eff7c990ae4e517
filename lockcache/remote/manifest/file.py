# SPDX-License-Identifier: Apache-2.0
"""The file of a manifest: reading it, and adding keys to it next to others who do.

Keeps invariant 5 (death is free): the file is replaced by rename, so that a death or a full disk leaves the older one.
Processes of all hosts take turns by a lock file next to it, and each reads the file in its turn, so that nothing that
another process added is lost. A process that has nothing to add finds that out without a turn. What is not a manifest
is never replaced.
"""

from __future__ import annotations

import errno
import os
import stat

from lockcache.filestream import open_output, turn_to_replace
from lockcache.filestream.disk import READ, opened
from lockcache.remote.manifest.text import LARGEST_BYTES, MOST_KEYS, begins, format_manifest, parse_manifest

__all__ = ["add_to_manifest", "is_manifest", "read_manifest"]


def read_manifest(path: str) -> frozenset[str]:
    """Returns the keys of the manifest at ``path``, which is not a symlink.

    Raises :class:`OSError`, and :class:`ValueError` naming the line where it is not a manifest.
    """
    with opened(path, READ) as fd:
        if not stat.S_ISREG(os.fstat(fd).st_mode):
            raise OSError(errno.EINVAL, "not a plain file", path)
        parts = []
        left = LARGEST_BYTES + 1
        while left and (part := os.read(fd, left)):
            parts.append(part)
            left -= len(part)
    return parse_manifest(b"".join(parts), path)


def is_manifest(path: str) -> bool:
    """Returns whether a path, which may be a symlink, leads to a file that begins as a manifest does.

    Raises :class:`OSError`.
    """
    with opened(os.path.realpath(path), READ) as fd:
        return begins(os.read(fd, 64))


def add_to_manifest(path: str, keys: frozenset[str], wait_seconds: float) -> frozenset[str]:
    """Add ``keys`` to the manifest at ``path``, which is made if it is missing. Returns what it lists then.

    That is :data:`MOST_KEYS` at most: what it lists already stays, and of ``keys`` some may be missing. Waits for
    others so long. Raises :class:`OSError` (:class:`LockTimeoutError`) and :class:`ValueError`; then it is as it was.
    """
    held = _read_if_there(path)
    if held is not None and _lacks_nothing(held, keys):
        return held
    with turn_to_replace(path, wait_seconds) as turn:
        held = _read_if_there(path)  # others may have added to it while we waited
        if held is not None and _lacks_nothing(held, keys):
            return held
        before = held or frozenset()
        wanted = before.union(sorted(keys - before)[: MOST_KEYS - len(before)])
        with open_output(path, is_users_choice=False, turn=turn) as file:
            file.write(format_manifest(wanted))
        return wanted


def _read_if_there(path: str) -> frozenset[str] | None:
    try:
        return read_manifest(path)
    except FileNotFoundError:
        return None


def _lacks_nothing(held: frozenset[str], keys: frozenset[str]) -> bool:
    return keys <= held or len(held) >= MOST_KEYS
