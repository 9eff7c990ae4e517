# SPDX-License-Identifier: Apache-2.0
"""Verifying what is on disk: every byte of an entry against its record, without anybody having asked for it.

Keeps invariant 1 (a hit is whole) ahead of its readers: what is corrupt is found before a job misses it, and, with
``repair``, moved into :mod:`.quarantine`. Verifying does not count as a use: entries are opened with O_NOATIME. Where
that is refused (an entry of another owner, for a user other than root), reading would count as a use, so the entry is
skipped, unless its file system records no uses or the caller allows it.

Gives no false alarm: bytes are read without a lock, piece by piece, and an entry is corrupt only if, under its shard's
lock, its name still leads to the file that was read, and its record is still the one that was read. An entry that was
replaced, evicted or half published meanwhile is read again. Without a lock (in a read-only directory), two reads have
to agree. Not promised: that what is whole now stays so.
"""

from __future__ import annotations

import errno
import os
import stat
import time
from collections.abc import Generator
from functools import partial
from hashlib import sha256
from typing import Any, Final, NamedTuple, Protocol

from lockcache.filestream.accounting import ShardChange, StatePage, space_of
from lockcache.filestream.directory import CacheDirectory
from lockcache.filestream.disk import (
    FOLDER,
    NOATIME,
    READ,
    Descriptor,
    Layout,
    is_entry_file,
    is_hole,
    refuse_symlink,
)
from lockcache.filestream.entry import (
    CORRUPT,
    PASSED_OVER,
    UNREADABLE,
    UNVERIFIED,
    WHOLE,
    WRONG,
    EntryState,
    KeyRing,
    digest_payload,
    find_records,
    is_of_another_version,
    is_signed,
    judge_entry,
    needs_payload,
    remove_locked,
)
from lockcache.filestream.repair.quarantine import make_place, quarantine_locked

_NEWER: Final = "stored by a newer version of lockcache"

_NAME_ONLY: Final[int] = getattr(os, "O_PATH", 0) | os.O_CLOEXEC | os.O_NOFOLLOW
_STATES_NO_USES: Final = os.ST_NOATIME | os.ST_RDONLY

# A writer in a loop replaces an entry every 100 us; so many reads in the middle of a publish are not an accident.
_ATTEMPTS: Final = 5
# A publish takes some 100 us, so a second look after this long meets another state.
_PAUSE_SECONDS: Final = 0.01

# Errors of this process, which say nothing about the entry.
_OUT_OF_RESOURCES: Final = (errno.EMFILE, errno.ENFILE, errno.ENOMEM)
# Replaced or removed while we look, or a shard that is.
_GONE: Final = (errno.ESTALE, errno.ENOENT, errno.ENOTDIR)


class Verdict(NamedTuple):
    """The verdict on one entry, and what was done about it."""

    name: str
    state: EntryState
    size_bytes: int = 0
    #: For corrupt ones a word of :data:`.entry.verdict.WRONG`; else why there is no verdict.
    why: str = ""
    #: Where a corrupt entry was moved.
    moved_to: str = ""
    #: Whether it is gone from ``entries/``: moved, or removed where it could not be kept.
    is_repaired: bool = False
    #: Why it could not be repaired.
    error: str = ""

    @property
    def in_words(self) -> str:
        """The fault in words for people."""
        return WRONG.get(self.why, self.why)


def entry_names(layout: Layout, shard: int) -> list[str]:
    """Returns the names of entries in one shard, whatever kind of file they have, in order. Raises :class:`OSError`."""
    refuse_symlink(layout.entries)
    try:
        opened = layout.reach.open(layout.entry_shard(shard), FOLDER)
    except (FileNotFoundError, NotADirectoryError):
        return []
    with opened as fd:
        return sorted(f"{shard:02x}{file}" for file in os.listdir(fd) if is_entry_file(file))


def verify_entry(directory: CacheDirectory, name: str, **how: Any) -> Verdict | None:
    """Verify an entry like :func:`verify_in_steps`, in one step."""
    steps = verify_in_steps(directory, name, **how)
    while True:
        try:
            next(steps)
        except StopIteration as end:
            verdict: Verdict | None = end.value
            return verdict


class Verifiable(Protocol):
    """The entries of a directory whose files say what they should be."""

    @property
    def layout(self) -> Layout:
        """The layout of lockcache's own files."""

    def names(self, shard: int) -> list[str]:
        """Returns the names that begin with the two hex digits of a shard, in order. Raises :class:`OSError`."""

    def verify(self, name: str) -> Generator[int, None, Verdict | None]:
        """Verify an entry like :func:`verify_in_steps`, and put a corrupt one out of the way if that was asked for."""


class OwnEntries:
    """The entries of lockcache's own layout, and cuda.core's: corrupt ones go into quarantine."""

    def __init__(
        self, directory: CacheDirectory, *, repair: bool = True, may_use: bool = False, keys: KeyRing | None = None
    ) -> None:
        self.layout = directory.layout
        self._verify = partial(verify_in_steps, directory, repair=repair, may_use=may_use, keys=keys)

    def names(self, shard: int) -> list[str]:
        return entry_names(self.layout, shard)

    def verify(self, name: str) -> Generator[int, None, Verdict | None]:
        return self._verify(name)


def verify_in_steps(
    directory: CacheDirectory,
    name: str,
    *,
    repair: bool = False,
    may_use: bool = False,
    keys: KeyRing | None = None,
) -> Generator[int, None, Verdict | None]:
    """Returns the verdict on one entry; ``None`` if there is no such entry. Yields the bytes that each step read.

    With ``repair`` a corrupt one is moved into quarantine. With ``keys`` signatures are verified; without, entries that
    are signed are not. With ``may_use`` entries of others are read even where that counts as a use. May be closed, or
    left alone for a while, between steps: no lock is held then, only the entry is open. Raises :class:`OSError` only
    for what says nothing of the entry (no descriptors left).
    """
    suspected: object = None
    for _ in range(_ATTEMPTS):
        try:
            entry = _OpenEntry(directory.layout, name, may_use=may_use, keys=keys)
        except FileNotFoundError:
            return None
        except OSError as error:
            if error.errno not in _GONE:
                raise
            continue
        try:
            found = yield from entry.look()
            if found.state in (WHOLE, PASSED_OVER):
                return found
            verdict = _confirm(directory, entry, found, suspected, repair=repair)
            if verdict is not None:
                return verdict
            suspected = entry.inode, found
        except OSError as error:
            if error.errno not in _GONE:
                raise
        finally:
            entry.close()
    return Verdict(name, PASSED_OVER, why="replaced each time that it was looked at")


def _confirm(
    directory: CacheDirectory, entry: _OpenEntry, found: Verdict, suspected: object, *, repair: bool
) -> Verdict | None:
    """Returns the verdict ``found`` if it still holds, after repairs if they are wanted; ``None`` to look again."""
    if found.state != CORRUPT:
        # Needs no lock: a payload never stands under its name before its record does.
        return found if entry.is_as_it_was() else None
    may_keep = repair and make_place(directory, _bytes_of(directory.layout, found))
    lock, usage = directory.locks[int(found.name[:2], 16)], None
    try:
        if repair:
            hold, usage, _ = directory.hold_shard(int(found.name[:2], 16))
        else:
            hold = lock.hold(lock.timeout_seconds)
    except OSError as error:
        if not entry.is_as_it_was() or suspected != (entry.inode, found):
            time.sleep(_PAUSE_SECONDS)
            return None
        return found._replace(error=str(error) if repair else "")
    try:
        if not entry.is_as_it_was():
            return None
        return found if usage is None else _repair_locked(directory, usage, found, may_keep=may_keep)
    finally:
        hold.release()


def _repair_locked(directory: CacheDirectory, usage: StatePage, found: Verdict, *, may_keep: bool) -> Verdict:
    """Requires: shard lock."""
    try:
        if may_keep:
            moved_to = quarantine_locked(directory, usage, found.name, found.why)
            return found._replace(moved_to=moved_to or "", is_repaired=True)
        change = ShardChange(directory.layout, usage, int(found.name[:2], 16))
        return found._replace(is_repaired=remove_locked(change, found.name))
    except OSError as error:
        return found._replace(error=str(error))


def _bytes_of(layout: Layout, found: Verdict) -> int:
    """Returns what an entry counts for, record file included."""
    space = space_of(layout)
    try:
        record = space.of_file(os.lstat(layout.record(found.name)))
    except (FileNotFoundError, NotADirectoryError):
        record = 0
    return space.of_bytes(found.size_bytes) + record


class _OpenEntry:
    """An entry's file, held open: its inode is nobody else's for as long."""

    __slots__ = ("_error", "_file", "_keys", "_layout", "_name", "_path", "_records", "_refusal", "_size", "inode")

    def __init__(self, layout: Layout, name: str, *, may_use: bool, keys: KeyRing | None = None) -> None:
        """Open the entry. Raises :class:`FileNotFoundError` if there is none, and errors that say nothing about it."""
        self._keys = keys
        self._layout, self._name, self._path = layout, name, layout.entry(name)
        self._error = self._refusal = ""
        self._records: list[bytes] = []
        self._size = self.inode = 0
        self._file = self._open(may_use)

    @property
    def _fd(self) -> int:
        """-1 where it cannot be opened."""
        return self._file.number

    def look(self) -> Generator[int, None, Verdict]:
        """Returns the verdict, as far as it is known without a lock. Yields the bytes that each step read.

        Raises :class:`OSError` for what calls for another look (ESTALE), and what says nothing of it.
        """
        if self._fd < 0:
            return Verdict(self._name, UNREADABLE, why=self._error)
        status = os.fstat(self._fd)
        self.inode, self._size = status.st_ino, status.st_size
        is_plain = stat.S_ISREG(status.st_mode)
        if not is_plain or is_hole(status):
            return Verdict(self._name, CORRUPT, self._size * is_plain, "grown" if is_plain else "foreign")
        if self._error:
            return Verdict(self._name, UNREADABLE, self._size, self._error)
        if self._refusal:
            return Verdict(self._name, PASSED_OVER, self._size, self._refusal)
        try:
            return (yield from self._look_inside())
        except OSError as error:
            if error.errno in _GONE or error.errno in _OUT_OF_RESOURCES:
                raise
            return Verdict(self._name, UNREADABLE, self._size, str(error.strerror))

    def is_as_it_was(self) -> bool:
        """Returns whether the name still leads to this file, and its record is still the one that was read."""
        if self._fd < 0:
            return True
        try:
            now, here = os.lstat(self._path), os.fstat(self._fd)
            if not os.path.samestat(now, here) or here.st_size != self._size:
                return False
            return not self._records or find_records(self._layout, self._fd, self._name) == self._records
        except OSError as error:
            if error.errno in _GONE:
                return False
            raise

    def close(self) -> None:
        """Let go of it."""
        self._file.close()

    def _look_inside(self) -> Generator[int, None, Verdict]:
        self._records = records = find_records(self._layout, self._fd, self._name)
        if self._keys is not None and any(map(is_signed, records)):
            return (yield from self._look_at_signature(self._keys))
        digest = b""
        if needs_payload(records, self._size):
            digest = yield from digest_payload(self._fd, self._size)
        wrong = judge_entry(records, self._name, self._size, digest)
        if not wrong:
            why = "not signed, so not served where keys are" if self._keys is not None else ""
            return Verdict(self._name, WHOLE if records and not why else UNVERIFIED, self._size, why)
        if wrong == "record" and is_of_another_version(records, self._name, digest):
            return Verdict(self._name, UNVERIFIED, self._size, _why_unverified(records))
        return Verdict(self._name, CORRUPT, self._size, wrong)

    def _look_at_signature(self, keys: KeyRing) -> Generator[int, None, Verdict]:
        digest = b""
        if needs_payload(self._records, self._size):
            digest = yield from digest_payload(self._fd, self._size, sha256)
        if any(keys.binds(blob, self._name, digest) for blob in self._records):
            return Verdict(self._name, WHOLE, self._size)
        if any(map(keys.knows, self._records)):
            return Verdict(self._name, CORRUPT, self._size, "digest")
        return Verdict(self._name, UNVERIFIED, self._size, "signed with a key that is not here")

    def _open(self, may_use: bool) -> Descriptor:
        try:
            return self._layout.reach.open(self._path, READ | NOATIME)
        except NotADirectoryError as error:
            raise FileNotFoundError(*error.args) from error
        except OSError as error:
            if error.errno in (*_OUT_OF_RESOURCES, *_GONE):
                raise
            if error.errno == errno.EPERM and NOATIME:
                return self._open_as_a_user(may_use)
            self._error = str(error.strerror)
        try:
            return self._layout.reach.open(self._path, _NAME_ONLY)  # a symlink, say; or nothing is known of it
        except FileNotFoundError:
            raise
        except OSError:
            return Descriptor()

    def _open_as_a_user(self, may_use: bool) -> Descriptor:
        file = self._layout.reach.open(self._path, READ)
        if not may_use and not os.fstatvfs(file.number).f_flag & _STATES_NO_USES:
            self._refusal = f"belongs to uid {os.fstat(file.number).st_uid}: reading it would count as a use of it"
        return file


def _why_unverified(records: list[bytes]) -> str:
    return "signed: it takes the key to tell" if any(map(is_signed, records)) else _NEWER
