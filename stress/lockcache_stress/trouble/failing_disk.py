# SPDX-License-Identifier: Apache-2.0
"""A file system that fails: ``python -m lockcache_stress.trouble.failing_disk BACKING MOUNT CONTROL SEED``.

A FUSE file system that passes all calls on to a directory. CONTROL is a JSON file, which is read again when it is
replaced. ``{"share": 0.05}``: this share of all calls fails before having any effect, each with one of :data:`_ERRORS`;
a rename out of ``tmp/`` may also fail after it took effect, as when a server's answer is lost. ``{"call": "flush",
"left": 3, "error": 5}``: the call of this name fails after three others of this name, and with ``"goes_on": true`` all
that follow; then there is a file CONTROL.failed. ``close`` causes ``flush``: if this fails, the file is closed all the
same. Locks are the kernel's own. For root, and for users whom fusermount3 allows to mount.
"""

from __future__ import annotations

import contextlib
import errno
import json
import os
import random
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, Final

from lockcache_stress.errors import UnusableError
from lockcache_stress.processes import wait_until
from lockcache_stress.trouble.fuse import MOUNT_OPTIONS, Passthrough, load_mfusepy
from lockcache_stress.trouble.workspace import unmount

_ERRORS: Final = (errno.EIO, errno.ESTALE, errno.ENOTCONN, errno.EINTR, errno.ENOSPC)
# fmt: off
_OPERATIONS: Final = (
    "getattr", "readdir", "open", "create", "read", "write", "fsync", "truncate", "rename", "unlink", "mkdir", "rmdir",
    "chmod", "utimens", "getxattr", "setxattr", "flush",
)
# fmt: on
_NEVER_FAIL: Final = ("release", "statfs", "listxattr", "chown", "fsyncdir", "removexattr")
_START_SECONDS: Final = 30.0


def set_failures(path: str, **said: Any) -> None:
    """Set the failures of the failing disk ``path`` from now on, in the words of a control file."""
    control = _control_of(path)
    with open(f"{control}.new", "w") as file:
        json.dump(said, file)
    with contextlib.suppress(FileNotFoundError):
        os.unlink(_failed_of(control))
    os.replace(f"{control}.new", control)


def has_failed(path: str) -> bool:
    """Returns whether the call that was set to fail has come since the last :func:`set_failures`."""
    return os.path.exists(_failed_of(_control_of(path)))


def _control_of(path: str) -> str:
    return f"{path}-control.json"


def _failed_of(control: str) -> str:
    return f"{control}.failed"


@contextmanager
def mount_failing_disk(path: str, seed: int) -> Iterator[None]:
    """Mount a failing disk at ``path``, which fails no call until its control file says so."""
    backing = f"{path}-backing"
    os.mkdir(backing, 0o700)
    command = [sys.executable, "-m", __name__, backing, path, _control_of(path), str(seed)]
    process = subprocess.Popen(command, stdin=subprocess.DEVNULL, start_new_session=True)
    try:
        wait_until(lambda: os.path.ismount(path) or process.poll() is not None, _START_SECONDS)
        if not os.path.ismount(path):
            raise UnusableError("a FUSE file system cannot be mounted here")
        yield
    finally:
        unmount(path)
        process.kill()
        process.wait()


class _Disk(Passthrough):
    """A file system whose calls fail before or after they are passed on."""

    def __init__(self, root: str, control: str, seed: int) -> None:
        super().__init__(root)
        self._control = control
        self._rng = random.Random(seed)
        self._guard = threading.Lock()
        self._read = (-1, -1)
        self._share = 0.0
        self._call, self._left, self._error, self._goes_on = "", 0, 0, False

    def call(self, operation: str, path: str | None, *arguments: Any, **options: Any) -> Any:
        """Pass the call on, or fail."""
        number, comes_late = self._draw(operation, path or "")
        if number and not comes_late:
            raise OSError(number, os.strerror(number))
        found = getattr(self, operation)(path, *arguments, **options)
        if number:
            raise OSError(number, os.strerror(number))
        return found

    def _draw(self, operation: str, path: str) -> tuple[int, bool]:
        """Returns the error for this call (0: none), and whether it comes after the call took effect."""
        if operation not in _OPERATIONS:
            return 0, False
        with self._guard:
            self._read_control()
            if operation == self._call:
                return self._count(), False
            if self._rng.random() >= self._share:
                return 0, False
            may_be_late = operation == "rename" and path.startswith("/tmp/")
            return self._rng.choice(_ERRORS), may_be_late and self._rng.random() < 0.5

    def _count(self) -> int:
        """Count a call of the name that is set to fail. Returns its error; 0 if it does not fail."""
        self._left -= 1
        if self._left >= 0 or (self._left < -1 and not self._goes_on):
            return 0
        open(_failed_of(self._control), "w").close()
        return self._error

    def _read_control(self) -> None:
        try:
            found = os.stat(self._control)
        except FileNotFoundError:
            return
        if (found.st_ino, found.st_mtime_ns) != self._read:
            with open(self._control) as file:
                said = json.load(file)
            self._share = said.get("share", 0.0)
            self._call, self._left = said.get("call", ""), said.get("left", 0)
            self._error, self._goes_on = said.get("error", 0), said.get("goes_on", False)
            self._read = found.st_ino, found.st_mtime_ns


def _calling(disk: _Disk, name: str) -> Callable[..., Any]:
    return lambda _, *arguments, **options: disk.call(name, *arguments, **options)


def main() -> None:
    """Mount the disk, and serve until it is unmounted."""
    mfusepy = load_mfusepy()
    backing, mount, control, seed = sys.argv[1:]
    disk = _Disk(backing, control, int(seed))
    calls = {name: _calling(disk, name) for name in (*_OPERATIONS, *_NEVER_FAIL)}
    operations = type("Operations", (mfusepy.Operations,), {"use_ns": True, **calls})()
    mfusepy.FUSE(operations, mount, fsname="lockcache-stress", **MOUNT_OPTIONS)


if __name__ == "__main__":
    main()
