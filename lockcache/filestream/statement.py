"""What an entry's record says, read without using the entry and without its payload.

Keeps one promise: looking is no use. Attributes are read by path, record files are no entries. Nothing is trusted: a
record that is cut short, that does not fit its payload's length, or whose metadata cannot be decoded, is ``damaged``
and says nothing; one that the system does not give is ``unreadable``, which is no damage. Whether the payload is what
was stored only its digest tells, see :func:`.catalog.read`.
"""

from __future__ import annotations

import errno
import os
import stat
from typing import Any, Final, NamedTuple

from lockcache import metadata
from lockcache.filestream.finding import NO_ATTRIBUTE, is_tail_beside, with_tails
from lockcache.filestream.layout import Layout
from lockcache.filestream.record import (
    HEAD_BYTES,
    LONG_PAYLOAD,
    XATTR,
    is_known,
    payload_bytes,
    split_records,
    unpack,
)
from lockcache.filestream.scan import Found

__all__ = ["Statement", "read_statement", "record_file_bytes"]

# ENXIO: a socket.
_NOT_THERE: Final = (errno.ENOENT, errno.ENOTDIR, errno.ELOOP, errno.ENXIO)
_FLAGS: Final = os.O_RDONLY | os.O_CLOEXEC | os.O_NOFOLLOW | os.O_NONBLOCK
# Of a record file. A symbol mapping of a thousand templates is some 200 KB.
_LARGEST_RECORD_BYTES: Final = 16 * 1024 * 1024


class Statement(NamedTuple):
    """What a record says. ``state`` is ``whole`` (as far as it can be told), ``none``, ``damaged``, ``newer`` than this
    version knows, or ``unreadable`` (EACCES, EIO; also one that is gone: the caller looks)."""

    state: str
    created_ns: int | None = None
    cost_ns: int | None = None
    metadata: dict[str, Any] | None = None


def read_statement(layout: Layout, found: Found) -> Statement:
    """What the record of an entry says."""
    try:
        blob, beside = _raw_record(layout, found.name)
    except OSError:
        return Statement("unreadable")
    if not blob and not beside:
        return Statement("none")
    found_records = _candidates(blob, beside)
    # A record file may be there and not be this entry's record: left from before it was written anew.
    for file_bytes in (len(beside), record_file_bytes(layout, found.name)):
        for candidate in found_records:
            read = _take_apart(candidate, found.size_bytes - file_bytes)
            if read.state != "damaged":
                return read
    return Statement("damaged")


def _raw_record(layout: Layout, name: str) -> tuple[bytes, bytes]:
    """The attribute, and the record file where that belongs to it; each may be empty."""
    try:
        blob = os.getxattr(layout.entry(name), XATTR, follow_symlinks=False)
    except OSError as error:
        if error.errno not in NO_ATTRIBUTE:
            raise
        return b"", _record_file(layout, name)
    return blob, _record_file(layout, name) if is_tail_beside(blob) else b""


def _candidates(blob: bytes, beside: bytes) -> list[bytes]:
    """What may be the record, head and tail: one, or in the middle of a publish several. As the reader has it."""
    if not blob:
        return split_records(beside)
    if not beside:
        return [blob]
    return with_tails(blob, beside)


def _take_apart(blob: bytes, size_bytes: int) -> Statement:
    if len(blob) < HEAD_BYTES or blob[:2] != b"LC":
        return Statement("damaged")
    if not is_known(blob):
        return Statement("newer")
    stated = payload_bytes(blob)
    if int.from_bytes(blob[4:8], "little") != len(blob) - HEAD_BYTES or stated != min(size_bytes, LONG_PAYLOAD):
        return Statement("damaged")
    record = unpack(blob)
    try:
        known = metadata.decode(record.tail)
    except ValueError:
        return Statement("damaged")
    return Statement(
        "whole", record.created_ns if record.created_ns > 0 else None, max(0, record.cost_ns) or None, known
    )


def _record_file(layout: Layout, name: str) -> bytes:
    try:
        fd = os.open(layout.record(name), _FLAGS)
    except OSError as error:
        if error.errno not in _NOT_THERE:
            raise
        return b""
    try:
        return os.read(fd, _LARGEST_RECORD_BYTES) if stat.S_ISREG(os.fstat(fd).st_mode) else b""
    finally:
        os.close(fd)


def record_file_bytes(layout: Layout, name: str) -> int:
    """The size of an entry's record file; 0 without one."""
    try:
        status = os.lstat(layout.record(name))
    except (FileNotFoundError, NotADirectoryError):
        return 0
    return status.st_size if stat.S_ISREG(status.st_mode) else 0
