"""Where an open entry's record is: in its attribute, in a file next to it, or half in each.

One place for what readers, writers, verification and inspection have to agree on. What is found here is
not proven: invariant 1 (a hit is whole) is kept by the code that compares the digest. In a directory that a group
shares, another member may put anything in a record file's place, a hole of a terabyte for one: :func:`read_record_file`
reads no more than a record file can hold.
"""

from __future__ import annotations

import errno
import os
import stat
from typing import Final

from lockcache.filestream.disk import READ, Layout, open_below
from lockcache.filestream.entry.codec import HEAD_BYTES, LARGEST_RECORD_BYTES, TAIL_BESIDE, XATTR, split_records

#: What a file system answers where there is no attribute, or where there are none at all. Anything else says nothing of
#: the entry, which must not pass for one without a record.
NO_ATTRIBUTE: Final = (errno.ENODATA, errno.ENOTSUP, errno.EOPNOTSUPP, errno.ENOSYS, errno.EPERM)

# During a publish a record file holds two records, the new one and the one that it replaces.
_LARGEST_FILE_BYTES: Final = 2 * LARGEST_RECORD_BYTES

# Looked up once: with record files these are in each hit.
_getxattr, _fstat, _read = os.getxattr, os.fstat, os.read


def find_records(layout: Layout, fd: int, name: str) -> list[bytes]:
    """What may be the record of an open entry, head and tail; none if it has none.

    One, or in the middle of a publish several, of which at most one is whole with the payload. A record file is opened
    only where it is needed. Raises :class:`OSError`.
    """
    try:
        head = _getxattr(fd, XATTR)
    except OSError as error:
        if error.errno not in NO_ATTRIBUTE:
            raise
        file = read_record_file(layout, name)
        return [] if file is None else split_records(file)
    if is_tail_beside(head):
        return with_tails(head, read_record_file(layout, name) or b"")
    return [head]


def read_record_file(layout: Layout, name: str) -> bytes | None:
    """Returns a record file, or ``None`` where there is none.

    What is not a plain file, or longer than a record file can be, is damage, and empty. Raises :class:`OSError`, also
    for a symlink.
    """
    try:
        file = open_below(layout, layout.record(name), READ)
    except (FileNotFoundError, NotADirectoryError):
        return None
    with file as fd:
        status = _fstat(fd)
        is_plausible = stat.S_ISREG(status.st_mode) and status.st_size <= _LARGEST_FILE_BYTES
        return _read(fd, status.st_size) if is_plausible else b""


def is_tail_beside(head: bytes) -> bool:
    """Whether an attribute is a head alone, whose tail is in the record file."""
    return len(head) == HEAD_BYTES and bool(head[3] & TAIL_BESIDE)


def with_tails(head: bytes, tails: bytes) -> list[bytes]:
    """A head with what may be its tail: the first of a file of tails, or the last, of the write before."""
    length = int.from_bytes(head[4:8], "little")
    return [head + tails[:length], head + tails[max(0, len(tails) - length) :]]
