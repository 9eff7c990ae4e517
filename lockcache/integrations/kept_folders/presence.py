# SPDX-License-Identifier: Apache-2.0
"""Presence of the commands that work in one folder of this host: which is the last to end, and whether all ended well.

Decides when what was written in its place may be whole. Keeps invariant 5 (death is free): the kernel releases a killed
command's lock, and since it wrote no end, the others did not all end well. The command inherits the lock: where only
``lockcache run`` is killed, the command goes on writing, and is not gone until it has ended too.
"""

from __future__ import annotations

import contextlib
import fcntl
import hashlib
import os
import time
from typing import Final

from lockcache.filestream.disk import UPDATE, Descriptor, myself
from lockcache.lowlevel import Layout

__all__ = ["Presence"]

_BEGAN: Final = b"+"
_ENDED_WELL: Final = b"-"
_MOST_BYTES: Final = 1 << 20
_MOMENT_SECONDS: Final = 1.0
_PAUSE_SECONDS: Final = 0.01


class Presence:
    """This command among those of ``folder``, until :meth:`close`."""

    def __init__(self, layout: Layout, folder: str) -> None:
        self._file = Descriptor()
        self._is_shared = self._has_ended = self._is_last = False
        name = hashlib.sha256(os.fsencode(os.path.realpath(folder)), usedforsecurity=False).hexdigest()[:16]
        with contextlib.suppress(OSError):
            layout.reach.make_folder(layout.locks)
            layout.reach.open_or_create(f"{layout.locks}/keep-{myself().host}-{name}", UPDATE, self._file)
            self._begin(self._file.number)

    def _begin(self, fd: int) -> None:
        if self._is_alone(fd):
            os.ftruncate(fd, 0)  # of those who were killed
        until = time.monotonic() + _MOMENT_SECONDS
        while True:
            try:
                fcntl.flock(fd, fcntl.LOCK_SH | fcntl.LOCK_NB)
                break
            except BlockingIOError:  # another one begins or ends
                if time.monotonic() > until:
                    raise
            time.sleep(_PAUSE_SECONDS)
        os.set_inheritable(fd, True)
        self._append(fd, _BEGAN)
        self._is_shared = True

    def all_ended_well(self) -> bool:
        """Say that this command ended well. Returns whether all others did, and none is left. Raises nothing.

        Asking again gives the same answer.
        """
        if self._is_shared and not self._has_ended:
            self._has_ended, self._is_last = True, self._end()
        return self._is_last

    def _end(self) -> bool:
        with contextlib.suppress(OSError):
            fd = self._file.number
            self._append(fd, _ENDED_WELL)
            # The kernel releases the shared lock first: of two that end at once, the later one is alone.
            if self._is_alone(fd):
                marks = os.pread(fd, _MOST_BYTES, 0)
                fcntl.flock(fd, fcntl.LOCK_UN)  # one that begins while this one stores is counted
                return len(marks) < _MOST_BYTES and marks.count(_BEGAN) == marks.count(_ENDED_WELL)
        return False

    def close(self) -> None:
        """Leave. A process that the command left running does not stay here: it may never end."""
        if self._file.number >= 0:
            with contextlib.suppress(OSError):
                fcntl.flock(self._file.number, fcntl.LOCK_UN)
        self._file.close()

    def _append(self, fd: int, mark: bytes) -> None:
        fcntl.fcntl(fd, fcntl.F_SETFL, fcntl.fcntl(fd, fcntl.F_GETFL) | os.O_APPEND)
        os.write(fd, mark)

    def _is_alone(self, fd: int) -> bool:
        try:
            fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            return False
        return True
