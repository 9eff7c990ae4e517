# SPDX-License-Identifier: Apache-2.0
"""The state page on network file systems, whose clients remember what they have read and keep what is written.

Keeps the arithmetic of invariant 3 (hard cap) where other hosts write the page too, as far as locks work there.
"""

from __future__ import annotations

import errno
import math
import mmap
import os
import time
from typing import Final

from lockcache.filestream.accounting.state import PAGE_BYTES, Slot, StatePage
from lockcache.filestream.disk import UPDATE, Descriptor, Hosts, KeptDescriptor, is_fresh, opened

__all__ = ["DirectPage", "NfsPage", "ReopenedPage"]

_DIRECT: Final[int] = getattr(os, "O_DIRECT", 0)


class DirectPage(StatePage):
    """The page on a server whose client may read and write only whole blocks, O_DIRECT."""

    __slots__ = ()

    # The client of such a file system caches reads and writes of an open file, even if another file is locked.
    ways = (UPDATE | _DIRECT, UPDATE)

    def __init__(self, file: KeptDescriptor, hosts: Hosts) -> None:
        """Raises :class:`OSError` where it does."""
        super().__init__(file, hosts)
        self.slot(1)

    def read_if_at(self, path: str, shard: int) -> bytes | None:
        """Returns the whole page. A server says of one that another host has replaced that it has no name."""
        return self.image() if self.is_at(path) else None


class NfsPage(StatePage):
    """The page on NFS, where each look at its path is a call to the server. O_DIRECT takes any part of a file there."""

    __slots__ = ("_hosts", "_was_there_at")

    ways = DirectPage.ways

    def __init__(self, file: KeptDescriptor, hosts: Hosts) -> None:
        super().__init__(file, hosts)
        self._hosts = hosts
        self._was_there_at = -math.inf

    def is_at(self, path: str) -> bool:
        is_there = super().is_at(path)
        if not is_there:
            self._was_there_at = -math.inf
        return is_there

    def was_at(self, path: str) -> bool:
        """Returns what :meth:`is_at` does, or true if the server said so less than a second ago.

        So what is written within a second into a directory that was deleted or moved away, and that another process has
        made again, may not be accounted for, and exceed its cap, until a recount.
        """
        if is_fresh(self._was_there_at):
            return True
        asked_at = time.monotonic()
        # The client may remember that the page has its name, and not ask the server.
        self._hosts.look(os.path.dirname(path))
        is_there = self.is_at(path)
        if is_there:
            self._was_there_at = asked_at
        return is_there

    def read_if_at(self, path: str, shard: int) -> bytes | None:
        return self.whole() if self.was_at(path) else None

    def whole(self, size: int = PAGE_BYTES) -> bytes:
        image = self.image(size)
        if len(image) < PAGE_BYTES:
            raise OSError(errno.ESTALE, "the accounting page was cut")
        return image


class ReopenedPage(StatePage):
    """The page on a FUSE file system, opened for each use: what one host closes the next that opens it sees.

    While it stays open, JuiceFS keeps what was written to it to itself and shows what was read before, with O_DIRECT
    too; and GlusterFS takes a write of less than a block, O_DIRECT, and loses it. So a slot is written without, and
    the page read with it, whole and aligned, because GlusterFS remembers small files for a second. By the number, and
    not the name: the name may lead to a page that others are only making.
    """

    __slots__ = ()

    def slot(self, shard: int) -> Slot:
        return self.slots()[shard]

    read_if_at = DirectPage.read_if_at

    def add_locked(self, shard: int, bytes_: int, entries: int, known: bytes | tuple[int, int] = b"") -> Slot:
        # Of a page that was read whole the slot is in the midst.
        old = self.slot(shard) if isinstance(known, bytes) else known
        slot = Slot(old[0] + bytes_, old[1] + entries)
        self.set_locked(shard, slot)
        return slot

    def write(self, offset: int, content: bytes, *, fsync: bool = False) -> None:
        page = self._opened(os.O_RDWR)
        try:
            os.pwrite(page.number, content, offset)
            if fsync:
                os.fsync(page.number)
            page.end_writing()  # which is when it leaves this host
        finally:
            page.close()

    def image(self, size: int = PAGE_BYTES) -> bytes:
        image = self._reopened(size)
        if not image.startswith(self._beginning):
            self.refuse_other_file()
        return image

    def _reopened(self, size: int) -> bytes:
        try:
            with self._opened(os.O_RDONLY | _DIRECT) as fd, mmap.mmap(-1, size) as buffer:
                return buffer[: os.preadv(fd, [buffer], 0)]
        except OSError as error:
            if error.errno != errno.EINVAL:
                raise
        with self._opened(os.O_RDONLY) as fd:  # a mount that refuses O_DIRECT
            return os.pread(fd, size, 0)

    whole = image

    def _opened(self, flags: int) -> Descriptor:
        return opened(f"/proc/self/fd/{self._fd}", flags | os.O_CLOEXEC)
