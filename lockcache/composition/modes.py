# SPDX-License-Identifier: Apache-2.0
"""Modes of a program's cache: it reads and writes its directory, only reads it, renews its entries, or is off.

Decides, once and at opening, so that no read and no write has to ask: ``read_only`` and ``$LOCKCACHE_READONLY``, or a
directory that may be read and not written, give a cache that makes and changes nothing; ``$LOCKCACHE_DISABLE`` gives a
cache without a directory, which is empty and stores nothing, and so do the lack of a home for the default directory and
a disk that is too full for a new one; ``$LOCKCACHE_RECACHE`` hides what this process has not
stored itself, and compares with what it replaces. In none of the three modes does a lookup wait for another process.

Keeps invariant 2 (last write wins) for an object that writes where only reading is allowed: it no longer reads the
entries that it would have replaced. For all others nothing was written. Not promised: the same for a directory that
becomes read-only later, where a write is dropped as on a failing disk (:mod:`lockcache.filestream.writer`).
"""

from __future__ import annotations

import errno
import logging
import os
from collections.abc import Mapping
from typing import Any, Final, Literal

from lockcache.arguments import configured_text, is_disabled, warn_once
from lockcache.default_directory import NOWHERE
from lockcache.errors import UnsafeCacheDirError, in_words
from lockcache.filestream import CacheDirectory, EntryWriter, Outcome, Written, has_seed
from lockcache.filestream.accounting import has_entry
from lockcache.filestream.disk import DISK_FULL, nearest_seen, ownership
from lockcache.filestream.entry import EntryReader, Record
from lockcache.filestream.eviction import Evicted

_log = logging.getLogger("lockcache")

_DENIED: Final = (errno.EACCES, errno.EPERM, errno.EROFS)


def open_in_mode(arguments: Mapping[str, Any], first_cap_bytes: int | None) -> CacheDirectory | None:
    """Open a directory as the program, whose coerced arguments these are, and the environment ask for.

    ``None`` where the program does without one. Raises what opening it raises; with ``read_only=False``
    :class:`PermissionError` where it may only be read.
    """
    root, timeout, read_only = arguments["path"], arguments["lock_timeout_seconds"], arguments["read_only"]
    if root == NOWHERE or (configured_text("LOCKCACHE_DISABLE") and is_disabled()):
        return None
    group, reads = arguments["group"], read_only is True
    try:
        found = CacheDirectory(root, timeout, group=group, first_cap_bytes=first_cap_bytes, is_read_only=reads)
    except OSError as error:
        _refuse_unless_dispensable(root, error, read_only)
        return None
    number, why = found.why_no_page
    # Otherwise it is a full disk, or a first count by another process: over soon.
    if not reads and number in _DENIED:
        if read_only is False:
            what = "this directory may be read and not written, and read_only=False asks for both"
            raise PermissionError(number, what, root)
        found.only_read(why)
    return found


def _refuse_unless_dispensable(root: str, error: OSError, read_only: bool | Literal["auto"]) -> None:
    """Raise ``error``, of a directory that cannot be opened, unless the program does without it."""
    if read_only is True and isinstance(error, FileNotFoundError):
        _log.warning("%s: there is no cache to read here, so every lookup misses", root)
    elif read_only is not False and error.errno in DISK_FULL:
        warn_once(f"{in_words(error)}; this program stores nothing")
    elif not isinstance(error, PermissionError) or isinstance(error, UnsafeCacheDirError):
        raise error
    else:
        seen = nearest_seen(root if error.filename is None else os.fsdecode(error.filename))
        why = f"{error.strerror}: {seen} is {ownership(seen)}; run lockcache doctor on the cache directory"
        raise PermissionError(error.errno, why, root) from error


class DroppingWriter(EntryWriter):
    """Stores nothing, for a cache that only reads; notes which entries would have been replaced."""

    __slots__ = ("_superseded",)

    def __init__(self, directory: CacheDirectory, superseded: set[str]) -> None:
        """``superseded`` gets the names of entries that must not be read any more."""
        super().__init__(directory, 0.0, fsync=False, use_record_files=False)
        self._superseded = superseded

    def store(self, name: str, payload: bytes, record: Record, note: bytes = b"", *, replaces: bool = True) -> Written:
        """Drop the write."""
        layout = self.directory.layout
        if has_entry(layout, name) or has_seed(layout):
            self._superseded.add(name)
        return Written(Outcome.DROPPED, Evicted(), f"the directory is only read ({self.directory.why_read_only})")

    def store_copy(self, name: str, loaded: tuple[bytes, bytes]) -> Written:
        """Drop a copy of what a server has. It replaces nothing, so nothing is hidden."""
        return Written(Outcome.DROPPED, Evicted(), "the directory is only read")


def renew(reader: EntryReader, renewed: set[str], name: str, code: bytes, label: str) -> None:
    """Note that this process stores ``name``, and report it if compiling again gave other code than is stored.

    For ``$LOCKCACHE_RECACHE``, before the write. The look at what is stored counts nothing.
    """
    if name in renewed:
        return
    renewed.add(name)
    older = reader.load(name)
    if older is None:
        reader.misses -= 1
        return
    reader.take_back(older)
    if older[0] != code:
        words = "%s (%s): compiled again, it is another code (%d bytes) than was stored (%d bytes), which it replaces"
        _log.warning(words, label or "an entry", name[:16], len(code), len(older[0]))
