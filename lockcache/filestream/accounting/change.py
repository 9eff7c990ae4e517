# SPDX-License-Identifier: Apache-2.0
"""A change of one shard's files under its lock: what they count for before, and what is accounted for after it.

Keeps the accounting's half of invariant 3 (hard cap) and 5 (death is free) for all that put, remove or move files of
entries: the block of a :class:`ShardChange` notes what it freed after it freed it. So an error, an interrupt or a death
in between leaves too much accounted for, never too little. What the shard's folders grew and shrank by is measured.
"""

from __future__ import annotations

import errno
import os
import stat
from types import TracebackType
from typing import Final, Protocol

from lockcache.filestream.accounting.state import space_of
from lockcache.filestream.disk import Layout

# ELOOP: a symlink to itself for a folder.
_NO_FILE: Final = (errno.ENOENT, errno.ENOTDIR, errno.ELOOP)


class Account(Protocol):
    """An object by which a shard is accounted for: the state page, or a reservation on it."""

    def add_locked(self, shard: int, bytes_: int, entries: int, known: bytes | tuple[int, int]) -> tuple[int, int]:
        """See :meth:`.StatePage.add_locked`."""


class ShardChange:
    """What one block changes in a shard: ``with change:``. Requires: shard lock, for as long as this is used.

    The block fills in :attr:`bytes` and :attr:`entries`: the difference that it makes to what files count for, without
    folders. It is accounted for when the block ends, also by an error. Another block may follow.
    """

    def __init__(
        self, layout: Layout, account: Account, shard: int, known: bytes = b"", *, makes: bool = False
    ) -> None:
        """See what other hosts did to the shard.

        ``known``: what :meth:`.CacheDirectory.hold_shard` returned. ``makes``: a missing folder of entries will be
        wanted.
        """
        self.layout = layout
        self._account = account
        self._known: bytes | tuple[int, int] = known
        self.shard = shard
        #: How files count here.
        self.space = layout.space or space_of(layout)
        #: Whether the folder of entries was just made, so that there is nothing in it.
        self.is_new = layout.hosts.look_at_shard_locked(shard, makes=makes)
        folders: tuple[str, ...] = layout.shard_folders(shard)
        #: The folder of entries.
        self.entries_folder = folders[0]
        # Mostly there are no records, and no views either: then each change asks for one folder, and not for three.
        #: Whether there is a folder of records.
        self.has_records = os.access(folders[1], os.F_OK, effective_ids=True)
        self._measured = folders if self.has_records else folders[:1]

    def make_records(self) -> None:
        """Have the next block make the folder of records, which is measured then."""
        self._measured = self.layout.shard_folders(self.shard)

    def account_for(self, bytes_: int, entries: int = 0) -> None:
        """Account for so much more, within the block or outside of it."""
        self._known = self._account.add_locked(self.shard, bytes_, entries, self._known)

    def bytes_of(self, name: str, path: str) -> int | None:
        """Returns the bytes that an entry counts for; ``None`` if there is no entry that a scan would count.

        ``path``: that of the entry. Raises :class:`OSError` where that is not known: an entry that should be removed
        must not be taken for absent, and then served.
        """
        try:
            status = os.lstat(path)
        except OSError as error:
            if error.errno not in _NO_FILE:
                raise
            return None
        if not stat.S_ISREG(status.st_mode):
            return None
        taken = self.space.of_file(status)
        if self.has_records:
            try:
                taken += self.space.of_file(os.lstat(self.layout.record(name)))
            except OSError as error:
                if error.errno not in _NO_FILE:
                    raise
        return taken

    def __enter__(self) -> ShardChange:
        self.bytes = self.entries = 0
        self._before_bytes = self.space.of_shard_folders(self._measured)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        bytes_ = self.bytes + self.space.of_shard_folders(self._measured) - self._before_bytes
        if bytes_ or self.entries:
            self._known = self._account.add_locked(self.shard, bytes_, self.entries, self._known)
