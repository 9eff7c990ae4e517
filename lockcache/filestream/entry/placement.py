"""Placement of records: in the attribute of an entry, in a file next to it, or half in each.

Decides it for one directory, from what its file system took so far. Relied on by writers; readers find a record
wherever it is (:mod:`.locate`). Not promised: that the first record fits, which is tried.
"""

from __future__ import annotations

import errno
from typing import Final

from lockcache.filestream.entry.codec import HEAD_BYTES, LARGEST_RECORD_BYTES, XATTR

# What a file system answers for an attribute that is too big for it (ext4 says ENOSPC), and for none at all.
_TOO_BIG: Final = (errno.ENOSPC, errno.E2BIG, errno.ERANGE)
_NO_XATTRS: Final = (errno.ENOTSUP, errno.EOPNOTSUPP, errno.ENOSYS, errno.EPERM)


class AttributeRefusedError(OSError):
    """The file system did not take a record as an extended attribute."""

    def __init__(self, error: OSError, attribute_bytes: int) -> None:
        super().__init__(error.errno, error.strerror, XATTR)
        self.attribute_bytes = attribute_bytes


class RecordPlacement:
    """Where the records of this directory go, as learned from what its file system took.

    Everything in the attribute; or only the head, with the tail in a record file, where attributes are small; or all of
    it in a record file, where there are none (or where the user asked for files).
    """

    __slots__ = ("_attribute_bytes", "_fits_bytes")

    # 4,000 is the most that fits next to a name on ext4 with 4 KiB blocks; xfs, btrfs and tmpfs take more.
    _LARGEST_ATTRIBUTE_BYTES: Final = 3900

    def __init__(self, *, use_files: bool) -> None:
        self._attribute_bytes = 0 if use_files else self._LARGEST_ATTRIBUTE_BYTES
        # The largest attribute that was seen to fit into the inode.
        self._fits_bytes = 0

    @property
    def uses_files(self) -> bool:
        """Whether records go into files, as a whole: there are no attributes here, or none that are large enough."""
        return self._attribute_bytes < HEAD_BYTES

    def may_leave_inode(self, attribute_bytes: int) -> bool:
        """Whether an attribute of this length was not seen to fit into the inode."""
        return attribute_bytes > self._fits_bytes

    def learn_fit(self, attribute_bytes: int) -> None:
        """Remember that an attribute of this length fitted into the inode."""
        self._fits_bytes = max(self._fits_bytes, attribute_bytes)

    def split(self, blob: bytes) -> tuple[bytes, bytes]:
        """A record as (attribute, record file); either may be empty.

        Raises :class:`OSError` (EFBIG) for one that is longer than readers accept.
        """
        if len(blob) > LARGEST_RECORD_BYTES:
            what = f"a record of {len(blob)} bytes, most of it metadata, is longer than {LARGEST_RECORD_BYTES}"
            raise OSError(errno.EFBIG, what)
        if len(blob) <= self._attribute_bytes:
            return blob, b""
        if self._attribute_bytes >= HEAD_BYTES:
            return blob[:HEAD_BYTES], blob[HEAD_BYTES:]
        return b"", blob

    def tail_is_beside(self, tail_bytes: int) -> bool:
        """Whether :meth:`split` will put the head into the attribute and a tail this long into a file."""
        return HEAD_BYTES <= self._attribute_bytes < HEAD_BYTES + tail_bytes

    def learn_from(self, error: AttributeRefusedError) -> str | None:
        """Put records elsewhere from now on; a name for what was learned, or ``None`` if that was not a reason to."""
        if error.errno in _NO_XATTRS:
            self._attribute_bytes = 0
            return "no attributes here"
        if error.errno in _TOO_BIG and error.attribute_bytes > HEAD_BYTES:
            self._attribute_bytes = error.attribute_bytes - 1
            return f"no attribute of {error.attribute_bytes} bytes here"
        return None
