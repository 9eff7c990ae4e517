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
        self._creators: dict[str, list[int]] = {}
        self._replaced: dict[str, tuple[int, int]] = {}
        self._locked: set[int] = set()

    def _at(self, path: str) -> str:
        return self._backing + path

    def getattr(self, path: str, fh: int | None = None) -> dict[str, Any]:
        if not fh:
            self._hide(path)
        status = os.fstat(fh) if fh else os.lstat(self._at(path))
        names = ("st_mode", "st_ino", "st_nlink", "st_uid", "st_gid", "st_size", "st_blocks")
        skew_ns = _HOUR_NS if "clock an hour ahead" in self._faults else 0
        times = {f"st_{each}": getattr(status, f"st_{each}_ns") + skew_ns for each in ("atime", "mtime", "ctime")}
        if "times in steps of two seconds" in self._faults:  # FAT's
            times = {name: time_ns // _TICK_NS * _TICK_NS for name, time_ns in times.items()}
        shown = {name: getattr(status, name) for name in names} | times
        if "everybody may write" in self._faults:  # FAT's too, mounted without a umask
            shown["st_mode"] |= 0o777
        if "everybody may read" in self._faults:
            shown["st_mode"] |= 0o055
        return shown

    def _hide(self, path: str) -> None:
        """A file is missing for those who look for it."""
        creators = self._creators.get(path, [])
        if "new names stay missing" in self._faults and path.endswith("/new"):
            hidden = bool(creators) and _caller() not in creators  # NFS: who saw it missing before
        elif self._faults & {"creation excludes nobody", "EPERM for a name that is there"} and "/exclusive/" in path:
            hidden = len(creators) < 2 and _caller() not in creators  # both look before either creates
        else:
            return
        if hidden:
            raise mfusepy.FuseOSError(errno.ENOENT)

    def readdir(self, path: str, fh: int) -> list[str]:
        return [".", "..", *os.listdir(self._at(path))]

    def open(self, path: str, flags: int) -> int:
        replaced_fd, replacer = self._replaced.get(path, (-1, 0))
        if replaced_fd >= 0 and _caller() != replacer:
            return os.dup(replaced_fd)
        return os.open(self._at(path), flags & ~os.O_CREAT)

    def create(self, path: str, mode: int, fi: Any = None) -> int:
        if "hangs" in self._faults:
            threading.Event().wait()  # a server that does not answer
        creators = self._creators.setdefault(path, [])
        creators.append(_caller())
        exclusively = os.O_EXCL
        if len(creators) > 1 and "/exclusive/" in path:
            if "EPERM for a name that is there" in self._faults:  # sshfs
                raise mfusepy.FuseOSError(errno.EPERM)
            if "creation excludes nobody" in self._faults:  # SeaweedFS, between two mounts
                exclusively = 0
        return os.open(self._at(path), os.O_RDWR | os.O_CREAT | exclusively, mode)

    def read(self, path: str, size: int, offset: int, fh: int) -> bytes:
        return os.pread(fh, size, offset)

    def write(self, path: str, data: bytes, offset: int, fh: int) -> int:
        return os.pwrite(fh, data, offset)

    def flush(self, path: str, fh: int) -> int:
        return 0

    def release(self, path: str, fh: int) -> int:
        if "locks outlive their holder" in self._faults and fh in self._locked:
            return 0  # a lock server that does not learn of the death of a client
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
        if "others see the file that was replaced" in self._faults and os.path.isfile(self._at(new)):
            self._replaced[new] = os.open(self._at(new), os.O_RDONLY), _caller()  # closed with this process
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
        if "files cannot be given away" in self._faults:  # NFS with root_squash
            raise mfusepy.FuseOSError(errno.EPERM)
        os.chown(self._at(path), uid, gid)
        return 0

    def utimens(self, path: str, times: tuple[int, int] | None = None) -> int:
        if "times cannot be set" in self._faults:
            raise mfusepy.FuseOSError(errno.EPERM)
        if "only the owner sets times" in self._faults and mfusepy.fuse_get_context()[0] != 0:
            raise mfusepy.FuseOSError(errno.EPERM)
        if "times of others do not stick" in self._faults and mfusepy.fuse_get_context()[0] != 0:
            return 0
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
        if "locks stay taken" in self._faults and operation & fcntl.LOCK_UN:
            return 0
        if "locks exclude nobody" not in self._faults:  # what SeaweedFS does, and sshfs across machines
            fcntl.flock(fh, operation | fcntl.LOCK_NB)
        (self._locked.discard if operation & fcntl.LOCK_UN else self._locked.add)(fh)
        return 0

    def _refuse_attributes(self) -> None:
        if "no attributes" in self._faults:
            raise mfusepy.FuseOSError(errno.ENOTSUP)


def _caller() -> int:
    """The process that makes the system call."""
    pid: int = mfusepy.fuse_get_context()[2]
    return pid


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
