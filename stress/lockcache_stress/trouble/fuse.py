# SPDX-License-Identifier: Apache-2.0
"""A FUSE file system that passes all calls on to a directory: the base of file systems with faults.

A fault is a method of a subclass. Without ``flock``, locks are the kernel's own. Methods have the names and arguments
that mfusepy wants, which is not needed to import this module: :func:`load_mfusepy` loads it.
"""

from __future__ import annotations

import os
import stat
from collections.abc import Callable
from ctypes.util import find_library
from typing import Any, Final

from lockcache.errors import how_to_install

__all__ = ["MOUNT_OPTIONS", "Passthrough", "load_mfusepy", "why_no_fuse"]

# Read by mfusepy: the library that it calls.
_LIBRARY: Final = "FUSE_LIBRARY_PATH"
_STAT: Final = ("st_mode", "st_ino", "st_nlink", "st_uid", "st_gid", "st_size", "st_blocks")
_TIMES: Final = ("atime", "mtime", "ctime")
# The time that stands for UTIME_NOW here.
_NOW_NS: Final = (1 << 30) - 1

#: Options for ``mfusepy.FUSE``: the kernel caches nothing and checks modes as on a disk, and a file that is replaced
#: while it is open is not renamed first.
MOUNT_OPTIONS: Final[dict[str, Any]] = {
    "foreground": True,
    "attr_timeout": 0,
    "entry_timeout": 0,
    "negative_timeout": 0,
    "use_ino": True,
    "hard_remove": True,
    "default_permissions": True,
}


def load_mfusepy() -> Any:
    """Returns mfusepy, which calls libfuse 3: the one that ``FUSE_LIBRARY_PATH`` names, or the one that is installed.

    By itself mfusepy takes libfuse 2 where both are installed. With libfuse 2 a file that is replaced is not found any
    more by processes that have it open, which no local file system does.

    Raises :class:`ImportError` without mfusepy, and :class:`OSError` without libfuse 3.
    """
    path = os.environ.get(_LIBRARY) or find_library("fuse3")
    if not path:
        raise OSError("libfuse 3 is not installed")
    os.environ[_LIBRARY] = path
    import mfusepy

    if mfusepy.fuse_version_major != 3:
        raise OSError(f"${_LIBRARY} names version {mfusepy.fuse_version_major} of libfuse: {path}")
    return mfusepy


def why_no_fuse() -> str | None:
    """Returns why no FUSE file system can be served here; ``None`` if one can."""
    if not os.access("/dev/fuse", os.R_OK | os.W_OK):
        return "needs /dev/fuse"
    try:
        load_mfusepy()
    except (ImportError, OSError) as error:
        return f"needs mfusepy and libfuse 3 ({error}): {how_to_install('stress')}, and apt-get install fuse3"
    return None


def _passed_on(call: Callable[..., object]) -> Callable[..., int]:
    """Returns the method that only does this call, on the path below the root."""

    def method(self: Passthrough, path: str, *given: Any) -> int:
        call(self._at(path), *given)
        return 0

    return method


class Passthrough:
    """The file system of the tree below ``root``. Times are in nanoseconds (``use_ns``)."""

    use_ns = True

    def __init__(self, root: str) -> None:
        self._root = root

    def _at(self, path: str) -> str:
        return self._root + path

    unlink = _passed_on(os.unlink)
    mkdir = _passed_on(os.mkdir)
    rmdir = _passed_on(os.rmdir)
    chmod = _passed_on(os.chmod)
    chown = _passed_on(os.chown)
    removexattr = _passed_on(os.removexattr)

    def getattr(self, path: str, fh: int | None = None) -> dict[str, int]:
        status = os.fstat(fh) if fh else os.lstat(self._at(path))
        found = {name: getattr(status, name) for name in _STAT}
        return {**found, **{f"st_{name}": getattr(status, f"st_{name}_ns") for name in _TIMES}}

    def readdir(self, path: str, fh: int) -> list[tuple[str, dict[str, int], int]]:
        # With inode numbers, because the C library ignores entries without one.
        kinds = {True: stat.S_IFDIR, False: stat.S_IFREG}
        with os.scandir(self._at(path)) as found:
            return [
                (e.name, {"st_ino": e.inode(), "st_mode": kinds[e.is_dir(follow_symlinks=False)]}, 0) for e in found
            ]

    def open(self, path: str, flags: int) -> int:
        return os.open(self._at(path), flags & ~os.O_CREAT)

    def create(self, path: str, mode: int, fi: object = None) -> int:
        return os.open(self._at(path), os.O_RDWR | os.O_CREAT | os.O_EXCL, mode)

    def read(self, path: str, size: int, offset: int, fh: int) -> bytes:
        return os.pread(fh, size, offset)

    def write(self, path: str, data: bytes, offset: int, fh: int) -> int:
        return os.pwrite(fh, data, offset)

    def flush(self, path: str, fh: int) -> int:
        return 0

    def fsyncdir(self, path: str, datasync: int, fh: int) -> int:
        return 0

    def fsync(self, path: str, datasync: int, fh: int) -> int:
        os.fsync(fh)
        return 0

    def release(self, path: str, fh: int) -> int:
        os.close(fh)
        return 0

    def truncate(self, path: str, size: int, fh: int | None = None) -> int:
        os.truncate(fh or self._at(path), size)
        return 0

    def rename(self, old: str, new: str, flags: int = 0) -> int:
        os.rename(self._at(old), self._at(new))
        return 0

    def utimens(self, path: str, times: tuple[int, int] | None = None, fh: int | None = None) -> int:
        if times is None or _NOW_NS in times:
            os.utime(fh or self._at(path))
        else:
            os.utime(fh or self._at(path), ns=times)
        return 0

    def statfs(self, path: str) -> dict[str, int]:
        found = os.statvfs(self._at(path))
        return {name: getattr(found, name) for name in dir(found) if name.startswith("f_") and name != "f_fsid"}

    def getxattr(self, path: str, name: str, position: int = 0) -> bytes:
        return os.getxattr(self._at(path), name)

    def setxattr(self, path: str, name: str, value: bytes, options: int, position: int = 0) -> int:
        os.setxattr(self._at(path), name, value)
        return 0

    def listxattr(self, path: str) -> list[str]:
        return os.listxattr(self._at(path))
