# SPDX-License-Identifier: Apache-2.0
"""A timeline of compilations and waits, for ``lockcache run --trace``: Chrome's trace events, which Perfetto opens.

An event is one line, appended by one write as soon as it has ended: so the events of all processes are in one file, and
a process that is killed, at whatever moment, leaves a file that can be opened. Chrome's format has its events in an
array whose end may be missing for that reason. Hits are not events: they stay as quick as they are.

Keeps invariant 7 (never take the job down): nothing here raises; a full disk ends the trace of the process.
"""

from __future__ import annotations

import contextlib
import json
import os
import socket
import sys
import threading
import time
from typing import Any, Final

__all__ = ["Trace"]

# The beginning of an array, and not its end.
_HEAD: Final = b"[\n"
_LONGEST_NAME: Final = 200


class Trace:
    """The events of this process, in the file at ``path``, which :meth:`begin_file` made."""

    def __init__(self, path: str) -> None:
        self._path = path
        self._is_named = 0

    @staticmethod
    def begin_file(path: str) -> None:
        """Make the file if it is missing; else events are added to it. Raises :class:`OSError`, and
        :class:`ValueError` for a file that is not a trace."""
        with contextlib.suppress(FileExistsError):
            # Whole under its name at once: the ranks of a job begin it together.
            staged = f"{path}.{os.getpid()}.tmp"
            fd = os.open(staged, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o666)
            try:
                os.write(fd, _HEAD)
                os.link(staged, path)
            finally:
                os.close(fd)
                os.unlink(staged)
        fd = os.open(path, os.O_RDWR | os.O_CLOEXEC | os.O_NOFOLLOW | os.O_NONBLOCK)
        try:
            if os.pread(fd, len(_HEAD), 0) != _HEAD:
                raise ValueError(f"{path}: not a trace of lockcache run, and events are added to nothing else")
        finally:
            os.close(fd)

    def compiled(self, name: str, label: str, cost_ns: int) -> None:
        """Add a compilation that has just ended. ``cost_ns``: how long it took, 0 if that is not known."""
        self._add(f"compile {label or name[:12]}", cost_ns, entry=name[:12])

    def waited(self, name: str, nanoseconds: int) -> None:
        """Add a wait for another process's compilation that has just ended."""
        self._add(f"wait for {name[:12]}", nanoseconds, entry=name[:12])

    def _add(self, title: str, duration_ns: int, **details: str) -> None:
        end_us, duration_us = time.time_ns() // 1000, duration_ns // 1000
        event = {
            "name": title[:_LONGEST_NAME],
            "cat": title.partition(" ")[0],
            "ph": "X",
            "ts": end_us - duration_us,
            "dur": duration_us,
            "pid": os.getpid(),
            "tid": threading.get_native_id(),
            "args": details,
        }
        events = [event] if self._is_named == os.getpid() else [_name_of_process(), event]
        try:
            fd = os.open(self._path, os.O_WRONLY | os.O_APPEND | os.O_CLOEXEC | os.O_NOFOLLOW | os.O_NONBLOCK)
            try:
                os.write(fd, "".join(f"{json.dumps(each)},\n" for each in events).encode())
            finally:
                os.close(fd)
        except OSError:
            return
        self._is_named = os.getpid()


def _name_of_process() -> dict[str, Any]:
    """Returns the event that names this process on the timeline."""
    # Not the other arguments: passwords may be among them.
    name = f"{socket.gethostname()} {os.path.basename(sys.argv[0] if sys.argv else '') or 'python'}"
    return {"name": "process_name", "ph": "M", "pid": os.getpid(), "args": {"name": name}}
