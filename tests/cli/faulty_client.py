# SPDX-License-Identifier: Apache-2.0
"""A FUSE file system that shows a directory like a client of a file server, with the given faults.

``python faulty_client.py BACKING MOUNT FAULT...``. Two such mounts of one directory are like two hosts: each has a
cache of its own, which opening a folder (opendir) empties, as in NFS.
"""

from __future__ import annotations

import errno
import fcntl
import os
import sys
from typing import Any, Final

from lockcache_stress.trouble import MOUNT_OPTIONS, Passthrough, load_mfusepy

mfusepy = load_mfusepy()

#: :mod:`tests.cli.test_doctor_pair_faults` and :mod:`tests.cli.test_two_clients` choose faults; a comment at the code
#: of each names the file system that has it.
_REMEMBERING: Final = ("old files are remembered", "removed files are remembered")
_BLOCK_BYTES: Final = 512


class FaultyClient(Passthrough, mfusepy.Operations):  # type: ignore[misc]
    def __init__(self, backing: str, faults: set[str]) -> None:
        super().__init__(backing)
        self._faults = faults
        self._missing: set[str] = set()
        self._opened: dict[str, int] = {}
        self._locked: set[int] = set()
        self._shown: dict[int, bytearray] = {}
        self._direct: set[int] = set()

    # ---- cached names

    def opendir(self, path: str) -> int:
        self._missing = {name for name in self._missing if os.path.dirname(name) != path}
        for name in [name for name in self._opened if os.path.dirname(name) == path]:
            os.close(self._opened.pop(name))
        return 0

    def getattr(self, path: str, fh: int | None = None) -> dict[str, int]:
        if path in self._missing:
            raise mfusepy.FuseOSError(errno.ENOENT)
        try:
            return super().getattr(path, fh)
        except FileNotFoundError:
            if "removed files are remembered" in self._faults and path in self._opened:
                return super().getattr(path, self._opened[path])
            if "missing names are remembered" in self._faults or self._is_creation(path):
                self._missing.add(path)
            raise

    def open(self, path: str, flags: int) -> int:
        is_read = flags & os.O_ACCMODE == os.O_RDONLY
        remembers = is_read and any(fault in self._faults for fault in _REMEMBERING)
        if remembers and path in self._opened and self._is_stale(path):
            return os.dup(self._opened[path])
        opened = super().open(path, flags & ~os.O_DIRECT)
        if flags & os.O_DIRECT:
            self._direct.add(opened)
        if remembers:
            self._forget(path)
            self._opened[path] = os.dup(opened)
        return opened

    def _is_stale(self, path: str) -> bool:
        if "old files are remembered" in self._faults and os.path.lexists(self._at(path)):
            return True
        return "removed files are remembered" in self._faults and not os.path.lexists(self._at(path))

    def _forget(self, path: str) -> None:
        if path in self._opened:
            os.close(self._opened.pop(path))

    # ---- cached contents of open files

    def read(self, path: str, size: int, offset: int, fh: int) -> bytes:
        if "open files are remembered" not in self._faults:
            return super().read(path, size, offset, fh)
        return bytes(self._content(fh)[offset : offset + size])

    def write(self, path: str, data: bytes, offset: int, fh: int) -> int:
        if "open files are remembered" in self._faults:
            self._content(fh)[offset : offset + len(data)] = data  # JuiceFS
        if "direct writes are whole blocks" in self._faults and fh in self._direct and len(data) % _BLOCK_BYTES:
            raise mfusepy.FuseOSError(errno.EINVAL)  # GlusterFS, which answers small reads from its cache
        return super().write(path, data, offset, fh)

    def _content(self, fh: int) -> bytearray:
        """Returns a file's content when it was first read through this descriptor, with the descriptor's writes."""
        if fh not in self._shown:
            self._shown[fh] = bytearray(os.pread(fh, os.fstat(fh).st_size, 0))
        return self._shown[fh]

    # ---- changes

    def create(self, path: str, mode: int, fi: Any = None) -> int:
        self._missing.discard(path)
        if self._is_creation(path):
            return os.open(self._at(path), os.O_RDWR | os.O_CREAT, mode)  # SeaweedFS, between two mounts
        return super().create(path, mode, fi)

    def _is_creation(self, path: str) -> bool:
        return "creation excludes nobody" in self._faults and "/exclusive/" in path

    def mkdir(self, path: str, mode: int) -> int:
        self._missing.discard(path)
        return super().mkdir(path, mode)

    def unlink(self, path: str) -> int:
        self._forget(path)
        return super().unlink(path)

    def rename(self, old: str, new: str, flags: int = 0) -> int:
        self._missing.discard(new)
        self._forget(new)
        if "rename copies" in self._faults and os.path.isfile(self._at(new)):
            # Mounts of object stores copy files to rename them. The sync makes the moment in between long.
            with open(self._at(old), "rb") as source, open(self._at(new), "r+b", buffering=0) as target:
                content = source.read()
                for part in (content[: len(content) // 2], content[len(content) // 2 :]):
                    target.write(part)
                    os.fsync(target.fileno())
                target.truncate()
            os.unlink(self._at(old))
            return 0
        return super().rename(old, new, flags)

    def setxattr(self, path: str, name: str, value: bytes, options: int, position: int = 0) -> int:
        self._refuse_attributes()
        return super().setxattr(path, name, value, options, position)

    def getxattr(self, path: str, name: str, position: int = 0) -> bytes:
        self._refuse_attributes()
        return super().getxattr(path, name, position)

    def _refuse_attributes(self) -> None:
        if "no attributes" in self._faults:
            raise mfusepy.FuseOSError(errno.ENOTSUP)

    # ---- locks

    def flock(self, path: str, fh: int, operation: int) -> int:
        if "locks refuse" in self._faults:
            raise mfusepy.FuseOSError(errno.ENOLCK)
        if "locks exclude nobody" not in self._faults:
            fcntl.flock(fh, operation | fcntl.LOCK_NB)
        (self._locked.discard if operation & fcntl.LOCK_UN else self._locked.add)(fh)
        return 0

    def release(self, path: str, fh: int) -> int:
        self._shown.pop(fh, None)
        self._direct.discard(fh)
        if "locks outlive their holder" in self._faults and fh in self._locked:
            return 0  # as a lock server that does not learn of the death of a client
        return super().release(path, fh)


if __name__ == "__main__":
    backing, mount, *faults = sys.argv[1:]
    options = dict(MOUNT_OPTIONS)
    if "pages are remembered" in faults:
        options["attr_timeout"] = 3600  # the kernel's own cache, which asks again only after this time
    else:
        options["direct_io"] = True
    client = FaultyClient(os.path.abspath(backing), set(faults))
    # One call at a time, because each call reads and changes the caches.
    mfusepy.FUSE(client, mount, fsname="passthrough", nothreads=True, allow_other=True, **options)
