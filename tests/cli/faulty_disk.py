# SPDX-License-Identifier: Apache-2.0
"""A FUSE file system that passes all calls on to a directory, with the given faults.

``python faulty_disk.py BACKING MOUNT FAULT...``. A comment at the code of each fault names the file system that has it.
"""

from __future__ import annotations

import errno
import fcntl
import os
import sys
import threading
from typing import Any

from lockcache_stress.trouble import MOUNT_OPTIONS, Passthrough, load_mfusepy

mfusepy = load_mfusepy()

_HOUR_NS = 3600 * 10**9
_TICK_NS = 2 * 10**9


class FaultyDisk(Passthrough, mfusepy.Operations):  # type: ignore[misc]
    def __init__(self, backing: str, faults: set[str]) -> None:
        super().__init__(backing)
        self._faults = faults
        self._creators: dict[str, list[int]] = {}
        self._replaced: dict[str, tuple[int, int]] = {}
        self._locked: set[int] = set()

    def getattr(self, path: str, fh: int | None = None) -> dict[str, int]:
        if not fh:
            self._hide(path)
        shown = super().getattr(path, fh)
        for name in ("st_atime", "st_mtime", "st_ctime"):
            if "clock an hour ahead" in self._faults:
                shown[name] += _HOUR_NS
            if "times in steps of two seconds" in self._faults:  # FAT
                shown[name] = shown[name] // _TICK_NS * _TICK_NS
        if "everybody may write" in self._faults:  # FAT, mounted without a umask
            shown["st_mode"] |= 0o777
        if "everybody may read" in self._faults:
            shown["st_mode"] |= 0o055
        return shown

    def _hide(self, path: str) -> None:
        """Hide a file from processes that look it up."""
        creators = self._creators.get(path, [])
        if "new names stay missing" in self._faults and path.endswith("/new"):
            hidden = bool(creators) and _caller() not in creators  # NFS, for a process that saw it missing before
        elif self._faults & {"creation excludes nobody", "EPERM for a name that is there"} and "/exclusive/" in path:
            hidden = len(creators) < 2 and _caller() not in creators  # as if both looked before either created
        else:
            return
        if hidden:
            raise mfusepy.FuseOSError(errno.ENOENT)

    def open(self, path: str, flags: int) -> int:
        replaced_fd, replacer = self._replaced.get(path, (-1, 0))
        if replaced_fd >= 0 and _caller() != replacer:
            return os.dup(replaced_fd)
        return super().open(path, flags)

    def create(self, path: str, mode: int, fi: Any = None) -> int:
        if "hangs" in self._faults:
            threading.Event().wait()  # as a server that does not answer
        creators = self._creators.setdefault(path, [])
        creators.append(_caller())
        if len(creators) > 1 and "/exclusive/" in path:
            if "EPERM for a name that is there" in self._faults:  # sshfs
                raise mfusepy.FuseOSError(errno.EPERM)
            if "creation excludes nobody" in self._faults:  # SeaweedFS, between two mounts
                return os.open(self._at(path), os.O_RDWR | os.O_CREAT, mode)
        return super().create(path, mode, fi)

    def release(self, path: str, fh: int) -> int:
        if "locks outlive their holder" in self._faults and fh in self._locked:
            return 0  # as a lock server that does not learn of the death of a client
        return super().release(path, fh)

    def fsync(self, path: str, datasync: int, fh: int) -> int:
        if "fsync fails" in self._faults:
            raise mfusepy.FuseOSError(errno.EIO)
        return super().fsync(path, datasync, fh)

    def rename(self, old: str, new: str, flags: int = 0) -> int:
        if "rename copies" in self._faults and os.path.isfile(self._at(new)):
            # Mounts of object stores copy the bytes, so that those of an open file change.
            with open(self._at(old), "rb") as source, open(self._at(new), "r+b") as target:
                target.write(source.read())
                target.truncate()
            os.unlink(self._at(old))
            return 0
        if "others see the file that was replaced" in self._faults and os.path.isfile(self._at(new)):
            self._replaced[new] = os.open(self._at(new), os.O_RDONLY), _caller()  # stays open until this process ends
        return super().rename(old, new, flags)

    def chown(self, path: str, uid: int, gid: int) -> int:
        if "files cannot be given away" in self._faults:  # NFS with root_squash
            raise mfusepy.FuseOSError(errno.EPERM)
        return super().chown(path, uid, gid)

    def utimens(self, path: str, times: tuple[int, int] | None = None, fh: int | None = None) -> int:
        if "times cannot be set" in self._faults:
            raise mfusepy.FuseOSError(errno.EPERM)
        if "only the owner sets times" in self._faults and mfusepy.fuse_get_context()[0] != 0:
            raise mfusepy.FuseOSError(errno.EPERM)
        if "times of others do not stick" in self._faults and mfusepy.fuse_get_context()[0] != 0:
            return 0
        return super().utimens(path, times, fh)

    def getxattr(self, path: str, name: str, position: int = 0) -> bytes:
        self._refuse_attributes()
        return super().getxattr(path, name, position)

    def setxattr(self, path: str, name: str, value: bytes, options: int, position: int = 0) -> int:
        self._refuse_attributes()
        return super().setxattr(path, name, value, options, position)

    def removexattr(self, path: str, name: str) -> int:
        self._refuse_attributes()
        return super().removexattr(path, name)

    def listxattr(self, path: str) -> list[str]:
        self._refuse_attributes()
        return super().listxattr(path)

    def _refuse_attributes(self) -> None:
        if "no attributes" in self._faults:
            raise mfusepy.FuseOSError(errno.ENOTSUP)

    def flock(self, path: str, fh: int, operation: int) -> int:
        if "locks refuse" in self._faults:
            raise mfusepy.FuseOSError(errno.ENOLCK)  # NFS without a lock server
        if "locks stay taken" in self._faults and operation & fcntl.LOCK_UN:
            return 0
        if "locks exclude nobody" not in self._faults:  # SeaweedFS, and sshfs across machines
            fcntl.flock(fh, operation | fcntl.LOCK_NB)
        (self._locked.discard if operation & fcntl.LOCK_UN else self._locked.add)(fh)
        return 0


def _caller() -> int:
    """Returns the process that makes the system call."""
    pid: int = mfusepy.fuse_get_context()[2]
    return pid


if __name__ == "__main__":
    backing, mount, *faults = sys.argv[1:]
    disk = FaultyDisk(os.path.abspath(backing), set(faults))
    # allow_other, because users who are not root use the mount too.
    mfusepy.FUSE(disk, mount, fsname="passthrough", nothreads=False, allow_other=True, **MOUNT_OPTIONS)
