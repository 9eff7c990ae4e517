# SPDX-License-Identifier: Apache-2.0
"""The file of closures, in which processes of a directory save for each other what headers include.

Keeps invariant 1 (a hit is whole) by the digest of an entry, or its signature where entries are signed: a slot counts
if it is a whole record of what is behind it under the name that is asked for. So nothing is locked, a slot is written
in place, and what a death, a full disk or another writer leaves of one is a slot less. The name chooses the slot, and
later ones replace earlier ones; what was read of headers (:mod:`lockcache.headers`) is read again then.

The file has slots, with one closure each, and holes where nothing was stored. It takes at most a 64th of the cap and
32 MiB, which the cap does not count.
"""

from __future__ import annotations

import os
import time
from typing import TYPE_CHECKING, Final

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

#: CUB with all that it includes takes 15 KiB.
_SLOT_BYTES: Final = 32 * 1024
_MOST_SLOTS: Final = 1024
_PART_OF_CAP: Final = 64
#: Their daemons say for how long the kernel need not ask about a file, opened or not (sshfs: 20 s).
_ANSWERED_FROM_MEMORY: Final = ("fuse", "virtiofs")
#: Their ctime is the mtime, which anybody sets, and it has fractions of a second: erofs images, and disks of cameras.
_WITHOUT_CTIME: Final = ("erofs", "exfat", "vfat", "msdos")


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
                slot = os.pread(fd, _SLOT_BYTES, self._place(name))
        except OSError:
            return None
        head, rest = slot[:HEAD_BYTES], slot[HEAD_BYTES:]
        if len(head) < HEAD_BYTES:
            return None
        content = rest[: unpack(head).payload_bytes]
        whole = is_whole if self._keys is None else self._keys.is_whole
        return content if whole(head, name.hex(), content) else None

    def store(self, name: bytes, content: bytes) -> None:
        """Keep it if there is room, and the directory may be written."""
        layout = self._directory.layout
        if not self._slots or self._directory.is_read_only or len(content) > _SLOT_BYTES - HEAD_BYTES:
            return
        sign = pack if self._keys is None else self._keys.pack
        slot = sign(name.hex(), content, Record(len(content), time.time_ns(), 0, b"")) + content
        try:
            refuse_symlink(layout.own)
            with layout.reach.open_or_create(layout.closures, UPDATE) as fd:
                if is_alone(fd):
                    os.pwrite(fd, slot, self._place(name))
                else:
                    layout.reach.unlink(layout.closures)  # only this name of it, and the next one finds a new file
        except OSError:
            return

    def clear(self) -> None:
        """Forget all of them."""
        try:
            self._directory.layout.reach.unlink(self._directory.layout.closures)
        except OSError:
            return

    def _place(self, name: bytes) -> int:
        return int.from_bytes(name[-4:], "big") % self._slots * _SLOT_BYTES
