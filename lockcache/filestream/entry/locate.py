"""Where an open entry's record is: in its attribute, in a file beside it, or half in each.

One place for what the reader, whoever verifies and whoever only looks have to agree on. What is found here is not
proven: invariant 1 is kept by whoever looks at the digest. How a record file is opened is each one's own: a reader may
find other people's files there, and a daemon holes of a terabyte.
"""

from __future__ import annotations

import errno
import os
from collections.abc import Callable
from typing import Final

from lockcache.filestream.entry.codec import HEAD_BYTES, TAIL_BESIDE, XATTR, split_records

__all__ = ["NO_ATTRIBUTE", "find_records", "is_tail_beside", "with_tails"]

#: What a file system answers where there is no attribute, or where there are none at all. Anything else says nothing of
#: the entry, which must not pass for one without a record.
NO_ATTRIBUTE: Final = (errno.ENODATA, errno.ENOTSUP, errno.EOPNOTSUPP, errno.ENOSYS, errno.EPERM)

# Looked up once: with record files this is in each hit.
_getxattr = os.getxattr


def find_records(fd: int, name: str, record_file: Callable[[str], bytes | None]) -> list[bytes]:
    """What may be the record of an open entry, head and tail; none if it has none.

    One, or in the middle of a publish several, of which at most one is whole with the payload. ``record_file(name)`` is
    asked for the record file only where that is needed, and gives ``None`` where there is none.
    """
    try:
        head = _getxattr(fd, XATTR)
    except OSError as error:
        if error.errno not in NO_ATTRIBUTE:
            raise
        file = record_file(name)
        return [] if file is None else split_records(file)
    if is_tail_beside(head):
        return with_tails(head, record_file(name) or b"")
    return [head]


def is_tail_beside(head: bytes) -> bool:
    """Whether an attribute is a head alone, whose tail is in the record file."""
    return len(head) == HEAD_BYTES and bool(head[3] & TAIL_BESIDE)


def with_tails(head: bytes, tails: bytes) -> list[bytes]:
    """A head with what may be its tail: the first of a file of tails, or the last, of the write before."""
    length = int.from_bytes(head[4:8], "little")
    return [head + tails[:length], head + tails[max(0, len(tails) - length) :]]
