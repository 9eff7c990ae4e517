# SPDX-License-Identifier: Apache-2.0
"""The second process: what another rank on this machine would do with the same files, at the request of the first."""

from __future__ import annotations

import contextlib
import errno
import os
from collections.abc import Callable
from typing import Any, Final

from lockcache.doctor.checks_process import serve
from lockcache.errors import LockTimeoutError
from lockcache.filestream.disk import ProcessLock

_locks: dict[str, ProcessLock] = {}
_open_files: dict[str, int] = {}


def main() -> None:
    """Serve until the first process is gone."""
    serve(lambda request: _DOES[request["do"]](request["path"]))


def create_each(paths: list[str]) -> list[str]:
    """Create each file exclusively; for each ``made``, or the name of the error."""
    outcomes = []
    for path in paths:
        try:
            os.close(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600))
            outcomes.append("made")
        except OSError as error:
            outcomes.append(errno.errorcode.get(error.errno or 0, str(error)))
    return outcomes


def _lock(path: str) -> Any:
    """Take the lock. Returns whether it could be taken; a text if the file system refuses to lock."""
    lock = _locks.setdefault(path, ProcessLock(path, 0.0))
    try:
        return lock.try_acquire()
    except (LockTimeoutError, OSError) as error:
        return str(error)


def _unlock(path: str) -> Any:
    _locks[path].release()
    return True


def _open(path: str) -> Any:
    _open_files[path] = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    return True


def _read_open(path: str) -> Any:
    """Read the file that was opened before, and close it. Returns its text, or the error's."""
    fd = _open_files.pop(path)
    try:
        return os.pread(fd, 1 << 16, 0).decode("latin-1")
    except OSError as error:
        return str(error)
    finally:
        os.close(fd)


def _read(path: str) -> Any:
    """Open and read the file. Returns its text, or the error's."""
    try:
        with open(path, "rb") as file:
            return file.read().decode("latin-1")
    except OSError as error:
        return str(error)


def _is_there(path: str) -> Any:
    with contextlib.suppress(FileNotFoundError):
        os.close(os.open(path, os.O_RDONLY | os.O_CLOEXEC))
        return True
    return False


_DOES: Final[dict[str, Callable[[Any], Any]]] = {
    "create each": create_each,
    "is there": _is_there,
    "lock": _lock,
    "open": _open,
    "read": _read,
    "read open": _read_open,
    "unlock": _unlock,
}

if __name__ == "__main__":
    main()
