# SPDX-License-Identifier: Apache-2.0
"""The place of an entry's record, which is its attribute, a file next to it, or both; and the cost that it states.

One place for what readers, writers, verification and inspection have to agree on. A record that is found here is not
verified: invariant 1 (a hit is whole) is kept by the code that compares the digest. In a directory that a group shares,
another member may put anything in a record file's place, a hole of a terabyte for one: :func:`read_record_file` reads
no more than a record file can hold.
"""

from __future__ import annotations

import errno
import os
import stat
from dataclasses import dataclass, field
from typing import Final

from lockcache.filestream.accounting import Found
from lockcache.filestream.disk import READ, Descriptor, Layout, read_small
from lockcache.filestream.entry.codec import (
    HEAD_BYTES,
    LARGEST_RECORD_BYTES,
    XATTR,
    is_tail_beside,
    split_records,
    stated_cost,
    with_tails,
)

#: What a file system answers where there is no attribute, or where there are none at all. Anything else says nothing of
#: the entry, which must not pass for one without a record.
NO_ATTRIBUTE: Final = (errno.ENODATA, errno.ENOTSUP, errno.EOPNOTSUPP, errno.ENOSYS, errno.EPERM)

# During a publish a record file holds two records, the new one and the one that it replaces.
_LARGEST_FILE_BYTES: Final = 2 * LARGEST_RECORD_BYTES

# Looked up once: with record files these are in each hit, and a sweep of a million entries asks for 300,000 prices.
_getxattr, _fstat, _read = os.getxattr, os.fstat, os.read


def find_records(layout: Layout, entry: int | str, name: str) -> list[bytes]:
    """Returns the candidates for the record (head and tail) of an entry, open or by its path; none if it has none.

    There is one, or several during a publish, of which at most one fits the payload. A record file is opened
    only where it is needed. Raises :class:`OSError`.
    """
    try:
        head = _getxattr(entry, XATTR) if isinstance(entry, int) else _getxattr(entry, XATTR, follow_symlinks=False)
    except OSError as error:
        if error.errno not in NO_ATTRIBUTE:
            raise
        file = read_record_file(layout, name)
        return [] if file is None else split_records(file)
    if is_tail_beside(head):
        return with_tails(head, read_record_file(layout, name) or b"")
    return [head]


def _open_record(layout: Layout, name: str) -> Descriptor:
    path = layout.record(name)
    try:
        return layout.reach.open(path, READ)
    except FileNotFoundError:
        # This host may not have seen that another one has made the folders, or the file.
        if not layout.hosts.may_have_since(path):
            raise
        return layout.reach.open(path, READ)


def read_record_file(layout: Layout, name: str) -> bytes | None:
    """Returns a record file, or ``None`` where there is none.

    What is not a plain file, or longer than a record file can be, is damage, and empty. Raises :class:`OSError`, also
    for a symlink.
    """
    try:
        file = _open_record(layout, name)
    except (FileNotFoundError, NotADirectoryError):
        return None
    with file as fd:
        status = _fstat(fd)
        is_plausible = stat.S_ISREG(status.st_mode) and status.st_size <= _LARGEST_FILE_BYTES
        return _read(fd, status.st_size) if is_plausible else b""


@dataclass(frozen=True)
class Prices:
    """Compile costs as records state them, read without the payload. For one ranking."""

    layout: Layout
    # Which shards have record files.
    _has_files: dict[str, bool] = field(default_factory=dict, init=False)

    def cost_ns(self, found: Found) -> int:
        """Returns the entry's cost in ns, 0 for unknown. Raises nothing: the entry may be gone.

        A record that is visibly damaged (it is not understood, or is of a payload of another length), or that states
        an impossible cost, counts as unknown: so a flipped bit can at worst move one entry in an order. One
        ``getxattr``, by path and following no symlink; a record file is opened only where there are any.
        """
        layout, name = self.layout, found.name
        has_file = self._has_files.get(name[:2])
        if has_file is None:
            has_file = self._has_files[name[:2]] = os.path.isdir(f"{layout.records}/{name[:2]}")
        try:
            head = _getxattr(f"{layout.entries}/{name[:2]}/{name[2:]}", XATTR, follow_symlinks=False)
        except OSError:
            head = self._head_in_file(name) if has_file else b""
        return stated_cost(head, found.stored_bytes, has_file=has_file)

    def _head_in_file(self, name: str) -> bytes:
        try:
            return read_small(self.layout, self.layout.record(name), HEAD_BYTES)
        except OSError:
            return b""
