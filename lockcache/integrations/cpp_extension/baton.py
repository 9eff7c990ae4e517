# SPDX-License-Identifier: Apache-2.0
"""Torch's file ``lock`` of an extension's folder, which is free when its holder is dead.

Before 2.14 torch makes the file while it builds, and removes it. So does this, for builds that lockcache leaves to
torch; processes with and without lockcache exclude each other. Keeps invariant 5 (death is free): a file that no
process of this host has open is a dead holder's, and is taken over. On a file system where the kernel does not know who
has it open (NFS), a ``lock`` is waited for as torch waits. From 2.14 on torch locks the file, and the kernel frees it.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import signal
import time
from typing import Any, Final

__all__ = ["Baton", "Lock"]

# As torch waits.
_PAUSE_SECONDS: Final = 0.1
_LONGEST_COMM: Final = 64
# F_SETSIG, which Python's fcntl lacks on some systems.
_SETSIG: Final[int] = getattr(fcntl, "F_SETSIG", 10)


class Baton:
    """Stands for torch's ``FileBaton``. Torch takes it for each load, a hit too; it is held from :meth:`hold` on."""

    def __init__(self, lock_file_path: str, *_: Any, **__: Any) -> None:
        self._path = lock_file_path
        self._fd: int | None = None
        #: Whether torch has released it: the extension is built.
        self.is_over = False

    def try_acquire(self) -> bool:
        """Returns ``True``: the caller goes on to where a build is looked up."""
        return True

    def wait(self) -> None:
        """Do nothing: it is not called where :meth:`try_acquire` returns ``True``."""

    def hold(self) -> None:
        """Wait until nobody builds in the folder, and keep others from it. Raises :class:`OSError`."""
        while self._fd is None:
            self._fd = _make(self._path) or _take_over(self._path)
            if self._fd is None:
                time.sleep(_PAUSE_SECONDS)

    def release(self) -> None:
        """Let others build, if this process kept them from it."""
        self.is_over = True
        fd, self._fd = self._fd, None
        if fd is not None:
            with contextlib.suppress(FileNotFoundError):
                os.unlink(self._path)
            os.close(fd)


class Lock:
    """Stands for torch's ``FileLock``. Torch holds it for each load, a hit too, from its look-up to the library."""

    def __init__(self, own: Any) -> None:
        self._own = own
        #: Whether torch has released it: the extension is built.
        self.is_over = False

    def __enter__(self) -> Any:
        return self._own.__enter__()

    def __exit__(self, *error: object) -> Any:
        self.is_over = True
        return self._own.__exit__(*error)

    def hold(self) -> None:
        """Do nothing: torch holds it."""


def _make(path: str) -> int | None:
    try:
        return os.open(path, os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC | os.O_NOFOLLOW, 0o600)
    except FileExistsError:
        return None


def _take_over(path: str) -> int | None:
    """Returns the file of a dead holder, open; ``None`` for that of a live one."""
    try:
        fd = os.open(path, os.O_RDWR | os.O_CLOEXEC | os.O_NOFOLLOW)
    except OSError:  # gone by now, or of another user
        return None
    try:
        # Of two that found it at the same time each sees the other one; then both wait, and one comes first. The ninja
        # of a killed builder may be working on.
        is_free = not (_is_open_elsewhere(fd) or _is_built_in(os.path.dirname(path)))
        if is_free and os.path.samestat(os.fstat(fd), os.lstat(path)):
            return fd
    except OSError:
        pass
    os.close(fd)
    return None


def _is_open_elsewhere(fd: int) -> bool:
    """Returns whether any process may have the file open. A lease for writing is refused while one has it."""
    try:
        # A lease that is broken would be announced by a signal that ends processes. This one does nothing.
        fcntl.fcntl(fd, _SETSIG, signal.SIGURG)
        fcntl.fcntl(fd, fcntl.F_SETLEASE, fcntl.F_WRLCK)
        fcntl.fcntl(fd, fcntl.F_SETLEASE, fcntl.F_UNLCK)
    except OSError:
        return True
    return False


def _is_built_in(folder: str) -> bool:
    """Returns whether a ninja of this host works in the folder."""
    real = os.path.realpath(folder)
    for name in filter(str.isdecimal, os.listdir("/proc")):
        with contextlib.suppress(OSError), open(f"/proc/{name}/comm", "rb") as file:
            if file.read(_LONGEST_COMM) == b"ninja\n" and os.readlink(f"/proc/{name}/cwd") == real:
                return True
    return False
