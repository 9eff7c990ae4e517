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
from collections.abc import Callable, Collection
from typing import Final, Literal

from lockcache.arguments import is_disabled, warn_once
from lockcache.default_directory import NOWHERE
from lockcache.errors import UnsafeCacheDirError, in_words
from lockcache.filestream import CacheDirectory, EntryWriter, Outcome, Writer, Written, has_seed
from lockcache.filestream.accounting import StatedPolicy, StatePage, has_entry
from lockcache.filestream.disk import DISK_FULL, Layout, Space, nearest_seen, ownership
from lockcache.filestream.entry import EntryReader, Record
from lockcache.filestream.eviction import Evicted

_log = logging.getLogger("lockcache")

_DENIED: Final = (errno.EACCES, errno.EPERM, errno.EROFS)

Load = Callable[[str], "tuple[bytes, bytes] | None"]


class _NoDirectory(CacheDirectory):
    """The directory of a cache that is off, that has no place, or that only reads and finds none: empty, for good."""

    is_nowhere = True

    def __init__(self) -> None:
        self.layout = Layout(NOWHERE, is_shared=False)
        self.layout.space = Space(1)
        self.is_shared = False
        self.policy = StatedPolicy(self.layout)
        self.only_read()

    def refuse_if_read_only(self) -> None:
        """Do nothing: what is not there may be removed."""

    def usage(self) -> StatePage:
        """Raise :class:`PermissionError`: nothing is accounted for."""
        raise PermissionError(errno.EROFS, "this cache has no directory", self.layout.root)

    def close(self) -> None:
        """Do nothing: nothing is open."""


def open_in_mode(
    root: str,
    lock_timeout_seconds: float,
    *,
    group: bool | str | None,
    first_cap_bytes: int | None,
    read_only: bool | Literal["auto"],
) -> CacheDirectory:
    """Open a directory as the program and the environment ask for.

    Raises what opening it raises; with ``read_only=False`` :class:`PermissionError` where it may only be read.
    """
    if is_disabled() or root == NOWHERE:
        return _NoDirectory()
    only_reads = read_only is True
    try:
        found = CacheDirectory(
            root, lock_timeout_seconds, group=group, first_cap_bytes=first_cap_bytes, is_read_only=only_reads
        )
    except OSError as error:
        return _without(root, error, read_only)
    if not only_reads:
        try:
            found.attached()
        except OSError as error:
            if error.errno not in _DENIED:
                return found  # a full disk, or a first count by another process: over soon
            if read_only is False:
                what = "this directory may be read and not written, and read_only=False asks for both"
                raise PermissionError(error.errno, what, root) from error
            found.only_read(in_words(error))
    return found


def _without(root: str, error: OSError, read_only: bool | Literal["auto"]) -> CacheDirectory:
    """Returns what stands for a directory that cannot be opened. Raises ``error`` unless a program does without it."""
    if read_only is True and isinstance(error, FileNotFoundError):
        _log.warning("%s: there is no cache to read here, so every lookup misses", root)
        return _NoDirectory()
    if read_only is not False and error.errno in DISK_FULL:
        warn_once(f"{in_words(error)}; this program stores nothing")
        return _NoDirectory()
    if not isinstance(error, PermissionError) or isinstance(error, UnsafeCacheDirError):
        raise error
    seen = nearest_seen(root if error.filename is None else os.fsdecode(error.filename))
    why = f"{error.strerror}: {seen} is {ownership(seen)}; run lockcache doctor on the cache directory"
    raise PermissionError(error.errno, why, root) from error


def in_mode(reader: EntryReader, load: Load, writer: Writer, renewed: Collection[str] | None) -> tuple[Load, Writer]:
    """Returns the reader and the writer of the directory of ``writer`` in its mode, given those of the usual mode.

    ``renewed``: the names that this process has stored, if nothing else is to be read.
    """
    if writer.directory.is_read_only:
        dropping = DroppingWriter(writer.directory)
        load, writer = _Hiding(reader, load, dropping.is_hidden).load, dropping
    if renewed is not None:
        load = _Hiding(reader, load, lambda name: name not in renewed).load
    return load, writer


class DroppingWriter(EntryWriter):
    """Stores nothing, for a cache that only reads; notes which entries would have been replaced."""

    __slots__ = ("_superseded",)

    def __init__(self, directory: CacheDirectory) -> None:
        super().__init__(directory, 0.0, fsync=False, use_record_files=False)
        self._superseded: set[str] = set()

    def is_hidden(self, name: str) -> bool:
        """Returns whether an entry must not be read, because this object wrote or removed it since."""
        return self.directory.is_nowhere or name in self._superseded

    def store(self, name: str, payload: bytes, record: Record, note: bytes = b"", *, replaces: bool = True) -> Written:
        """Drop the write."""
        layout = self.directory.layout
        if has_entry(layout, name) or has_seed(layout):
            self._superseded.add(name)
        return Written(Outcome.DROPPED, Evicted(), f"the directory is only read ({self.directory.why_read_only})")

    def store_copy(self, name: str, loaded: tuple[bytes, bytes]) -> Written:
        """Drop a copy of what a server has. It replaces nothing, so nothing is hidden."""
        return Written(Outcome.DROPPED, Evicted(), "the directory is only read")

    def remove(self, name: str) -> bool:
        """Raise :class:`PermissionError`; where there is no directory, return that there was no entry."""
        return not self.directory.is_nowhere and super().remove(name)


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


class _Hiding:
    """Reads as ``load`` does, but entries that ``is_hidden`` names are misses."""

    __slots__ = ("_is_hidden", "_load", "_reader")

    def __init__(self, reader: EntryReader, load: Load, is_hidden: Callable[[str], bool]) -> None:
        self._reader = reader
        self._load = load
        self._is_hidden = is_hidden

    def load(self, name: str) -> tuple[bytes, bytes] | None:
        """Load like :meth:`lockcache.filestream.entry.Loader.load`; a hidden entry is a miss."""
        if self._is_hidden(name):
            self._reader.misses += 1
            return None
        return self._load(name)
