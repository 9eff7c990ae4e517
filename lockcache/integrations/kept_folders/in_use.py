# SPDX-License-Identifier: Apache-2.0
"""Use of files by processes: whether any writes to one, holds one as a lock, or works in a folder.

Decides nothing alone: an answer "no" is one of several conditions. The kernel answers for open files, for all
processes of this host; on a network file system it cannot, and what is open is then seen in ``/proc``, where that is
allowed.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import re
import signal
from typing import Final

__all__ = ["is_being_written", "is_loaded_from", "is_locked", "is_worked_in"]

_LARGEST_COMMAND_BYTES: Final = 1 << 20
_LARGEST_MAPS_BYTES: Final = 1 << 24
# F_SETSIG, which Python's fcntl lacks on some systems.
_SETSIG: Final[int] = getattr(fcntl, "F_SETSIG", 10)


def is_being_written(fd: int) -> bool:
    """Returns whether any process has the file open for writing, or mapped; ``False`` where the kernel cannot say.

    A lease for reading is refused while there is a writer. It is given back at once: a process that opens the file
    meanwhile waits for microseconds.
    """
    try:
        # A lease that is broken would be announced by a signal that ends processes. This one does nothing.
        fcntl.fcntl(fd, _SETSIG, signal.SIGURG)
        fcntl.fcntl(fd, fcntl.F_SETLEASE, fcntl.F_RDLCK)
    except BlockingIOError:
        return True
    except OSError:
        return False
    with contextlib.suppress(OSError):
        fcntl.fcntl(fd, fcntl.F_SETLEASE, fcntl.F_UNLCK)
    return False


def is_locked(fd: int) -> bool:
    """Returns whether a process holds a lock on the file: such files stay when nobody does."""
    try:
        fcntl.flock(fd, fcntl.LOCK_SH | fcntl.LOCK_NB)
        fcntl.flock(fd, fcntl.LOCK_UN)
    except BlockingIOError:
        return True
    except OSError:
        return False
    return False


def is_worked_in(path: str) -> bool:
    """Returns whether a process of this host works in a folder: a file of it is open for writing, it is the working
    directory, or a command line names it, as those of compilers do. Processes that may not be looked at do not count.
    """
    real = os.path.realpath(path)
    # A longer name is another folder.
    named = re.compile(b"(%b|%b)(?![\\w.-])" % (re.escape(os.fsencode(path)), re.escape(os.fsencode(real))))
    return any(_works_in(process, named, real) for process in _processes())


def is_loaded_from(path: str) -> bool:
    """Returns whether a process of this host has a file of a folder mapped, such as a library."""
    mark = os.fsencode(f" {os.path.realpath(path)}/")
    for process in _processes():
        with contextlib.suppress(OSError), open(f"{process}/maps", "rb") as file:
            if mark in file.read(_LARGEST_MAPS_BYTES):
                return True
    return False


def _processes() -> list[str]:
    return [f"/proc/{name}" for name in os.listdir("/proc") if name.isdecimal() and int(name) != os.getpid()]


def _works_in(process: str, named: re.Pattern[bytes], real: str) -> bool:
    with contextlib.suppress(OSError):
        if _is_below(os.readlink(f"{process}/cwd"), real):
            return True
        with open(f"{process}/cmdline", "rb") as file:
            if named.search(file.read(_LARGEST_COMMAND_BYTES)):
                return True
        for number in os.listdir(f"{process}/fd"):
            with contextlib.suppress(OSError):
                link = f"{process}/fd/{number}"
                # The permissions of the link are those of the open file.
                if _is_below(os.readlink(link), real) and os.lstat(link).st_mode & 0o200:
                    return True
    return False


def _is_below(path: str, folder: str) -> bool:
    return path == folder or path.startswith(f"{folder}/")
