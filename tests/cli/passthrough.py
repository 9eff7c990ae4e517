"""A FUSE file system that passes everything on to a directory, but for the faults that it is told to have.

``python passthrough.py BACKING MOUNT FAULT...``; what each fault stands for is said where it is made.
"""

from __future__ import annotations

import errno
import fcntl
import os
import sys
import threading
from typing import Any

import mfusepy

_HOUR_NS = 3600 * 10**9
_TICK_NS = 2 * 10**9
# UTIME_NOW, as it arrives here.
_NOW_NS = (1 << 30) - 1


class Passthrough(mfusepy.Operations):  # type: ignore[misc]
    use_ns = True

    def __init__(self, backing: str, faults: set[str]) -> None:
        self._backing, self._faults = backing, faults

    def _at(self, path: str) -> str:
        return self._backing + path

    def getattr(self, path: str, fh: int | None = None) -> dict[str, Any]:
        status = os.fstat(fh) if fh else os.lstat(self._at(path))
        names = ("st_mode", "st_ino", "st_nlink", "st_uid", "st_gid", "st_size", "st_blocks")
        skew_ns = _HOUR_NS if "clock an hour ahead" in self._faults else 0
        times = {f"st_{each}": getattr(status, f"st_{each}_ns") + skew_ns for each in ("atime", "mtime", "ctime")}
        if "times in steps of two seconds" in self._faults:  # FAT's
            times = {name: time_ns // _TICK_NS * _TICK_NS for name, time_ns in times.items()}
        shown = {name: getattr(status, name) for name in names} | times
        if "everybody may write" in self._faults:  # FAT's too, mounted without a umask
            shown["st_mode"] |= 0o777
        return shown

    def readdir(self, path: str, fh: int) -> list[str]:
        return [".", "..", *os.listdir(self._at(path))]

    def open(self, path: str, flags: int) -> int:
        return os.open(self._at(path), flags & ~os.O_CREAT)

    def create(self, path: str, mode: int, fi: Any = None) -> int:
        if "hangs" in self._faults:
            threading.Event().wait()  # a server that does not answer
        return os.open(self._at(path), os.O_RDWR | os.O_CREAT | os.O_EXCL, mode)

    def read(self, path: str, size: int, offset: int, fh: int) -> bytes:
        return os.pread(fh, size, offset)

    def write(self, path: str, data: bytes, offset: int, fh: int) -> int:
        return os.pwrite(fh, data, offset)

    def flush(self, path: str, fh: int) -> int:
        return 0

    def release(self, path: str, fh: int) -> int:
        os.close(fh)
        return 0

    def fsync(self, path: str, datasync: int, fh: int) -> int:
        if "fsync fails" in self._faults:
            raise mfusepy.FuseOSError(errno.EIO)
        os.fsync(fh)
        return 0

    def fsyncdir(self, path: str, datasync: int, fh: int) -> int:
        return 0

    def truncate(self, path: str, length: int, fh: int | None = None) -> int:
        os.truncate(fh or self._at(path), length)
        return 0

    def rename(self, old: str, new: str, flags: int = 0) -> int:
        if "rename copies" in self._faults and os.path.isfile(self._at(new)):
            # What mounts of object stores do: the bytes under an open file change.
            with open(self._at(old), "rb") as source, open(self._at(new), "r+b") as target:
                target.write(source.read())
                target.truncate()
            os.unlink(self._at(old))
            return 0
        os.rename(self._at(old), self._at(new))
        return 0

    def unlink(self, path: str) -> int:
        os.unlink(self._at(path))
        return 0

    def mkdir(self, path: str, mode: int) -> int:
        os.mkdir(self._at(path), mode)
        return 0

    def rmdir(self, path: str) -> int:
        os.rmdir(self._at(path))
        return 0

    def chmod(self, path: str, mode: int) -> int:
        os.chmod(self._at(path), mode)
        return 0

    def chown(self, path: str, uid: int, gid: int) -> int:
        os.chown(self._at(path), uid, gid)
        return 0

    def utimens(self, path: str, times: tuple[int, int] | None = None) -> int:
        if "times cannot be set" in self._faults:
            raise mfusepy.FuseOSError(errno.EPERM)
        if times is None or _NOW_NS in times:
            os.utime(self._at(path))
        else:
            os.utime(self._at(path), ns=times)
        return 0

    def statfs(self, path: str) -> dict[str, int]:
        disk = os.statvfs(self._at(path))
        names = (
            "f_bsize",
            "f_frsize",
            "f_blocks",
            "f_bfree",
            "f_bavail",
            "f_files",
            "f_ffree",
            "f_favail",
            "f_namemax",
        )
        return {name: getattr(disk, name) for name in names}

    def getxattr(self, path: str, name: str, position: int = 0) -> bytes:
        self._refuse_attributes()
        return os.getxattr(self._at(path), name)

    def setxattr(self, path: str, name: str, value: bytes, options: int, position: int = 0) -> int:
        self._refuse_attributes()
        os.setxattr(self._at(path), name, value)
        return 0

    def removexattr(self, path: str, name: str) -> int:
        self._refuse_attributes()
        os.removexattr(self._at(path), name)
        return 0

    def listxattr(self, path: str) -> list[str]:
        self._refuse_attributes()
        return list(os.listxattr(self._at(path)))

    def flock(self, path: str, fh: int, operation: int) -> int:
        if "locks refuse" in self._faults:
            raise mfusepy.FuseOSError(errno.ENOLCK)  # NFS without a lock server
        if "locks exclude nobody" not in self._faults:  # what SeaweedFS does, and sshfs across machines
            fcntl.flock(fh, operation | fcntl.LOCK_NB)
        return 0

    def _refuse_attributes(self) -> None:
        if "no attributes" in self._faults:
            raise mfusepy.FuseOSError(errno.ENOTSUP)


if __name__ == "__main__":
    backing, mount, *faults = sys.argv[1:]
    mfusepy.FUSE(
        Passthrough(os.path.abspath(backing), set(faults)),
        mount,
        foreground=True,
        nothreads=False,
        attr_timeout=0,
        entry_timeout=0,
        fsname="passthrough",
        hard_remove=True,  # else a file that is replaced while it is open is put aside first
        allow_other=True,  # and the kernel checks modes, as it does for a disk
        default_permissions=True,
    )
