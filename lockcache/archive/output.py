"""Where an archive goes: a file that appears whole or not at all.

Keeps invariant 5 (death is free) for archives: a death, a full disk or Ctrl-C leaves the file that was there before,
and at most a hidden file next to it that says in its name what it was.
"""

from __future__ import annotations

import contextlib
import errno
import os
import secrets
import stat
from collections.abc import Iterator
from typing import BinaryIO

from lockcache.filestream.disk import naming


@contextlib.contextmanager
def open_output(path: str) -> Iterator[BinaryIO]:
    """A file that takes the place of ``path`` when the block ends well. Devices and FIFOs are written as they are.

    Made with mode 0600: what was private in a cache directory stays so. What replaces a file may be read by those who
    could read that. A symlink stays, and its target is replaced.
    """
    target = os.path.realpath(path)
    try:
        mode = os.stat(target).st_mode
    except FileNotFoundError:
        mode = stat.S_IFREG | 0o600
    if stat.S_ISDIR(mode):
        raise IsADirectoryError(errno.EISDIR, "an archive is a file", path)
    with naming(path):
        if stat.S_ISREG(mode):
            yield from _replace(target, path, mode & 0o644 | 0o600)
        else:
            with open(target, "wb") as device:
                yield device


def _replace(target: str, path: str, mode: int) -> Iterator[BinaryIO]:
    folder, name = os.path.split(target)
    # Known before it is made: an interrupt that comes right behind its creation must find it here.
    staged = os.path.join(folder, f".{name}.{secrets.token_hex(8)}.part")
    try:
        with _create(staged, path) as file:
            yield file
            file.flush()
            os.fchmod(file.fileno(), mode)
            os.fsync(file.fileno())
        os.rename(staged, target)
    except BaseException:
        with contextlib.suppress(OSError):  # the error that brought us here says more
            os.unlink(staged)
        raise


def _create(staged: str, path: str) -> BinaryIO:
    try:
        return open(staged, "xb", opener=_open_private)
    except OSError as error:
        raise OSError(error.errno, error.strerror, path) from error  # not under a name that nobody knows


def _open_private(path: str, flags: int) -> int:
    return os.open(path, flags | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600)
