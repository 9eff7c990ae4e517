"""Replacing a small file of ours as one unit: policy, accounting page, format, daemon status.

Keeps invariant 1's half of the work for files that are no entries: a reader finds the old bytes or the new, never a
part. Staged in ``tmp/`` like entries, so that what a killed writer leaves there is found and removed by the same rule.
"""

from __future__ import annotations

import contextlib
import errno
import os
from collections.abc import Iterator
from typing import Final

from lockcache.filestream.disk.folders import create_file, refuse_symlink
from lockcache.filestream.disk.layout import Layout, StagedName
from lockcache.filestream.disk.owners import myself, next_serial

__all__ = ["naming", "replace_file", "write_all"]

_DISK_FULL: Final = (errno.ENOSPC, errno.EDQUOT)


def replace_file(layout: Layout, path: str, content: bytes, *, fsync: bool = True) -> None:
    """Put ``content`` under ``path``, whole. Raises :class:`OSError`; then the old file stands.

    With ``fsync`` also after a power cut, which would otherwise leave an empty file in place of the old one: a cache
    that synced every entry, and cannot be opened for an empty ``format``, lost them all.
    """
    # Named like a staged write that reserves nothing, so that every recount can tell whose it is and whether they live.
    me = myself()
    staged = layout.staged(StagedName(0, 0, me.host, me.pid, me.start_seconds, next_serial()))
    refuse_symlink(layout.tmp)
    refuse_symlink(os.path.dirname(path))
    with naming(path):
        fd = create_file(staged, os.O_WRONLY | os.O_CLOEXEC | os.O_NOFOLLOW)
        try:
            try:
                write_all(fd, content)
                if fsync:
                    os.fsync(fd)
            finally:
                os.close(fd)
            os.rename(staged, path)
        except BaseException:
            with contextlib.suppress(OSError):  # the error that brought us here says more
                os.unlink(staged)
            raise


@contextlib.contextmanager
def naming(path: str) -> Iterator[None]:
    """Have errors of writing name ``path``: calls on a descriptor name nothing, and who is to make room on a disk that
    is full wants to know on which, and not under what name we stage there."""
    try:
        yield
    except OSError as error:
        if error.errno is None or (error.filename is not None and error.errno not in _DISK_FULL):
            raise
        raise OSError(error.errno, error.strerror, path) from error


def write_all(fd: int, content: bytes) -> None:
    """Write every byte; a single write stops at 2 GiB, at a signal, or where the disk is full."""
    written = os.write(fd, content)
    while written < len(content):
        written += os.write(fd, memoryview(content)[written:])
