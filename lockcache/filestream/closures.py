# SPDX-License-Identifier: Apache-2.0
"""The file of closures, in which processes of a directory save for each other what headers include.

Keeps invariant 1 (a hit is whole) by the digest of an entry, or its signature where entries are signed: a slot counts
if it is a whole record of what is behind it under the name that is asked for. So nothing is locked, a slot is written
in place, and what a death, a full disk or another writer leaves of one is a slot less. The name chooses the slot, and
later ones replace earlier ones; what was read of headers (:mod:`lockcache.headers`) is read again then. Of processes
that want one that is missing, one reads the headers, and the others wait for it as for an entry.

The file has slots, and holes where nothing was stored. A closure takes one slot, or a few that follow each other, up to
the last slot and on from the first. It takes at most a 64th of the cap and 32 MiB, which the cap does not count.
"""

from __future__ import annotations

import contextlib
import os
import threading
import time
from collections.abc import Iterator
from typing import TYPE_CHECKING, Final

from lockcache.filestream.compile_once import CompileOnce, LeaseTurn
from lockcache.filestream.disk import (
    READ,
    UPDATE,
    is_alone,
    is_network_mount,
    mount_of,
    refuse_symlink,
)
from lockcache.filestream.entry import HEAD_BYTES, KeyRing, Record, is_whole, pack, unpack

if TYPE_CHECKING:
    from lockcache.filestream.directory import CacheDirectory
    from lockcache.headers import Evidence

#: A header of CUB with all that it includes takes 12 KiB, one that includes Thrust 67.
_SLOT_BYTES: Final = 32 * 1024
_LARGEST_BYTES: Final = 8 * _SLOT_BYTES
_MOST_SLOTS: Final = 1024
_PART_OF_CAP: Final = 64
#: Their daemons say for how long the kernel need not ask about a file, opened or not (sshfs: 20 s).
_ANSWERED_FROM_MEMORY: Final = ("fuse", "virtiofs")
#: Their ctime is the mtime, which anybody sets, and it has fractions of a second: erofs images, and disks of cameras.
_WITHOUT_CTIME: Final = ("erofs", "exfat", "vfat", "msdos")
#: To read the headers of a toolkit takes a second. Who waits longer for a process that does reads them as well.
_TURN_SECONDS: Final = 10.0


class ClosureFile:
    """The closures of one directory (:class:`lockcache.headers.ClosureStore`)."""

    __slots__ = ("_directory", "_keys", "_slots")

    def __init__(self, directory: CacheDirectory, keys: KeyRing | None) -> None:
        self._directory, self._keys = directory, keys
        cap = directory.policy.latest.max_size_bytes
        most = _MOST_SLOTS if cap is None else cap // _PART_OF_CAP // _SLOT_BYTES
        self._slots = min(most, _MOST_SLOTS)

    def evidence(self, path: bytes) -> Evidence:
        """Returns what it takes on the file system that a file is on to notice each change of it."""
        from lockcache.headers import Evidence  # its caller has it: others do not need it

        mount = mount_of(os.fsdecode(path))  # None without /proc: taken for a disk of this machine, as elsewhere
        if mount is None:
            return Evidence.STAT
        if mount.kind.startswith((*_ANSWERED_FROM_MEMORY, *_WITHOUT_CTIME)):
            return Evidence.CONTENT
        return Evidence.OPEN if is_network_mount(mount) else Evidence.STAT

    def load(self, name: bytes) -> bytes | None:
        """Returns what somebody stored under a name of 32 bytes, whole."""
        layout = self._directory.layout
        if not self._slots:
            return None
        try:
            refuse_symlink(layout.own)
            with layout.reach.open(layout.closures, READ) as fd:
                found = os.pread(fd, _SLOT_BYTES, self._place(name))
                if len(found) < HEAD_BYTES:
                    return None
                size_bytes = min(HEAD_BYTES + unpack(found[:HEAD_BYTES]).payload_bytes, self._most_bytes)
                for at in self._places(name, size_bytes)[1:]:
                    found += os.pread(fd, _SLOT_BYTES, at)
        except OSError:
            return None
        head, content = found[:HEAD_BYTES], found[HEAD_BYTES:size_bytes]
        whole = is_whole if self._keys is None else self._keys.is_whole
        return content if whole(head, name.hex(), content) else None

    def store(self, name: bytes, content: bytes) -> None:
        """Keep it if there is room, and the directory may be written."""
        layout = self._directory.layout
        if not self._may_store(len(content)):
            return
        sign = pack if self._keys is None else self._keys.pack
        record = sign(name.hex(), content, Record(len(content), time.time_ns(), 0, b"")) + content
        try:
            refuse_symlink(layout.own)
            with layout.reach.open_or_create(layout.closures, UPDATE) as fd:
                if is_alone(fd):
                    for number, at in enumerate(self._places(name, len(record))):
                        os.pwrite(fd, record[number * _SLOT_BYTES : (number + 1) * _SLOT_BYTES], at)
                else:
                    layout.reach.unlink(layout.closures)  # only this name of it, and the next one finds a new file
        except OSError:
            return

    @contextlib.contextmanager
    def turn(self, name: bytes, stale: bytes | None) -> Iterator[bytes | None]:
        """Enter the caller's turn, after those who have it before; see :class:`lockcache.headers.ClosureStore`."""
        # A signal handler may want what its own thread is finding out, and would wait for itself.
        mine = _names_of_thread()
        if name in mine or not self._may_store(1):
            yield None
            return
        mine.add(name)
        try:
            outcome = _Turns(self, stale).wait_or_turn(name.hex(), "headers")
            if not isinstance(outcome, LeaseTurn):
                yield outcome[0]
                return
            try:
                yield None
            finally:
                is_stored = self.load(name) not in (None, stale)
                outcome.end(not is_stored, was_stored=is_stored)
        finally:
            mine.discard(name)

    def clear(self) -> None:
        """Forget all of them."""
        try:
            self._directory.layout.reach.unlink(self._directory.layout.closures)
        except OSError:
            return

    @property
    def _most_bytes(self) -> int:
        return min(_LARGEST_BYTES, self._slots * _SLOT_BYTES)

    def _may_store(self, size_bytes: int) -> bool:
        return not self._directory.is_read_only and HEAD_BYTES + size_bytes <= self._most_bytes

    def _places(self, name: bytes, size_bytes: int) -> list[int]:
        """Returns the places of the slots of so many bytes."""
        first = self._place(name)
        return [(first + more) % (self._slots * _SLOT_BYTES) for more in range(0, size_bytes, _SLOT_BYTES)]

    def _place(self, name: bytes) -> int:
        return int.from_bytes(name[-4:], "big") % self._slots * _SLOT_BYTES


_thread: Final = threading.local()


def _names_of_thread() -> set[bytes]:
    """Returns the names for which this thread waits, or has the turn."""
    names: set[bytes] = _thread.__dict__.setdefault("names", set())
    return names


class _Turns(CompileOnce):
    """Whose turn it is to find out what belongs into a slot."""

    def __init__(self, closures: ClosureFile, stale: bytes | None) -> None:
        self._closures, self._stale = closures, stale
        super().__init__(closures._directory.layout, self.look, _Uncounted(), _TURN_SECONDS)

    def look(self, name: str, *, is_last: bool = False) -> tuple[bytes, bytes] | None:
        """Returns what is stored by now."""
        found = self._closures.load(bytes.fromhex(name))
        return None if found is None or found == self._stale else (found, b"")


class _Uncounted:
    """Nothing is counted: neither entries nor compilations are waited for."""

    misses = 0

    def note_wait(self, name: str, seconds: float) -> None:
        """Count nothing."""
