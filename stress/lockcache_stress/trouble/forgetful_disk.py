# SPDX-License-Identifier: Apache-2.0
"""A disk that forgets what was not synced: ``python -m lockcache_stress.trouble.forgetful_disk BACKING MOUNT JOURNAL``.

A FUSE file system that promises what POSIX does, and no more: a sync of a file keeps its bytes, attributes and mode,
but not its name; a sync of a folder keeps the names in it, but not its own. Each sync is a line of a journal, from
which the directory is made that is there after a cut. All else, a rename too, is lost in it.
"""

from __future__ import annotations

import base64
import json
import os
import stat
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, Final

from lockcache_stress.errors import UnusableError
from lockcache_stress.processes import wait_until
from lockcache_stress.trouble.fuse import MOUNT_OPTIONS, Passthrough, load_mfusepy
from lockcache_stress.trouble.workspace import unmount

_ROOT: Final = 0
_START_SECONDS: Final = 30.0


class ForgetfulDisk:
    """A disk that is mounted, until its power is cut."""

    def __init__(self, path: str) -> None:
        self.path = path
        #: What is left of it behind the cut.
        self.after = f"{path}-after"
        self._backing, self._journal = f"{path}-backing", f"{path}-journal"
        for folder in (path, self._backing):
            os.makedirs(folder, 0o700, exist_ok=True)
        command = [sys.executable, "-m", __name__, self._backing, path, self._journal]
        self._server = subprocess.Popen(command, stdin=subprocess.DEVNULL, start_new_session=True)

    def wait_until_mounted(self) -> None:
        """Raises :class:`UnusableError` where it cannot be mounted."""
        wait_until(lambda: os.path.ismount(self.path) or self._server.poll() is not None, _START_SECONDS)
        if not os.path.ismount(self.path):
            raise UnusableError("a FUSE file system cannot be mounted here")

    def cut(self) -> None:
        """Cut the power: a process that uses the disk finds it gone."""
        self._server.kill()
        self._server.wait()

    def make_after(self) -> None:
        """Make the directory that is there after the cut."""
        kept: dict[int, Any] = {}
        with open(self._journal, "rb") as journal:
            for line in journal:
                if line.endswith(b"\n"):  # else the cut came first
                    number, found = json.loads(line)
                    kept[number] = found
        _make_folder(self.after, _ROOT, kept)

    def close(self) -> None:
        """Unmount it."""
        self.cut()
        unmount(self.path)


@contextmanager
def mount_forgetful_disk(path: str) -> Iterator[ForgetfulDisk]:
    """Yields a forgetful disk that is mounted at ``path``; next to it are its files."""
    disk = ForgetfulDisk(path)
    try:
        disk.wait_until_mounted()
        yield disk
    finally:
        disk.close()


def sync_below(path: str) -> None:
    """Sync all that is below a folder, as if it had been there for long."""
    for folder, _, files in os.walk(path):
        for each in (folder, *(os.path.join(folder, file) for file in files)):
            fd = os.open(each, os.O_RDONLY | os.O_CLOEXEC)
            os.fsync(fd)
            os.close(fd)


def _make_folder(path: str, number: int, kept: dict[int, Any]) -> None:
    os.mkdir(path, 0o700)
    for name, its in kept.get(number, {}).get("names", {}).items():
        below, found = os.path.join(path, name), kept.get(abs(its), {})
        if its < 0:
            _make_folder(below, -its, kept)
            continue
        with open(below, "wb") as file:
            file.write(base64.b64decode(found.get("bytes", "")))
            os.fchmod(file.fileno(), found.get("mode", 0o600))
        for attribute, value in found.get("attributes", {}).items():
            os.setxattr(below, attribute, base64.b64decode(value))


class _Disk(Passthrough):
    """A file system that notes each sync. Files and folders have numbers, which are never used again."""

    def __init__(self, root: str, journal: str) -> None:
        super().__init__(root)
        self._guard = threading.Lock()
        self._journal = os.open(journal, os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC, 0o600)
        self._numbers = {os.stat(root).st_ino: _ROOT}
        self._last = _ROOT

    def create(self, path: str, mode: int, fi: object = None) -> int:
        fd = super().create(path, mode, fi)
        self._number(os.fstat(fd).st_ino)
        return fd

    def mkdir(self, path: str, mode: int) -> int:
        os.mkdir(self._at(path), mode)
        self._number(os.stat(self._at(path)).st_ino)
        return 0

    def fsync(self, path: str, datasync: int, fh: int) -> int:
        own = f"/proc/self/fd/{fh}"  # which may be open for writing only, and have no name any more
        with self._guard, open(own, "rb") as file:
            status = os.fstat(fh)
            attributes = {name: _encode(os.getxattr(own, name)) for name in os.listxattr(own)}
            found = {"bytes": _encode(file.read()), "attributes": attributes, "mode": stat.S_IMODE(status.st_mode)}
            self._note(self._numbers[status.st_ino], found)
        return 0

    def fsyncdir(self, path: str, datasync: int, fh: int) -> int:
        folder = self._at(path)
        with self._guard, os.scandir(folder) as listed:
            # Folders are negative.
            signs = {True: -1, False: 1}
            names = {e.name: signs[e.is_dir(follow_symlinks=False)] * self._numbers[e.inode()] for e in listed}
            self._note(self._numbers[os.stat(folder).st_ino], {"names": names})
        return 0

    def _number(self, inode: int) -> None:
        with self._guard:
            self._last += 1
            self._numbers[inode] = self._last

    def _note(self, number: int, found: dict[str, Any]) -> None:
        os.write(self._journal, json.dumps([number, found]).encode() + b"\n")


def _encode(content: bytes) -> str:
    return base64.b64encode(content).decode()


# fmt: off
_CALLS: Final = (
    "getattr", "readdir", "open", "create", "read", "write", "fsync", "truncate", "rename", "unlink", "mkdir", "rmdir",
    "chmod", "utimens", "getxattr", "setxattr", "flush", "release", "statfs", "listxattr", "chown", "fsyncdir",
    "removexattr",
)
# fmt: on


def main() -> None:
    """Mount the disk, and serve until the power is cut."""
    mfusepy = load_mfusepy()
    backing, mount, journal = sys.argv[1:]
    disk = _Disk(backing, journal)
    calls = {name: staticmethod(getattr(disk, name)) for name in _CALLS}
    operations = type("Operations", (mfusepy.Operations,), {"use_ns": True, **calls})()
    mfusepy.FUSE(operations, mount, fsname="lockcache-stress", **MOUNT_OPTIONS)


if __name__ == "__main__":
    main()
